"""Parts that all files share, read or written: paths, partitions, compression, schemas, conditions, errors of object stores.

Begin with ``reading.source`` and ``writing.sinks``; neither folder imports the other.
"""

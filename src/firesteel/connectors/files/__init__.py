"""Parts that all sources and sinks of files share: paths, partitions, splits by lines, compression, publishing all or nothing.

Begin with ``source`` and ``sinks``.
"""

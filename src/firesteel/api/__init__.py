"""The classes that users write pipelines with. Begin with ``environment`` and ``data_stream``; steps by topic are in ``steps``, sources and Spark's formats in ``connectors``.

Loads pyspark only when a job starts.
"""

"""The classes that users write pipelines with. Begin with ``environment`` and ``streams``; what their steps do is in ``steps``, sources and Spark's formats in ``connectors``.

Loads pyspark only when a job starts.
"""

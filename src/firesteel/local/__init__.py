"""Jobs computed in the calling process, without Spark: for unit tests in milliseconds, and for breakpoints.

Begin with ``job`` (a compiled job, vertex by vertex), then ``graph`` (other sources under a pipeline: given rows, first rows). What is
compiled and what tasks do are the same as in a real job. Imports ``compile``, ``task``, ``results`` and ``connectors``; no pyspark.
"""

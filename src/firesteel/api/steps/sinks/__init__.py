"""The ends of a pipeline: files and tables written, rows merged into folders, what Spark writes, sinks of the user's own.

Begin with ``writing``.
"""

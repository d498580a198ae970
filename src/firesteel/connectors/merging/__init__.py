"""Rows merged by key into a folder of Parquet files: which files have the keys, those files without them, and the sink.

Begin with ``folder``.
"""

"""Streaming queries on Spark: stopped at commit barriers, repartitioned and started again as their scheduler says.

Begin with ``driver``; ``checkpoint_files`` is what a stopped query leaves on storage.
"""

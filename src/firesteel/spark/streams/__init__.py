"""Streaming queries on Spark: held at commits, stopped, repartitioned and started again as their scheduler says.

Begin with ``driver``; ``checkpoint`` is what a stopped query leaves on storage.
"""

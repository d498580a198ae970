"""Corrected scripts: a new job that keeps what an earlier one has finished, wherever programs and inputs are the same.

Begin with ``corrected``, which finds out what can be kept. ``spark.recovery.deployments`` answers the new job's deployments with it.
"""

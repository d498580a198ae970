"""Streams on Spark: a streaming query that is held, stopped, repartitioned and started again as its scheduler says."""

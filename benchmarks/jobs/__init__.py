"""Whole jobs beside those of PySpark, Spark SQL and DuckDB, and what a job, a subtask and a volume per task cost."""

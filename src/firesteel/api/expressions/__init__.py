"""Expressions under PySpark's names and with Spark's meaning, computed by Arrow: no Spark is needed. Begin with ``column``."""

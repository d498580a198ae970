"""Spark's plans as plain Python. Begin with ``catalyst``, which reads them by the Java in ``plan_reader``."""

"""Spark's plans as plain Python. Begin with ``nodes``; ``catalyst`` reads them, by the Java in ``plan_reader``."""

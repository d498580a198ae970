"""Nodes and executors as Spark tells of them, where tasks should run, and how blocked nodes are kept free. Begin with ``watch``."""

"""Plans as text for the engine: the allow-list. What is not in it is left to Spark."""

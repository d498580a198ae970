"""Plans as text for the engine: the allow-list. Spark computes everything else."""

"""Where a query runs: as one statement in this process, or in stages on Spark."""

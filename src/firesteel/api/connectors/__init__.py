"""Sources, and whatever Spark itself reads and writes."""

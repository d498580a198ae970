"""Long runs that look for defects: random jobs and streams in the simulation, random SQL queries held to Spark, and TPC-H on a cluster whose
nodes are harmed."""

"""The embedded engine (DuckDB): its instance in a process, its package on executors, files and Arrow types in and out."""

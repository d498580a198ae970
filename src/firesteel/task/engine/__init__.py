"""The embedded engine (DuckDB) inside of tasks. ``fragments`` are the steps that run a query on it, ``connection`` is the engine."""

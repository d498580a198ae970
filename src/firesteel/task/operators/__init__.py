"""Operators: generators over record batches, from joins to windows. Begin with ``relational`` (row-wise) or ``units`` (keyed)."""

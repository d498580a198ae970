"""Operators: generators over record batches, from joins to windows.

Begin with ``relational`` (row-wise) or ``units`` (keyed); ``aggregation`` folds the rows of a key into one.
"""

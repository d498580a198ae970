"""Aggregates that the engine does not compute: each a state of Arrow columns, made of rows, merged in any order, and finished.

Begin with ``aggregate`` (the two protocols).
"""

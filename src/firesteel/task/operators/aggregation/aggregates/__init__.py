"""Aggregates beyond sums, counts and extremes: each a state of Arrow columns, made of rows, merged in any order, and finished.

Begin with ``aggregate`` (the two protocols); a file for each family.
"""

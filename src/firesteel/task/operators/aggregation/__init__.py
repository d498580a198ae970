"""Aggregations: the rows of a key folded into one, partly before the exchange (a combiner) and finished behind it.

Begin with ``aggregate`` and its ``aggregate_plan``; ``reduce``, ``duplicates`` and ``describe`` fold in other ways.
"""

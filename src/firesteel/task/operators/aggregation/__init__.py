"""Rows of a key folded by our own code: aggregates of users, sketches and ``reduce``, partly before the exchange (a combiner) and finished behind it.

Begin with ``folding`` and ``states``.
"""

"""Aggregations as users write them: the functions of ``firesteel.agg``, grouping sets and pivots.

Begin with ``written`` (what may be given to ``aggregate``) and ``agg`` (the functions).
"""

"""Blocking results: their reported sizes, merging of small ones, ranges of keys, and when they are released.

Begin with ``result_info``.
"""

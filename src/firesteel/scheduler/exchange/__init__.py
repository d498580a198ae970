"""Blocking results: their sizes as they are told, merging of small ones, ranges of keys, and when they are released.

Begin with ``result_info``.
"""

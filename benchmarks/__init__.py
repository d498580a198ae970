"""Benchmarks: ``python -m benchmarks [NAME ...]``. Each compares with its alternative in the same run and prints ratios.

Begin with ``__main__``, which has them all by folder; ``kit.harness`` runs the contenders in turn. ``soak`` looks for defects instead.
"""

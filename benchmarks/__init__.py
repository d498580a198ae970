"""Benchmarks: ``python -m benchmarks [NAME ...]``. Each compares with its alternative in the same run and prints ratios."""

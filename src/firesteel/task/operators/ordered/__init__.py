"""Joins by the order of values: by ranges and other conditions, and by the nearest time (as-of)."""

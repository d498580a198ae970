"""Joins: with a heavy key, in a star, in a chain, emptied by a filter, by the order of values."""

"""Folds: all that is known of a job or stream so far, taken from its records one by one, in few numbers. Begin with ``fold``."""

"""Rescales: when one that is wanted begins, and what became of each; ``manager`` decides, ``rescales`` keeps the records."""

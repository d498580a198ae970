"""Fault injection: dice from one seed, and what goes wrong and when."""

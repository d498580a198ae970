"""Rows that a function cannot do, and functions that call services: what a user may ask of them, checked."""

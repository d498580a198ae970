"""Rewrites of the stream graph before it is planned: filters and projections moved below unions and into sources.

Imports what ``compile`` may import. Each rewrite is a function of its own, and gives the very same rows.
"""

"""Spark's expressions in the engine's SQL. Begin with ``translator``; the rules are beside it, by kind."""

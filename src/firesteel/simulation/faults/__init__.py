"""Fault injection: dice from one seed, what goes wrong and when, and random jobs and resources on which everything does."""

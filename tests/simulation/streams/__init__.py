"""A whole stream under a virtual clock: its query, its cluster, its user, and what must hold of it whatever happens.

Begin reading at ``stream``; ``world`` is what is simulated, ``invariants`` what must hold, ``random_streams`` makes both from a seed.
"""

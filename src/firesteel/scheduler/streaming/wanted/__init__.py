"""The parallelism that a stream should have: requirements, slots, load, the user's word; and by which action it gets there.

Begin with ``assessment``.
"""

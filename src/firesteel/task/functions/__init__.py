"""Calling the users' functions on batches, frames, rows and groups: what goes in, what must come out, whose error it is.

Begin with ``batch_functions``, then ``user_code``.
"""

"""The append-only record of what a job did and why: the file, its lock, and where journals lie.

Begin with ``file``; what is made of the records is in ``report`` and ``view``.
"""

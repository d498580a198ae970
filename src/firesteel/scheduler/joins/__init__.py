"""Joins that are decided while the job runs: which side is waited for, and whether it is given whole to the other one's tasks.

Imports ``model``, ``options`` and the scheduler's ``kernel`` and ``topology``. Begin with ``adaptive``; ``broadcast`` is the decision
itself, a pure function, which ``replay`` makes again from the records of a job.
"""

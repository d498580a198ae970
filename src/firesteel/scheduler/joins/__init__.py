"""Joins that are decided while the job runs: which side is waited for, whether it is given whole to the other one's tasks, and what
their sources need not read.

Begin with ``joins``, the policy, which has the parts: ``adaptive`` (with ``broadcast``, the decision itself, a pure function, which ``replay`` makes again from the records of a
job), ``runtime_filters``, and the ``deferrals`` of both.
"""

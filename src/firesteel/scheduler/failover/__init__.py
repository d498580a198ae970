"""Failover: which regions run again, whether another try is left, which inputs must be read again.

Begin with ``failover``, then ``regions``, ``restart_strategies`` and ``failure_accounting``.
"""

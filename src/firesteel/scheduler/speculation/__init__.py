"""Speculative execution (FLIP-168): slow executions are found, mirrored on other nodes, slow nodes blocked for a while.

Begin with ``handler`` (the interface, and the no-op where it is off), then ``default_handler``, ``detector`` and ``rules``.
"""

"""Speculative execution (FLIP-168): slow executions are found, mirrored on other nodes, slow nodes blocked for a while.

Begin with ``mirrors`` (the policy), then ``detector`` and ``rules``.
"""

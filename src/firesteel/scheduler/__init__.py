"""The control plane: ``handle(event) -> commands``. Pure Python and numpy: no I/O, no clock, no pyspark, no pyarrow.

Begin with ``scheduler`` (what a job is composed of) and ``factory`` (which scheduler a job gets); ``kernel`` has what goes in and out.
``execution_events`` is what reports of executions lead to, ``sink_committer`` the end of a job.
``adaptive_batch`` and ``default`` differ in how the graph grows. Each capability is a room: ``topology``, ``parallelism``,
``exchange``, ``deployment``, ``failover``, ``speculation``, ``slots``; ``streaming`` is the adaptive scheduler of streams.
Imports ``model``, ``options``, ``errors`` and ``humanize``.
"""

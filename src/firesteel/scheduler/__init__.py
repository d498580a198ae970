"""The control plane: ``handle(event) -> commands``. Pure Python and numpy: no I/O, no clock, no pyspark, no pyarrow.

Begin with ``scheduler`` (the list of policies), ``job`` (the state and its verbs) and ``policy`` (the hooks); ``kernel`` has what goes in and out.
``execution_events`` is what reports of executions lead to, ``growth`` how the graph grows, ``sinks`` the end of a job.
Each capability is a room: ``topology``, ``parallelism``, ``exchange``, ``deployment``, ``failover``, ``speculation``, ``slots``;
``streaming`` is the adaptive scheduler of streams. Imports ``model``, ``options``, ``errors`` and ``humanize``.
"""

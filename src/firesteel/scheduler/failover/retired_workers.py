"""Executions that found their Python worker had begun with other external resources: the worker goes, and they are sent
again, uncounted. Libraries such as CUDA keep the devices they first saw, so such a worker cannot serve them.

Each time costs one worker process, of which an executor keeps a few per core; who meets far more than that has met
something else, and fails, counted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from firesteel.humanize import plural
from firesteel.scheduler.failover.failure_accounting import Failure
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.decisions import MetRetiredWorker
from firesteel.scheduler.kernel.events import FailureCause, FailureKind
from firesteel.scheduler.kernel.records import RETIRED
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.kernel.waits import Subtasks
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows, in_passes

MOST_RETIRED = 50
"""Executions of one subtask that may meet such a worker before it counts as a failure."""

SendAgain = Callable[[ExecutionJobVertex, Rows, str], None]
"""Is given executions of distinct subtasks, which are over, and why others take their places."""


class RetiredWorkers:
    def __init__(self, job: Job, send_again: SendAgain, failed: Callable[[Failure], None]) -> None:
        self._job = job
        self._table = job.executions
        self._send_again = send_again
        self._failed = failed
        self._met: dict[int, NDArray[np.int32]] = {}
        """By vertex: how many executions of each subtask met such a worker since a failure was counted last."""

    def rejected(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """Distinct ones, which are with Spark and have not begun. Those that run together run again together."""
        if len(rows) and not self._job.graph.regions.is_trivial(vertex.id):
            self._fail(vertex, rows, RETIRED, counted=False)
            return
        met = self._met.setdefault(vertex.id, np.zeros(vertex.parallelism, np.int32))
        for part in in_passes(self._table, rows):
            subtasks = self._table.index[part].astype(np.int64)
            met[subtasks] += 1
            again = met[subtasks] <= MOST_RETIRED
            self._again(vertex, part[again])
            self._count_failure(vertex, part[~again])

    def _again(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        if not len(rows):
            return
        self._job.move(vertex.id, rows, ExecutionState.CANCELED, cause=RETIRED)
        subtasks = self._table.index[rows].astype(np.int64)
        self._job.recorder.decision(
            "retired worker",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs=MetRetiredWorker(subtasks=subtasks.tolist(), attempts=self._table.attempt[rows].tolist()),
            rule="sent again, not counted as a restart",
            result=len(rows),
        )
        self._send_again(vertex, rows, "in the place of one that a retired worker rejected")

    def _count_failure(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        if len(rows):
            subtasks = self._table.index[rows].astype(np.int64)
            self._met[vertex.id][subtasks] = 0
            who = f"{Subtasks.of(subtasks)} of '{vertex.job.name}'"
            met = f"met {plural(MOST_RETIRED, 'Python worker')} and more that had begun with other external resources"
            self._fail(vertex, rows, f"{who} {met}")

    def _fail(self, vertex: ExecutionJobVertex, rows: Rows, message: str, *, counted: bool = True) -> None:
        cause = FailureCause(FailureKind.WORKER, message, hint="Set spark.python.worker.reuse to false.")
        self._failed(Failure(vertex, rows, self._table.index[rows].astype(np.int64), cause, counted))

"""Partitions that are lost or damaged: which they are, whether that is news, and what else may be gone with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.errors import MERGED_ATTEMPT
from firesteel.humanize import plural
from firesteel.model.arrays import Ints, compact
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.failover.failure_accounting import Failure
from firesteel.scheduler.kernel.commands import VerifyPartitions
from firesteel.scheduler.kernel.events import FailureCause, FailureKind, OutputsLost, PartitionsLost
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW

VERIFY_SECONDS = 1.0
"""A data set's objects are looked for at most so often: a lost disk makes thousands of readers fail one after another."""


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """The partition that a failure says could not be read, if any."""

    result: IntermediateResult | None = None
    """Of which ``partition`` is lost; None: none is, as far as we know."""
    partition: int = -1
    is_new: bool = False
    """It was not lost before."""
    is_stale: bool = False
    """The object that was missed is not the current one any more."""

    @property
    def tasks(self) -> dict[int, Ints]:
        """Returns the subtasks, by vertex, that are to produce it anew."""
        return {} if self.result is None else {self.result.dataset.producer: np.array([self.partition])}


_NOTHING = Loss()


class PartitionLoss:
    def __init__(self, graph: DefaultExecutionGraph, merging: Merging, recorder: Recorder) -> None:
        self._graph = graph
        self._merging = merging
        self._recorder = recorder
        self._lost: set[tuple[int, int]] = set()
        """(data set, partition) that was lost once already."""
        self._verified: dict[int, float] = {}
        """When each data set's objects were looked for last."""

    def told_by(self, failure: Failure) -> Loss:
        """Withdraws the partition that the failure misses: it cannot be read from now on, whether as a partition or as a merged object."""
        cause = failure.cause
        if cause.attempt == MERGED_ATTEMPT:
            self._merging.damaged(cause.dataset, cause.partition, cause.token)
        result = self._named(failure) if cause.kind is FailureKind.PARTITION else None
        if result is None:
            return _NOTHING
        if not self._is_current(result, cause):
            return Loss(is_stale=True)
        result.withdraw(np.array([cause.partition]), stored=True)
        key = (cause.dataset, cause.partition)
        is_new = key not in self._lost
        self._lost.add(key)
        return Loss(result, cause.partition, is_new)

    def verify_others(self, loss: Loss) -> None:
        """Have the data set's other objects looked for."""
        if loss.result is None:
            return
        lost = loss.result
        dataset, others = lost.dataset.id, np.flatnonzero(lost.available)
        if len(others) and self._recorder.at >= self._verified.get(dataset, -np.inf) + VERIFY_SECONDS:
            self._verified[dataset] = self._recorder.at
            attempts = compact(lost.attempts[others])
            self._recorder.emit(VerifyPartitions(dataset, others, attempts, lost.tokens[others]))

    def confirmed(self, event: PartitionsLost) -> Failure | None:
        """Withdraws the objects that are the current ones; returns this as a failure of their producers."""
        result = self._graph.results[event.dataset]
        if result is None:
            return None
        same = result.available[event.partitions]
        same &= result.attempts[event.partitions] == event.attempts
        same &= result.tokens[event.partitions] == event.tokens
        gone = np.asarray(event.partitions, np.int64)[same]
        if not len(gone):
            return None
        vertex = self._graph.vertices[result.dataset.producer]
        result.withdraw(gone, stored=True)
        self._lost.update((result.dataset.id, p) for p in gone.tolist())
        message = f"{plural(len(gone), 'object')} of data set {result.dataset.id} are not in the store any more"
        cause = FailureCause(FailureKind.PARTITION, message, dataset=result.dataset.id, partition=int(gone[0]))
        return Failure(vertex, vertex.winner[gone], gone, cause, counted=True)

    def void(self, event: OutputsLost) -> Failure | None:
        """Returns the ones of these executions that are admitted as a failure of theirs, with nothing withdrawn yet."""
        vertex, table = self._graph.vertices[event.vertex], self._graph.executions
        subtasks = np.asarray(event.subtasks, np.int64)
        rows = vertex.winner[subtasks]
        same = (rows != NO_ROW) & (table.attempt[rows] == event.attempts) & (table.token[rows] == event.tokens)
        if not same.any():
            return None
        message = f"the outputs of {plural(int(same.sum()), 'subtask')} are gone, or cannot be used any more"
        cause = FailureCause(FailureKind.STORAGE, message)
        return Failure(vertex, rows[same], subtasks[same], cause, counted=True)

    def _named(self, failure: Failure) -> IntermediateResult | None:
        """The consumed result that the cause speaks of, if it names one of its partitions."""
        cause = failure.cause
        if all(edge.dataset != cause.dataset for edge in failure.vertex.job.inputs):
            return None
        result = self._graph.result(cause.dataset)
        return result if 0 <= cause.partition < result.num_partitions else None

    def _is_current(self, result: IntermediateResult, cause: FailureCause) -> bool:
        if not result.available[cause.partition]:
            return False
        current = (int(result.attempts[cause.partition]), int(result.tokens[cause.partition]))
        return (cause.attempt, cause.token) == current

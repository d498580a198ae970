"""Reconciliation: a scheduler that was rebuilt learns what its new driver finds. By events only, which are written down like any others.

Everything that ran belonged to the old driver and is over; workers are others; objects may be gone. Nothing else has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.states import IS_DEPLOYED, IS_PENDING
from firesteel.scheduler.recovery.outstanding import as_gone
from firesteel.scheduler.recovery.replay import Replayed
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW, Rows

_DRIVER_LOST = e.FailureCause(e.FailureKind.DRIVER, "its driver was lost")


@dataclass(frozen=True)
class Found:
    """All that a new driver finds. ``executors``: its own workers that are there. ``stored``: tokens of the objects of each data set, None:
    nobody has looked. ``staged_lost``: executions whose staged output of a sink is not there. ``unrepeatable``: vertices whose rows
    are parted otherwise when any of them is read again (the head is Spark's own plan)."""

    executors: Sequence[e.ExecutorChanged] = ()
    stored: Mapping[int, Ints] | None = None
    staged_lost: Sequence[e.OutputsLost] = ()
    unrepeatable: Collection[int] = field(default_factory=tuple[int, ...])


def events_after(replayed: Replayed, found: Found, now: Callable[[], float]) -> Iterator[e.Event]:
    """The events that bring the scheduler to what there is. Each is made from the state that the one before has led to: handle it before
    the next is asked for. ``now``: the job's clock. A driver that dies on the way has told a part; its successor tells the rest.

    What was outstanding (``Outstanding.commands``) is carried out before.
    """
    scheduler, outstanding = replayed.scheduler, replayed.outstanding
    left = _Left(scheduler)
    at = now()
    gone = [as_gone(known, at) for known in outstanding.executors.values()]
    there = [structs.replace(change, at=at) for change in found.executors]
    if gone or there:
        yield e.ExecutorsChanged(at=at, changes=(*gone, *there))
    if scheduler.status is JobStatus.CREATED:
        yield e.JobStarted(at=now())
    yield from left.ended(now)
    for merge, dataset in list(outstanding.merges.items()):
        yield not_merged(dataset, merge, now(), "its driver was lost")
    for vertex in found.unrepeatable:
        yield from _made_again(scheduler, scheduler.graph.vertices[vertex], now())
    yield from (structs.replace(lost, at=now()) for lost in found.staged_lost)
    yield from lost_partitions(scheduler, found.stored, now)
    yield from left.ended(now)  # what was cancelled meanwhile


class _Left:
    """Executions of the old driver of which the scheduler waits to hear."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._table = table = scheduler.executions
        self._rows: Rows = np.flatnonzero(IS_PENDING[table.state[: table.size]])

    def ended(self, now: Callable[[], float]) -> Iterator[e.Event]:
        """None of them runs any more. Those that were cancelled have gone, the others are sent again."""
        table = self._table
        while len(rows := self._rows[IS_PENDING[table.state[self._rows]]]) and not self._scheduler.status.is_terminal:
            rows = rows[table.vertex[rows] == table.vertex[rows].min()]
            deployed = IS_DEPLOYED[table.state[rows]]
            if deployed.any():
                columns = self._columns(rows[deployed])
                yield e.ExecutionsFailed(at=now(), **columns, cause=_DRIVER_LOST, counted=False)
            else:
                yield e.ExecutionsCancelled(at=now(), **self._columns(rows))

    def _columns(self, rows: Rows) -> dict[str, Any]:
        table = self._table
        return {
            "vertex": int(table.vertex[rows[0]]),
            "subtasks": table.index[rows].astype(np.int64),
            "attempts": table.attempt[rows].astype(np.int64),
        }


def lost_partitions(
    scheduler: Scheduler, stored: Mapping[int, Ints] | None, now: Callable[[], float]
) -> Iterator[e.PartitionsLost]:
    """Of each data set that is needed yet the admitted objects that are not stored (None: nobody has looked)."""
    if stored is None:
        return
    for result in scheduler.graph.results:
        if result is None or result.is_pipelined or not _is_needed(scheduler, result):
            continue
        there = stored.get(result.dataset.id, np.zeros(0, np.int64))
        gone = np.flatnonzero(result.available)
        gone = gone[~np.isin(result.tokens[gone], there)]
        if len(gone):
            columns = result.attempts[gone], result.tokens[gone]
            yield e.PartitionsLost(
                at=now(), dataset=result.dataset.id, partitions=gone, attempts=columns[0], tokens=columns[1]
            )


def kept_tokens(scheduler: Scheduler) -> dict[int, Ints]:
    """Tokens of the admitted objects of each data set: whatever else is stored is of no use."""
    results = [result for result in scheduler.graph.results if result is not None]
    return {result.dataset.id: result.tokens[result.available] for result in results}


def _is_needed(scheduler: Scheduler, result: IntermediateResult) -> bool:
    """Returns False if all who read it have: an object that is missing matters to nobody. (Who runs again will say that it misses it.)"""
    graph = scheduler.graph
    readers = [graph.vertices[vertex] for vertex in graph.consumers[result.dataset.id]]
    return result.dataset.persistent or not all(reader.is_finished for reader in readers)


def not_merged(dataset: int, merge: int, at: float, reason: str) -> e.PartitionsMerged:
    """The answer to a MergePartitions of which nothing came."""
    none = np.zeros(0, np.int64)
    return e.PartitionsMerged(
        at=at, dataset=dataset, merge=merge, groups=none, tokens=none, stored_bytes=none, reason=reason
    )


def _made_again(scheduler: Scheduler, vertex: ExecutionJobVertex, at: float) -> Iterator[e.OutputsLost]:
    """All that has finished of a vertex that has not finished as a whole."""
    finished = np.flatnonzero(vertex.winner != NO_ROW)
    if len(finished) and not vertex.is_finished:
        table, rows = scheduler.executions, vertex.winner[finished]
        attempts = table.attempt[rows].astype(np.int64)
        yield e.OutputsLost(at=at, vertex=vertex.id, subtasks=finished, attempts=attempts, tokens=table.token[rows])

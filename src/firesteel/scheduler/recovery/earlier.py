"""Executions that have finished in an earlier job, by what they did and what they read: one that is to do just that again is answered by
what that one left.

A fold of the job's log. No scheduler is rebuilt for it, so it serves a job whose script was changed as well as one that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from firesteel.model.descriptors import DIGEST_BYTES
from firesteel.model.reports import Opening
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.recovery.codec import DEPLOYING, decode
from firesteel.scheduler.recovery.records import Alive, AnyLogRecord, Deployed, DriverBegan, Identified, Told

Execution = tuple[int, int, int]
"""Vertex, subtask and attempt."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedExecution:
    """``event`` told of it, at ``place`` among others. ``datasets``: that it wrote, in the order of its program's outputs."""

    vertex: int
    subtask: int
    attempt: int
    token: int
    key: bytes
    """Of all that it did and read; empty: nobody can tell."""
    datasets: tuple[int, ...]
    event: e.ExecutionsFinished
    place: int

    @property
    def commits(self) -> tuple[bytes, ...]:
        """The commit message of each of its sinks, pickled."""
        told = self.event.reports.commits
        return told[self.place] if len(told) else ()


@dataclass(eq=False)
class EarlierJob:
    """``finished``: in the order in which they finished, without those whose output was lost. ``parallelism``: of each vertex that was deployed.
    ``at``: the job's clock when anything was written last."""

    finished: list[FinishedExecution] = field(default_factory=list[FinishedExecution])
    parallelism: dict[int, int] = field(default_factory=dict[int, int])
    at: float = 0.0
    opened: dict[int, Opening] = field(default_factory=dict[int, Opening])
    """By vertex, what its function was seen to open (``StepReport.opened``). Its executions have no key."""

    def subtasks(self, vertex: int) -> int:
        """The number of its subtasks that have finished."""
        return len(self._subtasks.get(vertex, ()))

    @cached_property
    def _subtasks(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for one in self.finished:
            found.setdefault(one.vertex, set()).add(one.subtask)
        return found


def earlier_job(entries: Iterable[Sequence[AnyLogRecord]]) -> EarlierJob:
    """``entries``: the whole log of one job. Raises ValueError for an event that cannot be read."""
    fold = _Fold()
    for record in (record for entry in entries for record in entry):
        fold.take(record)
    found = [one for one in fold.finished() if not fold.is_lost(one)]
    return EarlierJob(found, fold.parallelism, fold.at, fold.opened)


class _Fold:
    def __init__(self) -> None:
        self.parallelism: dict[int, int] = {}
        self.at = 0.0
        self.opened: dict[int, Opening] = {}
        self._inputs: dict[Execution, bytes] = {}
        self._known: dict[Execution, Identified] = {}
        self._events: list[e.ExecutionsFinished] = []
        self._lost_partitions: set[tuple[int, int, int, int]] = set()
        """Data set, partition, attempt and token: executions of one standing task have one token, also two attempts of one subtask."""
        self._lost_executions: set[tuple[int, int, int, int]] = set()
        """Vertex, subtask, attempt and token."""

    def take(self, record: AnyLogRecord) -> None:
        match record:
            case Deployed():
                self.parallelism[record.vertex] = record.parallelism
                places = range(0, len(record.inputs), DIGEST_BYTES)
                digests = [record.inputs[place : place + DIGEST_BYTES] for place in places]
                self._inputs.update(zip(_executions(record), digests, strict=True))
            case Identified():
                self._known.update(dict.fromkeys(_executions(record), record))
            case Told() if record.event_kind != DEPLOYING:
                self._hear(decode(record.event))
            case Alive() | DriverBegan():
                self.at = max(self.at, record.at)
            case _:
                pass

    def _hear(self, event: Any) -> None:
        self.at = max(self.at, event.at)
        match event:
            case e.ExecutionsFinished():
                self._events.append(event)
                seen = (report.opened for own in event.reports.steps for report in own if report.opened)
                self.opened.update((event.vertex, opening) for opening in seen)
            case e.PartitionsLost():
                columns = event.partitions, event.attempts, event.tokens
                places = zip(*(column.tolist() for column in columns), strict=True)
                self._lost_partitions.update((event.dataset, *place) for place in places)
            case e.OutputsLost():
                columns = event.subtasks, event.attempts, event.tokens
                places = zip(*(column.tolist() for column in columns), strict=True)
                self._lost_executions.update((event.vertex, *place) for place in places)
            case e.ExecutionsFailed() if event.cause.token >= 0:
                cause = event.cause
                self._lost_partitions.add((cause.dataset, cause.partition, cause.attempt, cause.token))
            case _:
                pass

    def is_lost(self, one: FinishedExecution) -> bool:
        """Returns whether any of its output could not be read any more."""
        name = one.subtask, one.attempt, one.token
        if (one.vertex, *name) in self._lost_executions:
            return True
        return any((dataset, *name) in self._lost_partitions for dataset in one.datasets)

    def finished(self) -> Iterator[FinishedExecution]:
        for event in self._events:
            columns = event.subtasks.tolist(), event.attempts.tolist(), event.reports.tokens.tolist()
            for place, (subtask, attempt, token) in enumerate(zip(*columns, strict=True)):
                execution = (event.vertex, subtask, attempt)
                known, read = self._known.get(execution), self._inputs.get(execution)
                key = b""
                if known is not None and known.identity and read is not None and event.vertex not in self.opened:
                    key = execution_key(known.identity, read)
                yield FinishedExecution(
                    *execution, token, key, () if known is None else tuple(known.datasets), event, place
                )


def execution_key(identity: bytes, inputs: bytes) -> bytes:
    """``identity``: of all that it does (``Identified``), ``inputs``: of all that it reads (``Deployed``)."""
    return identity + inputs


def _executions(record: Deployed | Identified) -> list[Execution]:
    columns = (np.frombuffer(column, np.int32).tolist() for column in (record.subtasks, record.attempts))
    return [(record.vertex, subtask, attempt) for subtask, attempt in zip(*columns, strict=True)]

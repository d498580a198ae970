"""Outstanding work of a replay: what a driver's commands came to that the next one has to carry out, or to answer, itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import structs

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import Command
from firesteel.scheduler.recovery.records import Alive, AnyLogRecord, DriverBegan, SinkStep

Name = tuple[int, int, int, int]
"""Vertex, subtask, attempt and token of an execution that has finished."""


class Outstanding:
    """A fold of events and commands, in their order: nothing in here decides anything."""

    def __init__(self) -> None:
        self.at = 0.0
        """The job's clock when anything was written last."""
        self.drivers: list[DriverBegan] = []
        self.executors: dict[str, e.ExecutorChanged] = {}
        """Executors that the scheduler believes to be there, by name."""
        self.merges: dict[int, int] = {}
        """Merges that were asked for and not answered: their data set, by number."""
        self.merged: dict[int, set[int]] = {}
        """Tokens of the merged objects that are needed, by data set."""
        self.commits: dict[Name, tuple[bytes, ...]] = {}
        """Commit messages of what sinks have staged, and is neither published nor discarded."""
        self.sink_steps: dict[tuple[int, int], dict[str, bytes]] = {}
        """By vertex and sink: its steps, the last one last, and the state that each was written with."""
        self.publishing: c.CommitSinks | None = None
        self.ended: c.JobStatusChanged | None = None
        """The job is over: no more is left than to tell."""
        self._timers: dict[str, c.SetTimer] = {}
        self._blobs: dict[bytes, c.StoreBlob] = {}
        self._blocked: c.BlockNodes | None = None
        self._rows: dict[int, dict[tuple[int, int], None]] = {}
        """(partition, attempt) of rows of sizes that are being read back, by data set."""
        self._narrowed: dict[int, c.NarrowSource] = {}

    @property
    def blobs(self) -> set[bytes]:
        """Digests of those that deployments may refer to."""
        return set(self._blobs)

    def noted(self, record: AnyLogRecord) -> None:
        """A record that stands for itself."""
        if isinstance(record, DriverBegan):
            self.drivers.append(record)
            self.at = max(self.at, record.at)
        elif isinstance(record, Alive):
            self.at = max(self.at, record.at)
        elif isinstance(record, SinkStep):
            steps = self.sink_steps.setdefault((record.vertex, record.sink), {})
            steps.pop(record.step, None)
            steps[record.step] = record.state

    def heard(self, event: e.Event) -> None:
        """An event that was handled: it may be the answer to what was asked."""
        self.at = max(self.at, event.at)
        match event:
            case e.ExecutionsFinished() if len(event.reports.commits):
                names = _names(event.vertex, event.subtasks, event.attempts, event.reports.tokens)
                self.commits.update(zip(names, event.reports.commits, strict=True))
            case e.TimerFired():
                self._timers.pop(event.timer, None)
            case e.ExecutorChanged():
                self._executor(event)
            case e.ExecutorsChanged():
                for change in event.changes:
                    self._executor(change)
            case e.SizesLoaded():
                rows = self._rows.get(event.dataset, {})
                for name in zip(event.partitions.tolist(), event.attempts.tolist(), strict=True):
                    rows.pop(name, None)
            case e.SourceNarrowed():
                self._narrowed.pop(event.vertex, None)
            case e.PartitionsMerged():
                self.merges.pop(event.merge, None)
                self.merged.setdefault(event.dataset, set()).update(event.tokens.tolist())
            case e.SinksCommitted() | e.SinksFailed():
                self.publishing = None
            case _:
                pass

    def told(self, commands: Sequence[Command]) -> None:
        """The commands that an event came to. Others than those that are folded were carried out in the replay, are over with the driver, or
        are seen to by a look at the storage."""
        for command in commands:
            self._told(command)

    def _told(self, command: Command) -> None:  # noqa: PLR0912
        match command:
            case c.SetTimer():
                self._timers[command.timer] = command
            case c.CancelTimer():
                self._timers.pop(command.timer, None)
            case c.StoreBlob():
                self._blobs[command.digest] = command
            case c.DropBlobs():
                for digest in command.digests:
                    self._blobs.pop(digest, None)
            case c.BlockNodes():
                self._blocked = command
            case c.LoadSizes():
                names = zip(command.partitions.tolist(), command.attempts.tolist(), strict=True)
                self._rows.setdefault(command.dataset, {}).update(dict.fromkeys(names))
            case c.DropSizes():
                self._rows.pop(command.dataset, None)
            case c.NarrowSource():
                self._narrowed[command.vertex] = command
            case c.MergePartitions():
                self.merges[command.merge] = command.gate.dataset
            case c.ReleaseMerged():
                self.merged.get(command.dataset, set()).difference_update(command.merged.tokens.tolist())
            case c.DiscardExecutions():
                for name in _names(command.vertex, command.subtasks, command.attempts, command.tokens):
                    self.commits.pop(name, None)
            case c.CommitSinks():
                self.publishing = command
            case c.JobStatusChanged() if command.status.is_terminal:
                self.ended = command
            case _:
                pass

    def _executor(self, event: e.ExecutorChanged) -> None:
        if event.added:
            self.executors[event.executor] = event
        else:
            self.executors.pop(event.executor, None)

    def commands(self) -> Iterator[Command]:
        """The commands that the new driver carries out before it hears of anything."""
        if self.ended is not None:
            yield self.ended
            return
        yield from self._timers.values()
        yield from self._blobs.values()
        if self._blocked is not None and self._blocked.nodes:
            yield self._blocked
        for dataset, names in self._rows.items():
            if names:
                partitions, attempts = np.array(list(names), np.int64).T
                yield c.LoadSizes(dataset, partitions, attempts)
        yield from self._narrowed.values()
        if self.publishing is not None:
            yield self.publishing


def _names(vertex: int, subtasks: Ints, attempts: Ints, tokens: Ints) -> Iterator[Name]:
    columns = subtasks.tolist(), attempts.tolist(), tokens.tolist()
    return ((vertex, *name) for name in zip(*columns, strict=True))


def as_gone(known: e.ExecutorChanged, at: float) -> e.ExecutorChanged:
    """The event that a worker which was told of is gone."""
    return structs.replace(known, at=at, id=0, added=False, resources=None, profile=None)

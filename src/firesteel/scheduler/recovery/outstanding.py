"""Outstanding work of a replay: what a driver's commands came to that the next one has to carry out, or to answer, itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
        self._of_events: dict[type[e.Event], Callable[[Any], object]] = {
            e.ExecutionsFinished: self._staged,
            e.TimerFired: lambda event: self._timers.pop(event.timer, None),
            e.ExecutorChanged: self._executor,
            e.ExecutorsChanged: self._executors,
            e.SizesLoaded: self._loaded,
            e.SourceNarrowed: lambda event: self._narrowed.pop(event.vertex, None),
            e.PartitionsMerged: self._merged,
            e.SinksCommitted: self._published,
            e.SinksFailed: self._published,
        }
        self._of_commands: dict[type[Command], Callable[[Any], object]] = {
            c.SetTimer: self._set_timer,
            c.CancelTimer: lambda command: self._timers.pop(command.timer, None),
            c.StoreBlob: self._store_blob,
            c.DropBlobs: self._drop_blobs,
            c.BlockNodes: self._block,
            c.LoadSizes: self._load,
            c.DropSizes: lambda command: self._rows.pop(command.dataset, None),
            c.NarrowSource: self._narrow,
            c.MergePartitions: self._merge,
            c.ReleaseMerged: self._release_merged,
            c.DiscardExecutions: self._discarded,
            c.CommitSinks: self._publish,
            c.JobStatusChanged: self._status,
        }

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
        fold = self._of_events.get(type(event))
        if fold is not None:
            fold(event)

    def told(self, commands: Sequence[Command]) -> None:
        """The commands that an event came to. Others than those that are folded were carried out in the replay, are over with the driver, or
        are seen to by a look at the storage."""
        for command in commands:
            fold = self._of_commands.get(type(command))
            if fold is not None:
                fold(command)

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

    # --- events ------------------------------------------------------------------------------------------------

    def _staged(self, event: e.ExecutionsFinished) -> None:
        if not len(event.reports.commits):
            return
        columns = event.subtasks.tolist(), event.attempts.tolist(), event.reports.tokens.tolist()
        for subtask, attempt, token, commits in zip(*columns, event.reports.commits, strict=True):
            self.commits[event.vertex, subtask, attempt, token] = commits

    def _executor(self, event: e.ExecutorChanged) -> None:
        if event.added:
            self.executors[event.executor] = event
        else:
            self.executors.pop(event.executor, None)

    def _executors(self, event: e.ExecutorsChanged) -> None:
        for change in event.changes:
            self._executor(change)

    def _loaded(self, event: e.SizesLoaded) -> None:
        rows = self._rows.get(event.dataset, {})
        for name in zip(event.partitions.tolist(), event.attempts.tolist(), strict=True):
            rows.pop(name, None)

    def _merged(self, event: e.PartitionsMerged) -> None:
        self.merges.pop(event.merge, None)
        self.merged.setdefault(event.dataset, set()).update(event.tokens.tolist())

    def _published(self, _event: e.SinksCommitted | e.SinksFailed) -> None:
        self.publishing = None

    # --- commands ----------------------------------------------------------------------------------------------

    def _set_timer(self, command: c.SetTimer) -> None:
        self._timers[command.timer] = command

    def _store_blob(self, command: c.StoreBlob) -> None:
        self._blobs[command.digest] = command

    def _drop_blobs(self, command: c.DropBlobs) -> None:
        for digest in command.digests:
            self._blobs.pop(digest, None)

    def _block(self, command: c.BlockNodes) -> None:
        self._blocked = command

    def _load(self, command: c.LoadSizes) -> None:
        names = zip(command.partitions.tolist(), command.attempts.tolist(), strict=True)
        self._rows.setdefault(command.dataset, {}).update(dict.fromkeys(names))

    def _narrow(self, command: c.NarrowSource) -> None:
        self._narrowed[command.vertex] = command

    def _merge(self, command: c.MergePartitions) -> None:
        self.merges[command.merge] = command.gate.dataset

    def _release_merged(self, command: c.ReleaseMerged) -> None:
        self.merged.get(command.dataset, set()).difference_update(command.merged.tokens.tolist())

    def _discarded(self, command: c.DiscardExecutions) -> None:
        columns = command.subtasks.tolist(), command.attempts.tolist(), command.tokens.tolist()
        for subtask, attempt, token in zip(*columns, strict=True):
            self.commits.pop((command.vertex, subtask, attempt, token), None)

    def _publish(self, command: c.CommitSinks) -> None:
        self.publishing = command

    def _status(self, command: c.JobStatusChanged) -> None:
        if command.status.is_terminal:
            self.ended = command


def as_gone(known: e.ExecutorChanged, at: float) -> e.ExecutorChanged:
    """The event that a worker which was told of is gone."""
    return replace(known, at=at, id=0, added=False, resources=None, profile=None)

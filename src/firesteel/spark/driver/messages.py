"""Messages of tasks, as the driver takes them: each once, as events with the columns that the scheduler wants.

Each comes twice, through the channel and as its task's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np

from firesteel.model.arrays import Floats
from firesteel.model.reports import decode
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.events import ExecutionReports, PartitionReports
from firesteel.spark.driver.batch import Batch
from firesteel.spark.driver.cancelling import Cancelling
from firesteel.spark.driver.postmortem import PostMortem
from firesteel.spark.driver.threads import Clock
from firesteel.spark.placement.node_names import NodeNames
from firesteel.task.executor.messages import (
    FailedMessage,
    FinishedMessages,
    PartitionColumns,
    RejectedMessage,
    Where,
    decode_many,
    decode_other,
    is_finished,
)


class TaskMessages:
    """Tells the scheduler of messages that come, in the job's thread.

    ``addressed``: the batch and the vertex by the number that messages carry. ``commits``: takes what sinks wrote, by vertex, subtask,
    attempt and token. ``feed`` tells the scheduler; ``rejected`` is told of blocked nodes, one for each execution that they rejected.
    """

    def __init__(
        self,
        addressed: Mapping[int, tuple[Batch, int]],
        cancelling: Cancelling,
        post_mortem: PostMortem,
        commits: dict[tuple[int, int, int, int], tuple[bytes, ...]],
        *,
        feed: Callable[[ev.Event], None],
        rejected: Callable[[Sequence[str]], None],
        nodes: NodeNames,
        clock: Clock,
    ) -> None:
        self._addressed, self._cancelling, self._post_mortem, self._commits = (
            addressed,
            cancelling,
            post_mortem,
            commits,
        )
        self._feed, self._rejected, self._nodes, self._clock = feed, rejected, nodes, clock
        self._deduplication = MessageDeduplication()

    def take(self, records: Sequence[bytes]) -> None:
        """In bulk; of what came before, nothing. Failures keep their place among those that have finished."""
        for finished, run in groupby(records, is_finished):
            if finished:
                self._finished(self._deduplication.fresh(decode_many(list(run))))
                continue
            fresh = [message for message in map(decode_other, run) if self._deduplication.is_fresh(message.where)]
            for message in fresh:
                if isinstance(message, FailedMessage):
                    self._failed(message)
            self._returned([message for message in fresh if isinstance(message, RejectedMessage)])

    def forget(self, batches: Iterable[int]) -> None:
        """Batches are over, with these numbers, and all that their tasks said was taken."""
        self._deduplication.forget(batches)

    def _finished(self, messages: FinishedMessages) -> None:
        """Tells the scheduler, one event per vertex."""
        batches, subtasks, attempts = (messages.column(name) for name in ("batch", "subtask", "attempt"))
        numbers: dict[int, list[int]] = {}
        for number in np.unique(batches).tolist():
            own = batches == number
            batch, vertex = self._addressed[number]
            spoken = subtasks[own].tolist()
            batch.close_all(vertex, spoken, attempts[own].tolist())
            self._cancelling.have_spoken(batch, spoken)
            numbers.setdefault(vertex, []).append(number)
        for vertex, own in numbers.items():
            part = messages if len(numbers) == 1 else messages.select(np.flatnonzero(np.isin(batches, own)).tolist())
            self._tell_finished(vertex, part)

    def _tell_finished(self, vertex: int, messages: FinishedMessages) -> None:
        subtasks, attempts = messages.column("subtask"), messages.column("attempt")
        reports = reports_of(messages, self._clock.of_walls, self._nodes.of_place)
        if len(reports.commits):
            columns = subtasks.tolist(), attempts.tolist(), reports.tokens.tolist(), reports.commits
            for subtask, attempt, token, commits in zip(*columns, strict=True):
                self._commits[vertex, subtask, attempt, token] = commits
        now = self._clock.now()
        self._feed(ev.ExecutionsFinished(at=now, vertex=vertex, subtasks=subtasks, attempts=attempts, reports=reports))

    def _failed(self, message: FailedMessage) -> None:
        where = message.where
        batch, vertex = self._addressed[where.batch]
        if batch.close((vertex, where.subtask), where.attempt):
            batch.close_task(where.subtask)
        self._cancelling.have_spoken(batch, [where.subtask])
        for event in self._post_mortem.of_message(batch, vertex, message):
            self._feed(event)

    def _returned(self, messages: Sequence[RejectedMessage]) -> None:
        """Tells the scheduler, one event per vertex and reason."""
        by_vertex: dict[tuple[int, bool], list[tuple[int, int, str]]] = {}
        for message in messages:
            where = message.where
            batch, vertex = self._addressed[where.batch]
            batch.close((vertex, where.subtask), where.attempt)
            self._cancelling.have_spoken(batch, [where.subtask])
            node = self._nodes.of_place(where.node)
            by_vertex.setdefault((vertex, message.retired), []).append((where.subtask, where.attempt, node))
        for (vertex, retired), returned in by_vertex.items():
            subtasks, attempts, nodes = zip(*returned, strict=True)
            columns = np.array([subtasks, attempts], dtype=np.int64)
            self._feed(
                ev.ExecutionsRejected(
                    at=self._clock.now(),
                    vertex=vertex,
                    subtasks=columns[0],
                    attempts=columns[1],
                    nodes=nodes,
                    retired=retired,
                )
            )
            if not retired:
                self._rejected(nodes)


class MessageDeduplication:
    """Finds the messages that are new. Remembers (number of the batch, subtask, token) until the batch is over."""

    def __init__(self) -> None:
        self._seen: dict[int, set[tuple[int, int]]] = {}

    def fresh(self, messages: FinishedMessages) -> FinishedMessages:
        """Returns the messages that were not here before; from now on they were."""
        columns = (messages.header[name].tolist() for name in ("batch", "subtask", "token"))
        new: list[int] = []
        number, seen = -1, set[tuple[int, int]]()
        for place, (batch, subtask, token) in enumerate(zip(*columns, strict=True)):
            if batch != number:
                number, seen = batch, self._seen.setdefault(batch, set())
            if (subtask, token) not in seen:
                seen.add((subtask, token))
                new.append(place)
        return messages if len(new) == len(messages) else messages.select(new)

    def is_fresh(self, where: Where) -> bool:
        """The same for one."""
        seen = self._seen.setdefault(where.batch, set())
        known = (where.subtask, where.token) in seen
        seen.add((where.subtask, where.token))
        return not known

    def forget(self, batches: Iterable[int]) -> None:
        """Forgets executions that are over, their results looked at; should one of their messages come yet, the scheduler knows it is stale."""
        for number in batches:
            self._seen.pop(number, None)


def reports_of(
    messages: FinishedMessages, of_wall: Callable[[Floats], Floats], node_of: Callable[[str], str]
) -> ExecutionReports:
    """Messages of executions of one vertex; ``of_wall`` places executors' times of day on the job's clock, ``node_of``
    names the node of a place."""
    header = messages.header
    peaks = messages.column("peak_memory")
    return ExecutionReports.of(
        messages.column("token"),
        nodes=messages.nodes(node_of),
        times=(of_wall(header["deployed_at"]), of_wall(header["running_at"]), of_wall(header["ended_at"])),
        partitions=[_partition(columns) for columns in messages.partitions()],
        commits=messages.commits(),
        rows_in=messages.column("rows_in"),
        bytes_in=messages.column("bytes_in"),
        rows_out=messages.column("rows_out"),
        peak_memory=peaks if (peaks >= 0).any() else None,
        steps=list(map(decode, messages.reports())),
    )


def _partition(told: PartitionColumns) -> PartitionReports:
    sizes, sketches = (None, told.sizes) if told.sketched else (told.sizes, None)
    return PartitionReports(told.dataset, told.bytes, told.rows, told.stored, sizes, sketches, told.heavy_keys)

"""Finished messages of tasks, as the driver takes them: each once, as the columns that the scheduler wants.

Each comes twice, through the channel and as its task's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from firesteel.model.arrays import Floats
from firesteel.model.steps.reports import decode
from firesteel.scheduler.kernel.events import ExecutionReports, PartitionReports
from firesteel.task.executor.messages import FinishedMessages, PartitionColumns, Where


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

"""Finished messages as the columns that the scheduler takes them in."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.model.arrays import Floats
from firesteel.scheduler.kernel.events import ExecutionReports, PartitionReports
from firesteel.task.executor.messages import FinishedMessages, PartitionColumns


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
    )


def _partition(told: PartitionColumns) -> PartitionReports:
    sizes, sketches = (None, told.sizes) if told.sketched else (told.sizes, None)
    return PartitionReports(told.dataset, told.bytes, told.rows, told.stored, sizes, sketches)

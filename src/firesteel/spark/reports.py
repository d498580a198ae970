"""Finished messages as the columns that the scheduler takes them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firesteel.scheduler.events import ExecutionReports, Floats, PartitionReports
from firesteel.spark.messages import FinishedMessage


def reports_of(messages: Sequence[FinishedMessage], of_wall: Callable[[float], float]) -> ExecutionReports:
    """Messages of executions of one vertex; ``of_wall`` places an executor's time of day on the job's clock."""
    where = [message.where for message in messages]

    def on_clock(times: Sequence[float]) -> Floats:
        return np.array([of_wall(seconds) for seconds in times], np.float64)

    return ExecutionReports.of(
        np.array([w.token for w in where], np.int64),
        nodes=[w.node for w in where],
        times=(
            on_clock([w.deployed_at for w in where]),
            on_clock([w.running_at for w in where]),
            on_clock([w.ended_at for w in where]),
        ),
        partitions=[_partitions(messages, place) for place in range(len(messages[0].partitions))],
        commits=[message.commits for message in messages] if messages[0].commits else (),
        rows_in=np.array([message.rows_in for message in messages], np.int64),
        bytes_in=np.array([message.bytes_in for message in messages], np.int64),
        rows_out=np.array([message.rows_out for message in messages], np.int64),
    )


def _partitions(messages: Sequence[FinishedMessage], place: int) -> PartitionReports:
    columns = list(zip(*(message.partitions[place] for message in messages), strict=True))
    dataset, total, packed, rows, stored = columns
    sizes = None if packed[0] is None else packed
    return PartitionReports(
        dataset[0], np.array(total, np.int64), np.array(rows, np.int64), np.array(stored, np.int64), sizes
    )

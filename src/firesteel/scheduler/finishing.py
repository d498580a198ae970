"""The commonest event by far, in scalars: one execution has finished as it should.

Numpy takes a microsecond for each look at an array of one, so the general way costs ten times more for one execution
than for a hundred. What is done is the same, and so are the records; whatever is out of the ordinary goes that way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firesteel.scheduler.events import ExecutionsFinished, Ints, PartitionReports
from firesteel.scheduler.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.executions import NO_ROW, ExecutionTable
from firesteel.scheduler.groups import EdgeGroups
from firesteel.scheduler.recorder import Recorder
from firesteel.scheduler.records import StateChange
from firesteel.scheduler.slots import ExecutionSlotAllocator
from firesteel.scheduler.states import IS_DEPLOYED, SAME_SECONDS, ExecutionState
from firesteel.sizes import counts_of

_DEPLOYED: list[bool] = IS_DEPLOYED.tolist()
_SCHEDULED, _DEPLOYING = int(ExecutionState.SCHEDULED), int(ExecutionState.DEPLOYING)
_RUNNING, _FINISHED = int(ExecutionState.RUNNING), int(ExecutionState.FINISHED)


class SingleFinish:
    """Takes in the only current execution of one subtask."""

    def __init__(
        self,
        graph: DefaultExecutionGraph,
        allocator: ExecutionSlotAllocator,
        recorder: Recorder,
        on_partitions_available: Callable[[list[tuple[EdgeGroups, Ints]]], None],
    ) -> None:
        self._graph = graph
        self._table: ExecutionTable = graph.executions
        self._allocator = allocator
        self._recorder = recorder
        self._on_partitions_available = on_partitions_available

    def admit(self, event: ExecutionsFinished) -> bool:
        """False, and nothing is changed: this one is not so simple."""
        vertex, subtask = self._graph.vertices[event.vertex], int(event.subtasks[0])
        row = self._simple(vertex, subtask, int(event.attempts[0]))
        if row == NO_ROW:
            return False
        results = self._graph.outputs(vertex)
        reports = event.reports
        if len(reports.partitions) != len(results):
            return False
        for result, partition in zip(results, reports.partitions, strict=True):
            if not _is_about(partition, result):
                return False
        self._finish(vertex, row, event)
        vertex.winner[subtask] = row
        vertex.num_finished += 1
        vertex.innocent[subtask] = 0
        vertex.io[0, subtask] = reports.rows_in[0]
        vertex.io[1, subtask] = reports.rows_out[0]
        vertex.io[2, subtask] = reports.bytes_in[0]
        if len(reports.commits):
            vertex.commits[subtask] = reports.commits[0]
        for result, partition in zip(results, reports.partitions, strict=True):
            result.info.record_one(subtask, partition)
            complete = result.admit_one(subtask, event.attempts[0], reports.tokens[0])
            if complete:
                self._on_partitions_available(complete)
        return True

    def _simple(self, vertex: ExecutionJobVertex, subtask: int, attempt: int) -> int:
        """The row of this attempt if it is deployed, and the subtask has no other; else NO_ROW."""
        if not 0 <= subtask < vertex.parallelism or vertex.winner[subtask] != NO_ROW:
            return NO_ROW
        row, table = int(vertex.newest[subtask]), self._table
        alone = table.attempt[row] == attempt and table.opens[row] and _DEPLOYED[table.state[row]]
        return row if alone else NO_ROW

    def _finish(self, vertex: ExecutionJobVertex, row: int, event: ExecutionsFinished) -> None:
        """To FINISHED, by way of whatever states nobody reported."""
        table, reports, now = self._table, event.reports, self._recorder.at
        if reports.nodes is not None:
            table.set_nodes(np.array([row]), reports.nodes)
        stamps, token = table.stamps, int(reports.tokens[0])
        source = table.state[row]
        deployed, running = float(reports.deployed_at[0]), float(reports.running_at[0])
        finished = float(reports.finished_at[0])
        if finished <= 0:
            finished = now
        if deployed > 0 or source == _SCHEDULED:
            stamps[_DEPLOYING, row] = deployed if deployed > 0 else now
        if running > 0 or source != _RUNNING:
            stamps[_RUNNING, row] = running if running > 0 else now
        stamps[_FINISHED, row] = finished
        table.token[row] = token
        table.state[row] = _FINISHED
        table.counts[source] -= 1
        table.counts[_FINISHED] += 1
        self._record(vertex.id, row, event)
        self._allocator.cancel(vertex.newest[event.subtasks])

    def _record(self, vertex: int, row: int, event: ExecutionsFinished) -> None:
        table, recorder = self._table, self._recorder
        stamps, node = table.stamps, table.node_name(row)
        finished = float(stamps[_FINISHED, row])
        recorder.record(
            StateChange(
                at=recorder.at,
                event=recorder.event,
                vertex=vertex,
                state="FINISHED",
                subtasks=event.subtasks.tolist(),
                attempts=event.attempts.tolist(),
                hosts=[node] if node else [],
                nodes=[0] if node else [],
                times=[] if abs(finished - recorder.at) <= SAME_SECONDS else [round(finished, 4)],
                deployed=[round(float(stamps[_DEPLOYING, row]), 4)],
                running=[round(float(stamps[_RUNNING, row]), 4)],
                tokens=[int(table.token[row])],
            )
        )
        recorder.tell(vertex, "-> FINISHED", event.subtasks, event.attempts)


def _is_about(partition: PartitionReports, result: IntermediateResult) -> bool:
    if partition.dataset != result.dataset.id:
        return False
    return partition.sizes is None or int(counts_of(partition.sizes)[0]) == result.num_subpartitions

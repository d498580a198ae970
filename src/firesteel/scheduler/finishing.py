"""The commonest event by far, in scalars: one execution has finished as it should.

Numpy takes a microsecond for each look at an array of one, so the general way costs ten times more for one execution
than for a hundred. What is done is the same, and so are the records; whatever is out of the ordinary goes that way.
"""

from __future__ import annotations

from collections.abc import Callable

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.events import ExecutionsFinished, PartitionReports
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import StateChange
from firesteel.scheduler.kernel.states import IS_DEPLOYED, SAME_SECONDS, ExecutionState
from firesteel.scheduler.slots.allocators import ExecutionSlotAllocator
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW, ExecutionTable
from firesteel.scheduler.topology.groups import EdgeGroups
from firesteel.scheduler.topology.step_counts import only_counts

_IS_DEPLOYED: list[bool] = IS_DEPLOYED.tolist()
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
        vertex, subtask, attempt = self._graph.vertices[event.vertex], event.subtasks.item(), event.attempts.item()
        row = self._simple(vertex, subtask, attempt)
        if row == NO_ROW:
            return False
        reports, results = event.reports, vertex.blocking_results
        steps = reports.steps
        if len(steps) and not only_counts(steps[0]):
            return False
        if len(reports.partitions) != len(results) or not all(map(_is_about, reports.partitions, results)):
            return False
        self._finish(vertex, row, event)
        vertex.winner[subtask] = row
        vertex.num_finished += 1
        if vertex.uncounted is not None:
            vertex.uncounted[subtask] = 0
        vertex.count_one(subtask, reports)
        if len(steps):
            vertex.step_counts.admit(event.subtasks, steps)
        if len(reports.commits):
            vertex.commits[subtask] = reports.commits[0]
        token = reports.tokens.item()
        for place, result in enumerate(results):
            result.info.record_one(subtask, attempt, reports.partitions[place])
            complete = result.admit_one(subtask, attempt, token)
            if complete:
                self._on_partitions_available(complete)
        return True

    def _simple(self, vertex: ExecutionJobVertex, subtask: int, attempt: int) -> int:
        """The row of this attempt if it is deployed, and the subtask has no other; else NO_ROW."""
        if not 0 <= subtask < vertex.parallelism or vertex.winner.item(subtask) != NO_ROW:
            return NO_ROW
        row, table = vertex.newest.item(subtask), self._table
        if table.attempt.item(row) != attempt or not table.opens.item(row):
            return NO_ROW
        return row if _IS_DEPLOYED[table.state.item(row)] else NO_ROW

    def _finish(self, vertex: ExecutionJobVertex, row: int, event: ExecutionsFinished) -> None:
        """To FINISHED, by way of whatever states nobody reported."""
        table, reports, now = self._table, event.reports, self._recorder.at
        if reports.nodes is not None:
            table.set_nodes(vertex.newest[event.subtasks], reports.nodes)
        source = table.state.item(row)
        deployed, running = reports.deployed_at.item(), reports.running_at.item()
        finished = reports.finished_at.item()
        stamps = table.stamps
        launched = stamps[_DEPLOYING].item(row)  # nan: nobody saw it
        if source == _SCHEDULED or 0 < deployed < launched:
            launched = deployed if deployed > 0 else now
            stamps[_DEPLOYING].put(row, launched)
        if running > 0 or source != _RUNNING:
            running = running if running > 0 else now
            stamps[_RUNNING].put(row, running)
        else:
            running = stamps[_RUNNING].item(row)
        if finished <= 0:
            finished = now
        stamps[_FINISHED].put(row, finished)
        table.token.put(row, reports.tokens.item())
        table.state[row] = _FINISHED
        table.counts[source] -= 1
        table.counts[_FINISHED] += 1
        self._record(vertex.id, row, event, (launched, running, finished))
        self._allocator.cancel(vertex.newest[event.subtasks])

    def _record(self, vertex: int, row: int, event: ExecutionsFinished, times: tuple[float, float, float]) -> None:
        """``times``: when it was launched, ran, and finished."""
        table, recorder = self._table, self._recorder
        launched, running, finished = times
        node = table.node_name(row)
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
                times=[] if abs(finished - recorder.at) <= SAME_SECONDS else [_rounded(finished)],
                deployed=[_rounded(launched)],
                running=[_rounded(running)],
                tokens=event.reports.tokens.tolist(),
                peaks=event.reports.peaks(),
            )
        )
        recorder.tell(f"-> FINISHED on {node}" if node else "-> FINISHED", vertex, event.subtasks, event.attempts)


def _rounded(seconds: float) -> float:
    """As numpy rounds to four digits, which is faster than Python's own way."""
    return round(seconds * 1e4) / 1e4


def _is_about(partition: PartitionReports, result: IntermediateResult) -> bool:
    return partition.dataset == result.dataset.id and result.info.misreported(partition) is None

"""Mirrors slow executions on other nodes (Flink: DefaultSpeculativeExecutionHandler)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from firesteel.humanize import format_seconds
from firesteel.model.arrays import Ints, distinct
from firesteel.options import BLOCK_SLOW_NODE_DURATION, MAX_CONCURRENT_EXECUTIONS
from firesteel.scheduler.deployment.readiness import has_inputs
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.decisions import Slow, Won
from firesteel.scheduler.kernel.events import Event, ExecutionsDeploying, ExecutorChanged, NodeBlocked
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.kernel.waits import ForSlot, Subtasks, Wait
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.speculation.execution_times import SlowTasks
from firesteel.scheduler.speculation.rejected_deployments import RejectedDeployments
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Execution, Rows, in_passes

TIMER = "slow-task-detector"
S = ExecutionState


class Mirrors(Policy):
    answers: ClassVar[Mapping[type[Event], str]] = {NodeBlocked: "node_blocked"}

    def __init__(self, job: Job, detector: SlowTaskDetector | None = None) -> None:
        """``detector``: None: as the options say. Raises UsageError or OptionFunctionError for a strategy that cannot be had."""
        self._limit = job.options[MAX_CONCURRENT_EXECUTIONS]
        self._block_seconds = job.options[BLOCK_SLOW_NODE_DURATION]
        self._detector = detector or SlowTaskDetector(job.options, job.graph, job.side_inputs)
        self._job = job
        self._graph = job.graph
        self._table = job.executions
        self._recorder = job.recorder
        self._joined = JoinedExecutions(job, self._place)
        self._rejected = RejectedDeployments(job, self._joined.add)
        self._slow: Rows = np.empty(0, np.int64)
        self._refused: set[int] = set()
        """Slow rows of which it is on record that they get no mirror."""
        numbers = job.metrics.job
        numbers.gauge("numSlowExecutionVertices", self._num_slow)
        self._num_effective = numbers.counter("numEffectiveSpeculativeExecutions")
        numbers.gauge("numBlockedNodes", lambda: len(job.blocklist.entries))

    def started(self) -> None:
        self._job.timers.set(TIMER, self._recorder.at + self._detector.interval, self._check)

    # --- slow executions ---------------------------------------------------------------------------------------

    def _check(self) -> None:
        self.started()
        slow = self._detector.slow_tasks(self._recorder.at)
        self._slow = np.concatenate([tasks.rows for tasks in slow]) if slow else np.empty(0, np.int64)
        if self._block_seconds:
            for tasks in slow:
                self._block(tasks)
        for tasks in slow:
            self._mirror(tasks)

    def _block(self, tasks: SlowTasks) -> None:
        """Nodes of which it is told at each check stay blocked until some time after the last."""
        nodes = self._table.node[tasks.rows].astype(np.int64)
        for number in distinct(nodes).tolist():
            place = int(np.argmax(nodes == number))
            node = self._table.node_named(number)
            if node:
                cause = f"{self._who(tasks, place)} has taken {format_seconds(float(tasks.elapsed[place]))} there"
                self._job.blocklist.block(node, f"{cause}, {tasks.reason}", self._recorder.at + self._block_seconds)

    def _mirror(self, tasks: SlowTasks) -> None:
        """Mirrors until each of the subtasks has as many current executions as it may have."""
        vertex = self._graph.vertices[tasks.vertex]
        if not (vertex.job.speculative and vertex.job.supports_concurrent_attempts):
            self._refuse(vertex, tasks)
            return
        rows = tasks.rows[IS_DEPLOYED[self._table.state[tasks.rows]]]
        subtasks = distinct(self._table.index[rows].astype(np.int64))
        room = self._limit - vertex.num_current(subtasks)
        made: list[Rows] = []
        while (room > 0).any():
            made.append(vertex.create_new_speculative_executions(subtasks[room > 0], self._recorder.at))
            self._joined.add(vertex, made[-1], "a mirror of a slow one")
            room -= 1
        if made:
            mirrors = np.concatenate(made)
            place = int(np.argmax(self._table.index[tasks.rows] == self._table.index[mirrors[0]]))
            self._decide(vertex, tasks, mirrors.tolist(), place, tasks.reason)

    def _refuse(self, vertex: ExecutionJobVertex, tasks: SlowTasks) -> None:
        new = [place for place, row in enumerate(tasks.rows.tolist()) if row not in self._refused]
        if new:
            self._refused.update(tasks.rows.tolist())
            why = vertex.job.not_mirrored or "its step forbids it"
            self._decide(vertex, tasks, [], new[0], why)

    def _decide(self, vertex: ExecutionJobVertex, tasks: SlowTasks, mirrors: list[int], place: int, why: str) -> None:
        """``place``: of the slow execution that is named."""
        rows = tasks.rows
        self._recorder.decision(
            "speculation",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs=Slow(
                subtasks=self._table.index[rows].tolist(),
                attempts=self._table.attempt[rows].tolist(),
                nodes=[self._table.node_name(row) for row in rows.tolist()],
                elapsed=tasks.elapsed.round(3).tolist(),
                baseline=tasks.baseline.round(3).tolist(),
                limit=self._limit,
                place=place,
                taken=float(tasks.elapsed[place]),
                why=why,
            ),
            rule=tasks.rule,
            result=[[int(self._table.index[row]), int(self._table.attempt[row])] for row in mirrors],
        )

    def _who(self, tasks: SlowTasks, place: int) -> str:
        row = Execution(self._table, int(tasks.rows[place]))
        return f"attempt {row.attempt + 1} of subtask {row.index} of '{self._graph.vertices[tasks.vertex].job.name}'"

    # --- where and when they run -------------------------------------------------------------------------------

    def placement(self, option: ExecutionDeploymentOption) -> Placement:
        """Returns a placement in which restarted executions are urgent, as they were waited for long enough; first ones go in their turn."""
        again = bool((self._table.attempt[option.executions] > 0).all())
        return self._rejected.placement(option.executions, urgent=again)

    def _place(self, rows: Rows, stay: bool) -> Placement:
        return self._rejected.placement(rows, urgent=True, stay=stay)

    def ask(self) -> None:
        if self._job.joined:
            self._joined.ask()

    def executors_changed(self, changes: Sequence[ExecutorChanged]) -> None:
        self._job.blocklist.nodes_changed()

    def node_blocked(self, event: NodeBlocked) -> None:
        self._job.blocklist.take_over(event)

    def launched(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None:
        self._rejected.launched(vertex, rows)

    def rejected(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None:
        self._rejected.rejected(vertex, rows, nodes)

    def replaced(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> bool:
        self._joined.add(vertex, vertex.replace_executions(rows, self._recorder.at), cause)
        return True

    def waiting_for(self) -> list[Wait]:
        return [*self._joined.waiting_for(), *self._job.blocklist.waiting_for()]

    # --- the end of a race -------------------------------------------------------------------------------------

    def finished(self, vertex: ExecutionJobVertex, subtasks: Ints, rows: Rows) -> None:
        self._rejected.heard_of(vertex, rows)
        if not vertex.has_several:
            return
        self._num_effective.inc(int(self._table.mirror[rows].sum()))
        joined = ~self._table.opens[vertex.newest[self._table.index[rows]]]
        for row in rows[joined].tolist():
            others = vertex.deployed_rows(np.array([self._table.index[row]], np.int64))
            if len(others):
                self._decide_winner(vertex, Execution(self._table, row), others)

    def _decide_winner(self, vertex: ExecutionJobVertex, winner: Execution, others: Rows) -> None:
        losers = [Execution(self._table, row) for row in np.sort(others).tolist()]
        self._recorder.decision(
            "winner",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs=Won(
                subtask=winner.index,
                attempts=[winner.attempt, *(loser.attempt for loser in losers)],
                nodes=[winner.node, *(loser.node for loser in losers)],
                mirror=winner.is_mirror,
                mirrors=[winner.is_mirror, *(loser.is_mirror for loser in losers)],
                taken=[self._taken(loser) for loser in losers],
            ),
            rule="first valid commit wins",
            result=winner.attempt,
        )

    def _taken(self, loser: Execution) -> float | None:
        since = loser.entered(S.DEPLOYING)
        return None if since is None else max(0.0, self._recorder.at - since)

    # --- numbers -----------------------------------------------------------------------------------------------

    def _num_slow(self) -> int:
        rows = self._slow[IS_DEPLOYED[self._table.state[self._slow]]]
        return len(distinct(self._table.vertex[rows].astype(np.int64) << 32 | self._table.index[rows]))


Place = Callable[[Rows, bool], Placement]
"""The placement of executions; the second value tells whether they stay wherever Spark starts them."""


class JoinedExecutions:
    """Those that wait are the job's (``Job.joined``)."""

    def __init__(self, job: Job, place: Place) -> None:
        self._job = job
        self._graph = job.graph
        self._table = job.executions
        self._place = place

    def add(self, vertex: ExecutionJobVertex, rows: Rows, cause: str, stay: bool = False) -> None:
        """Takes executions that were just created."""
        if len(rows):
            self._job.created(vertex, rows, cause)
            self._wait(vertex.id, rows, stay)

    def ask(self) -> None:
        """Deploy those whose inputs can be read and that get slots; the others are looked at again with each event."""
        waiting, self._job.joined = self._job.joined, {}
        for number, stay in sorted(waiting):
            vertex, rows = self._graph.vertices[number], self._left(waiting[number, stay])
            able = has_inputs(self._graph, vertex, self._table.index[rows].astype(np.int64))
            for part in in_passes(self._table, rows[able]):
                option = ExecutionDeploymentOption(number, self._table.index[part].astype(np.int64), part)
                placement = self._place(part, stay)
                granted = self._job.slots.allocate_slots_for(option)
                if len(granted.executions):
                    self._job.recorder.emit(self._job.deploy(granted, placement))
            self._wait(number, self._left(rows), stay)

    def waiting_for(self) -> list[Wait]:
        waits: list[Wait] = []
        for number, stay in sorted(self._job.joined):
            rows = self._left(self._job.joined[number, stay])
            if len(rows):
                subtasks = Subtasks.of(distinct(self._table.index[rows].astype(np.int64)))
                waits.append(ForSlot(number, subtasks, joined=True))
        return waits

    def _wait(self, vertex: int, rows: Rows, stay: bool) -> None:
        if len(rows):
            before = self._job.joined.get((vertex, stay))
            self._job.joined[vertex, stay] = rows if before is None else np.concatenate((before, rows))

    def _left(self, rows: Rows) -> Rows:
        """Returns the executions that were neither dropped nor deployed."""
        return rows[self._table.state[rows] == ExecutionState.CREATED]

"""Mirrors slow executions on other nodes (Flink: DefaultSpeculativeExecutionHandler)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firesteel.humanize import format_seconds
from firesteel.model.arrays import distinct
from firesteel.options import BLOCK_SLOW_NODE_DURATION, MAX_CONCURRENT_EXECUTIONS, Options
from firesteel.scheduler.deployment.deployer import ExecutionDeployer
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.failover.rejected_deployments import RejectedDeployments
from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.events import NodeBlocked
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.speculation.blocklist import Blocklist
from firesteel.scheduler.speculation.detector import SlowTaskDetector, SlowTasks
from firesteel.scheduler.speculation.handler import NoSpeculation, SpeculativeExecutionHandler
from firesteel.scheduler.speculation.joined_executions import JoinedExecutions
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Execution, Rows
from firesteel.scheduler.topology.operations import ExecutionOperations

S = ExecutionState


class DefaultSpeculativeExecutionHandler:
    """Listens to the slow task detector: blocks the nodes of slow executions, and makes mirrors up to the limit."""

    def __init__(
        self,
        options: Options,
        detector: SlowTaskDetector,
        operations: ExecutionOperations,
        recorder: Recorder,
        timers: Timers,
        *,
        deployer: ExecutionDeployer,
        readiness: Readiness,
        blocklist: Blocklist,
        metrics: Metrics,
    ) -> None:
        self._limit = options[MAX_CONCURRENT_EXECUTIONS]
        self._block_seconds = options[BLOCK_SLOW_NODE_DURATION]
        self._detector = detector
        self._graph = operations.graph
        self._table = operations.graph.executions
        self._recorder = recorder
        self._timers = timers
        self.blocklist = blocklist
        self._joined = JoinedExecutions(operations, deployer, readiness, self._place)
        self._rejected = RejectedDeployments(
            options, operations, recorder, timers, blocklist=blocklist, joined=self._joined.add
        )
        self._slow: Rows = np.empty(0, np.int64)
        self._refused: set[int] = set()
        """Slow rows of which it is on record that they get no mirror."""
        metrics.job.gauge("numSlowExecutionVertices", self._num_slow)
        self._num_effective = metrics.job.counter("numEffectiveSpeculativeExecutions")
        metrics.job.gauge("numBlockedNodes", lambda: len(self.blocklist.entries))

    def start(self) -> None:
        self._detector.start(self._graph, self, self._set_timer, self._recorder.at)

    def stop(self) -> None:
        self._detector.stop()

    def _set_timer(self, timer: str, at: float) -> None:
        self._timers.set(timer, at, lambda: self._detector.timer_fired(timer, self._recorder.at))

    # --- slow executions ---------------------------------------------------------------------------------------

    def notify_slow_tasks(self, slow: Sequence[SlowTasks]) -> None:
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
                self.blocklist.block(node, f"{cause}, {tasks.reason}", self._recorder.at + self._block_seconds)

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
            self._decide_mirrors(vertex, tasks, np.concatenate(made))

    def _refuse(self, vertex: ExecutionJobVertex, tasks: SlowTasks) -> None:
        new = [place for place, row in enumerate(tasks.rows.tolist()) if row not in self._refused]
        if new:
            self._refused.update(tasks.rows.tolist())
            why = vertex.job.not_mirrored or "its step forbids it"
            self._decide(vertex, tasks, [], f"{self._who(tasks, new[0])} is slow and gets no mirror: {why}")

    def _decide_mirrors(self, vertex: ExecutionJobVertex, tasks: SlowTasks, mirrors: Rows) -> None:
        place = int(np.argmax(self._table.index[tasks.rows] == self._table.index[mirrors[0]]))
        taken = format_seconds(float(tasks.elapsed[place]))
        node = self._table.node_name(int(tasks.rows[place]))
        there = f" on {node}" if node else ""
        others = f", and {len(mirrors) - 1} more" if len(mirrors) > 1 else ""
        first = f"attempt {self._table.attempt[mirrors[0]] + 1} is made beside it{others}"
        reason = f"{self._who(tasks, place)} has taken {taken}{there}, {tasks.reason}: {first}"
        self._decide(vertex, tasks, mirrors.tolist(), reason)

    def _decide(self, vertex: ExecutionJobVertex, tasks: SlowTasks, mirrors: list[int], reason: str) -> None:
        rows = tasks.rows
        self._recorder.decision(
            "speculation",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs={
                "subtasks": self._table.index[rows].tolist(),
                "attempts": self._table.attempt[rows].tolist(),
                "nodes": [self._table.node_name(row) for row in rows.tolist()],
                "elapsed": tasks.elapsed.round(3).tolist(),
                "baseline": tasks.baseline.round(3).tolist(),
                "limit": self._limit,
            },
            rule=tasks.rule,
            result=[[int(self._table.index[row]), int(self._table.attempt[row])] for row in mirrors],
            reason=reason,
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

    def schedule(self) -> None:
        if self._joined:
            self._joined.schedule()

    @property
    def has_candidates(self) -> bool:
        return bool(self._joined)

    @property
    def candidates(self) -> Sequence[int]:
        return self._joined.rows

    @property
    def avoided(self) -> tuple[str, ...]:
        return self.blocklist.avoided

    def nodes_changed(self) -> None:
        self.blocklist.nodes_changed()

    def node_blocked(self, event: NodeBlocked) -> None:
        self.blocklist.take_over(event)

    def launched(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        self._rejected.launched(vertex, rows)

    def rejected(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None:
        self._rejected.rejected(vertex, rows, nodes)

    def replaced(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> bool:
        self._joined.add(vertex, vertex.replace_executions(rows, self._recorder.at), cause)
        return True

    def waiting_for(self) -> list[str]:
        return [*self._joined.waiting_for(), *self.blocklist.waiting_for()]

    # --- the end of a race -------------------------------------------------------------------------------------

    def finished(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
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
        beaten = ", ".join(f"{_attempt(loser)} {self._progress(loser)}" for loser in losers)
        self._recorder.decision(
            "winner",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs={
                "subtask": winner.index,
                "attempts": [winner.attempt, *(loser.attempt for loser in losers)],
                "nodes": [winner.node, *(loser.node for loser in losers)],
                "mirror": winner.is_mirror,
            },
            rule="first valid commit wins",
            result=winner.attempt,
            reason=f"{_attempt(winner)} of subtask {winner.index} of '{vertex.job.name}' finished first; {beaten}",
        )

    def _progress(self, loser: Execution) -> str:
        since = loser.entered(S.DEPLOYING)
        if since is None:
            return "was queued"
        return f"had taken {format_seconds(max(0.0, self._recorder.at - since))}"

    # --- numbers -----------------------------------------------------------------------------------------------

    def _num_slow(self) -> int:
        rows = self._slow[IS_DEPLOYED[self._table.state[self._slow]]]
        return len(distinct(self._table.vertex[rows].astype(np.int64) << 32 | self._table.index[rows]))


def _attempt(execution: Execution) -> str:
    mirror = "a mirror" if execution.is_mirror else ""
    on = f"on {execution.node}" if execution.node else ""
    inside = ", ".join(part for part in (mirror, on) if part)
    return f"attempt {execution.attempt + 1}{f' ({inside})' if inside else ''}"


def speculative_execution_handler(
    detector: SlowTaskDetector | None,
    options: Options,
    operations: ExecutionOperations,
    recorder: Recorder,
    timers: Timers,
    *,
    deployer: ExecutionDeployer,
    readiness: Readiness,
    blocklist: Blocklist,
    metrics: Metrics,
) -> SpeculativeExecutionHandler:
    """``detector``: None: nobody tells of slow executions, so there are no mirrors."""
    if detector is None:
        return NoSpeculation()
    return DefaultSpeculativeExecutionHandler(
        options,
        detector,
        operations,
        recorder,
        timers,
        deployer=deployer,
        readiness=readiness,
        blocklist=blocklist,
        metrics=metrics,
    )

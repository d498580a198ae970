"""Executions that Spark started on a blocked node: they are rejected there, or say nothing, and are replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from firesteel.humanize import format_seconds
from firesteel.model.arrays import Ints
from firesteel.options import MAX_REJECTIONS
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.decisions import BlockedUse, OnBlockedNode, RejectedOften
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows, in_passes
from firesteel.scheduler.topology.groups import Mask

S = ExecutionState
SILENT_SECONDS = 2.0
"""An execution that was launched on a blocked node is rejected at once; one that says nothing for so long is on
a node that stands still."""
TOLD_SECONDS = 2.0
"""By then what is launched knows which nodes are blocked: telling takes time, and where it is dear to ask, a worker asks
seldom (``spark.blocklist``)."""

Joined = Callable[[ExecutionJobVertex, Rows, str, bool], None]
"""Is given new executions of a vertex, why they are there, and whether they stay wherever Spark starts them."""


class RejectedDeployments:
    def __init__(self, job: Job, joined: Joined) -> None:
        """``joined`` sees to it that what is given to it is deployed."""
        self._limit = job.options[MAX_REJECTIONS]
        self._job = job
        self._table = job.executions
        self._recorder = job.recorder
        self._blocklist = job.blocklist
        self._joined = joined
        self._in_row: dict[int, NDArray[np.int32]] = {}
        """By vertex: how many executions of each subtask were rejected in a row."""
        self._staying: Mask = np.zeros(0, np.bool_)
        """By row: deployed to run wherever it is started."""
        self._waits = 0
        self._told: set[int] = set()
        """Rows of which it is on record that they run on a blocked node."""

    def placement(self, rows: Rows, *, urgent: bool, stay: bool = False) -> Placement:
        """Of executions that are deployed now. ``stay``: wherever Spark starts them."""
        may_reject = not (stay or self._blocklist.is_all or self._limit == 0)
        if not may_reject:
            self._stay(rows)
        return Placement(self._blocklist.avoided, urgent, may_reject)

    def launched(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        if vertex.id in self._in_row:
            self.heard_of(vertex, rows[self._table.state[rows] == S.RUNNING])
        if not self._blocklist.entries:
            return
        there = rows[self._on_blocked(rows)]
        # While blocked nodes are used again nobody rejects, so nobody's silence tells of anything.
        silent = (self._table.state[there] == S.DEPLOYING) & ~self._stays(there) & self._on_avoided(there)
        self._tell_of_use(vertex, there[~silent])
        if silent.any() and vertex.job.supports_concurrent_attempts:
            self._waits += 1
            until, quiet = self._recorder.at + SILENT_SECONDS, there[silent]
            self._job.timers.set(f"silent-{self._waits}", until, lambda: self._give_up(vertex, quiet))

    def heard_of(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """Notes executions that have begun their programs, or finished."""
        if vertex.id in self._in_row:
            self._in_row[vertex.id][self._table.index[rows]] = 0

    def rejected(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None:
        """They are replaced; after too many in a row the next one stays."""
        cause = f"in the place of one that {_named({*nodes} - {''})} rejected"
        for part in in_passes(self._table, rows):
            subtasks = self._table.index[part].astype(np.int64)
            in_row = self._in_row.setdefault(vertex.id, np.zeros(vertex.parallelism, np.int32))
            in_row[subtasks] += 1
            stay = in_row[subtasks] >= self._limit
            new = vertex.replace_executions(part, self._recorder.at)
            self._joined(vertex, new[stay], cause, True)
            self._joined(vertex, new[~stay], cause, False)
            if stay.any():
                self._decide_stay(vertex, subtasks[stay])

    def _give_up(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """Cancels and replaces the executions that were launched on a blocked node and have still not reported."""
        rows = rows[self._table.state[rows] == S.DEPLOYING]
        rows = rows[self._on_avoided(rows)]
        where = _named({self._table.node_name(row) for row in rows.tolist()})
        why = f"nothing heard from it for {format_seconds(SILENT_SECONDS)} since it was launched on {where}"
        self._job.cancel(vertex, rows, why)
        # They do not count as rejected: nothing ever runs on a node that stands still.
        for part in in_passes(self._table, rows):
            new = vertex.replace_executions(part, self._recorder.at)
            self._joined(vertex, new, f"in the place of one that {where} does not report", False)

    def _on_blocked(self, rows: Rows) -> Mask:
        """Returns a mask of these rows: True for those launched on a node that was blocked by then, and still is."""
        return self._launched_on(rows, {entry.node: entry.start for entry in self._blocklist.entries.values()})

    def _on_avoided(self, rows: Rows) -> Mask:
        """Returns a mask of the executions that could know that they should be rejected."""
        since = self._blocklist.avoided_since
        return self._launched_on(rows, {node: start + TOLD_SECONDS for node, start in since.items()})

    def _launched_on(self, rows: Rows, since: Mapping[str, float]) -> Mask:
        table, found = self._table, np.zeros(len(rows), np.bool_)
        launched = table.times(S.DEPLOYING, rows)
        for node, start in since.items():
            found |= (table.node[rows] == table.node_number(node)) & (launched >= start)
        return found

    def _stay(self, rows: Rows) -> None:
        size = int(rows.max()) + 1
        if size > len(self._staying):
            self._staying = np.concatenate((self._staying, np.zeros(size, np.bool_)))
        self._staying[rows] = True

    def _stays(self, rows: Rows) -> Mask:
        stays = np.zeros(len(rows), np.bool_)
        known = rows < len(self._staying)
        stays[known] = self._staying[rows[known]]
        return stays

    def _decide_stay(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        self._recorder.decision(
            "placement",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs=RejectedOften(subtasks=subtasks.tolist(), rejections=self._limit),
            rule=MAX_REJECTIONS.key,
            result="anywhere",
        )

    def _tell_of_use(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """It has to be on record that executions run on a blocked node, and why."""
        rows = np.array([row for row in rows.tolist() if row not in self._told], np.int64)
        if not len(rows):
            return
        self._told.update(rows.tolist())
        subtasks, attempts = self._job.names(rows)
        nodes = sorted({self._table.node_name(row) for row in rows.tolist()})
        why = BlockedUse.REJECTED_OFTEN if self._stays(rows).all() else BlockedUse.BEGAN_BEFORE
        if self._blocklist.is_all:
            why = BlockedUse.NO_OTHER
        self._recorder.decision(
            "placement",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs=OnBlockedNode(subtasks=subtasks.tolist(), attempts=attempts.tolist(), nodes=nodes, why=why),
            rule="a blocked node is used when nothing else exists",
            result="runs on a blocked node",
        )


def _named(nodes: set[str]) -> str:
    return f"blocked node {min(nodes)}" if len(nodes) == 1 else "a blocked node"

"""Executions end, and the scheduler is told what became of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Floats, Ints
from firesteel.model.sizes import is_measured
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster.launching import LAUNCH_SECONDS
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.plane import Plane
from firesteel.simulation.workload import PackedSizes

STORED_SHARE = 0.4
"""Stored bytes per plain byte."""
EVENT_SIZE = 1 << 16
"""At most so many executions are in one event. A million in one event need twice the memory."""


class Ending:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._ended: tuple[Ints, Floats] = np.empty(0, np.int64), np.empty(0)
        """Executions that have just ended, ascending, and when."""

    def tell_of_ends(self) -> None:
        plane = self._plane
        slots = plane.cluster.due(plane.clock.now)
        if not len(slots):
            return
        ended = plane.cluster.ends[slots]
        rows = plane.cluster.vacate(slots)
        self.ended_at(rows, ended)
        self.end(rows)
        for group in plane.by_vertex(rows):
            size, ordered = (1, group) if plane.world.one_by_one else (EVENT_SIZE, np.sort(group))
            for first in range(0, len(ordered), size):
                self._tell_of(ordered[first : first + size])
        plane.runs.forget(rows)

    def ended_at(self, rows: Ints, times: Floats) -> None:
        """Notes when the executions ended that are told of next."""
        order = np.argsort(rows)
        self._ended = rows[order], times[order]

    def end(self, rows: Ints) -> None:
        """They leave their slots."""
        self._plane.runs.end(rows, RunState.UNTOLD)
        self._plane.runs.slot[rows] = -1
        self._plane.workers.release(rows)

    def _tell_of(self, rows: Ints) -> None:
        """Tells the scheduler what became of these executions of one vertex, whose programs have ended."""
        if self._plane.ended is not None:
            return
        runs, gone = self._plane.runs, self._are_gone(rows)
        rejected = runs.rejected[rows] & ~gone
        fails = runs.fails[rows] & ~gone
        self._plane.tell_cancelled(rows[gone])
        self._tell_rejected(rows[rejected])
        if fails.any():
            cause = e.FailureCause(e.FailureKind.USER, "an injected error of the user's function")
            self.tell_failed(rows[fails], cause)
        self._finish(rows[~gone & ~fails & ~rejected])

    def _are_gone(self, rows: Ints) -> NDArray[np.bool_]:
        """Returns a mask of those that were cancelled."""
        return self._plane.runs.cancelled[rows]

    def _tell_rejected(self, rows: Ints, *, retired: bool = False) -> None:
        plane = self._plane
        if not len(rows):
            return
        plane.rejects += len(rows)
        nodes = [plane.cluster.names[node] for node in plane.runs.node[rows].tolist()]
        plane.runs.state[rows] = RunState.TOLD
        plane.tell(e.ExecutionsRejected(at=plane.clock.now, nodes=nodes, retired=retired, **plane.names(rows)))

    def tell_failed(self, rows: Ints, cause: e.FailureCause, counted: bool = True) -> None:
        self._plane.runs.state[rows] = RunState.TOLD
        names = self._plane.names(rows)
        self._plane.tell(e.ExecutionsFailed(at=self._plane.clock.now, cause=cause, counted=counted, **names))

    def _finish(self, rows: Ints) -> None:
        if len(rows):
            event = self.write(rows, rows + 1)
            self._plane.runs.state[rows] = RunState.TOLD
            self._plane.tell(event)

    def write(self, rows: Ints, tokens: Ints) -> e.ExecutionsFinished:
        """Stores the outputs of these executions of one vertex. Returns the event that they report."""
        event = self._finished(rows, tokens)
        written = [p.dataset for p in event.reports.partitions]
        self._plane.storage.write(event.vertex, written, tokens, self._plane.runs.node[rows])
        return event

    def _finished(self, rows: Ints, tokens: Ints) -> e.ExecutionsFinished:
        plane, runs = self._plane, self._plane.runs
        deployment = runs.deployment_of(int(rows[0]))
        vertex = plane.graph.vertices[deployment.command.vertex]
        read = np.concatenate([d.input_bytes[group - d.first] for d, group in runs.by_deployment(rows)])
        partitions = tuple(
            self._written(dataset, runs.subtask[rows].astype(np.int64), deployment.command)
            for dataset in vertex.outputs
            if plane.graph.datasets[dataset].type.value == "blocking"
        )
        reports = e.ExecutionReports(
            tokens=tokens,
            deployed_at=runs.started[rows],
            running_at=runs.started[rows] + LAUNCH_SECONDS,
            finished_at=self._ended[1][np.searchsorted(self._ended[0], rows)],
            rows_in=np.zeros(len(rows), np.int64),  # bytes are made up, and have no rows
            bytes_in=read,
            rows_out=np.zeros(len(rows), np.int64),
            nodes=plane.cluster.names_of(runs.node[rows]),
            partitions=partitions,
            commits=[(b"commit",)] * len(rows) if vertex.has_sink else (),
        )
        return e.ExecutionsFinished(at=plane.clock.now, reports=reports, **plane.names(rows))

    def _written(self, dataset: int, subtasks: Ints, command: c.Deploy) -> e.PartitionReports:
        workload, n = self._plane.world.workload, command.subpartitions[dataset]
        written = workload.totals(dataset, subtasks, n)
        stored = (written * STORED_SHARE).astype(np.int64)
        columns = written, np.zeros_like(written), stored
        packed = None
        if is_measured(command.parallelism, n):
            packed = PackedSizes(workload, dataset, subtasks, n, self._plane.watch)
        return e.PartitionReports(dataset, *columns, packed)

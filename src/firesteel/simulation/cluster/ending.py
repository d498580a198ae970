"""Executions end, and the scheduler is told what became of them: at once or late, once or twice, or in another order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firesteel.model.arrays import Floats, Ints
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.sizes import is_measured
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster import reading
from firesteel.simulation.cluster.launching import LAUNCH_SECONDS
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.plane import Plane
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.violation import check
from firesteel.simulation.workload import PackedSizes

STORED_SHARE = 0.4
"""Stored bytes per plain byte."""


class Ending:
    def __init__(self, plane: Plane, watch: Stopwatch, tell: Callable[[e.Event], None]) -> None:
        self._plane = plane
        self._watch = watch
        self._tell = tell
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
            parts = group.reshape(-1, 1) if plane.world.one_by_one else [np.sort(group)]
            for part in parts:
                self._tell_of(part)
        plane.runs.forget(rows)

    def ended_at(self, rows: Ints, times: Floats) -> None:
        """Notes when the executions ended that are told of next."""
        order = np.argsort(rows)
        self._ended = rows[order], times[order]

    def end(self, rows: Ints) -> None:
        """They leave their slots."""
        self._plane.runs.end(rows, RunState.UNTOLD)
        self._plane.runs.slot[rows] = -1
        if self._plane.workers.release(rows):
            self._plane.tell_what_is_occupied()

    def _tell_of(self, rows: Ints) -> None:
        """Tells the scheduler what became of these executions of one vertex, whose programs have ended."""
        if self._plane.ended is not None:
            return
        runs, dice = self._plane.runs, self._plane.dice
        gone = runs.cancelled[rows] & ~(dice.which(self._plane.world.faults.race, len(rows)) & ~runs.rejected[rows])
        rejected = runs.rejected[rows] & ~gone
        fails = runs.fails[rows] & ~gone
        self._plane.tell_cancelled(rows[gone])
        self._tell_rejected(rows[rejected & ~runs.retires[rows]], retired=False)
        self._tell_rejected(rows[rejected & runs.retires[rows]], retired=True)
        if fails.any():
            cause = e.FailureCause(e.FailureKind.USER, "an injected error of the user's function")
            self.tell_failed(rows[fails], cause)
        rest = rows[~gone & ~fails & ~rejected]
        if len(rest):
            missing, named = self.missing(rest)
            self.tell_missing(rest[missing >= 0], missing[missing >= 0], named)
            self._finish(rest[missing < 0])

    def _tell_rejected(self, rows: Ints, *, retired: bool) -> None:
        plane = self._plane
        if not len(rows):
            return
        plane.rejects += len(rows)
        nodes = [plane.cluster.names[node] for node in plane.runs.node[rows].tolist()]
        plane.runs.state[rows] = RunState.TOLD
        self._tell(e.ExecutionsRejected(at=plane.clock.now, nodes=nodes, retired=retired, **plane.names(rows)))

    def tell_failed(self, rows: Ints, cause: e.FailureCause, counted: bool = True) -> None:
        self._plane.runs.state[rows] = RunState.TOLD
        names = self._plane.names(rows)
        self._tell(e.ExecutionsFailed(at=self._plane.clock.now, cause=cause, counted=counted, **names))

    def _finish(self, rows: Ints) -> None:
        plane, runs = self._plane, self._plane.runs
        if not len(rows):
            return
        event = self.finished(rows, rows + 1)
        written = [p.dataset for p in event.reports.partitions]
        plane.storage.write(event.vertex, written, rows + 1, runs.node[rows])

        def told() -> None:
            runs.state[rows], runs.delivered[rows] = RunState.TOLD, plane.is_heard
            self._tell(event)

        faults = plane.world.faults
        if plane.dice.happens(faults.late) and not (plane.gang_of(rows) >= 0).any():
            plane.message(plane.delay(), told)
        else:
            told()
        if plane.dice.happens(faults.other_token):
            self._report_again(int(rows[plane.dice.one_of(len(rows))]), written)

    def _report_again(self, row: int, written: list[int]) -> None:
        plane = self._plane
        twin = np.array([plane.runs.again(row)])
        event = self.finished(np.array([row]), twin + 1)
        plane.storage.write(event.vertex, written, twin + 1, plane.runs.node[twin])

        def told() -> None:
            plane.runs.delivered[twin] = plane.is_heard
            plane.runs.state[row] = RunState.TOLD  # also where its own report is on its way still
            self._tell(event)

        plane.message(plane.delay(), told)

    def finished(self, rows: Ints, tokens: Ints) -> e.ExecutionsFinished:
        """Returns the event that these executions of one vertex report."""
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
        if self._plane.graph.datasets[dataset].ship is ShipStrategy.RANGE:
            sketches = [workload.sketch(dataset, subtask, n) for subtask in subtasks.tolist()]
            return e.PartitionReports(dataset, *columns, None, sketches)
        packed = None
        if is_measured(command.parallelism, n):
            packed = PackedSizes(workload, dataset, subtasks, n, self._watch)
        return e.PartitionReports(dataset, *columns, packed)

    # --- inputs --------------------------------------------------------------------------------------------------

    def missing(self, rows: Ints) -> tuple[Ints, list[reading.Missing]]:
        """For each row the number of what it misses, -1 where nothing is; and what is missed, by number."""
        found = np.full(len(rows), -1, np.int64)
        order = np.argsort(self._plane.runs.deployment[rows], kind="stable")
        place = 0
        named: list[reading.Missing] = []
        for deployment, group in self._plane.runs.by_deployment(rows):
            places = order[place : place + len(group)]
            place += len(group)
            for index, (gate, ranges) in enumerate(reading.inputs_of(deployment.command)):
                version = int(self._plane.storage.version[gate.dataset])
                if deployment.seen[index] == version:
                    continue
                there = self._plane.storage.is_readable(gate.dataset, gate.tokens)
                if there.all():
                    deployment.seen[index] = version
                    continue
                misses, first = reading.first_missing(gate, ranges, there, group - deployment.first)
                new = misses & (found[places] < 0)
                for at in np.unique(first[new]).tolist():
                    named.append(reading.named(gate, at))
                    found[places[new & (first == at)]] = len(named) - 1
        return found, named

    def tell_missing(self, rows: Ints, misses: Ints, named: list[reading.Missing]) -> None:
        """Readers that miss the same object are told of together."""
        for number in np.unique(misses).tolist():
            missing, readers = named[number], rows[misses == number]
            # A cancelled reader may miss what was deleted; it is on its way out.
            gone = self._plane.runs.cancelled[readers]
            self._plane.tell_cancelled(readers[gone])
            readers = readers[~gone]
            if not len(readers):
                continue
            token = np.array([missing.token])
            deleted = bool(self._plane.storage.was_deleted(missing.dataset, token).any())
            told = self._plane.is_orphaned or not deleted
            check(told, f"{missing} was deleted while subtasks read it")
            cause = e.FailureCause(
                e.FailureKind.PARTITION,
                "an injected loss of an object",
                dataset=missing.dataset,
                partition=missing.partition,
                attempt=missing.attempt,
                token=missing.token,
            )
            self.tell_failed(readers, cause)

    def halt_gangs(self, rows: Ints) -> None:
        """Members of a gang stand still when one of them is gone, until they are cancelled."""
        gangs = self._plane.gang_of(rows)
        hurt = gangs[gangs >= 0]
        if len(hurt):
            slots = np.flatnonzero(self._plane.cluster.run >= 0)
            runs = self._plane.cluster.run[slots]
            stuck = np.isin(self._plane.gang_of(runs), hurt) & ~self._plane.runs.cancelled[runs]
            self._plane.cluster.ends[slots[stuck]] = np.inf

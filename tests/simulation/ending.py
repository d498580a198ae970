"""Executions end, and the scheduler is told what became of them: at once or late, once or twice, or in another order."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from tests.simulation import reading
from tests.simulation.plane import Plane

from firesteel.model.arrays import Ints
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.sketches import Sketch, encode_sketch
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster import ending
from firesteel.simulation.cluster.reading import inputs_of, loss_of
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.violation import check

SKETCH_ENTRIES = 64
"""Keys of a made-up sketch at most."""


class Ending(ending.Ending):
    _plane: Plane

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self._seen: dict[tuple[int, int], int] = {}
        """By first row of a deployment and input: the storage's state in which all of the input was found."""

    def _are_gone(self, rows: Ints) -> NDArray[np.bool_]:
        runs, dice = self._plane.runs, self._plane.dice
        return runs.cancelled[rows] & ~(dice.which(self._plane.faults.race, len(rows)) & ~runs.rejected[rows])

    def _tell_rejected(self, rows: Ints, *, retired: bool = False) -> None:
        retires = self._plane.runs.retires[rows]
        super()._tell_rejected(rows[~retires])
        super()._tell_rejected(rows[retires], retired=True)

    def _finish(self, rows: Ints) -> None:
        if len(rows):
            missing, named = self.missing(rows)
            self.tell_missing(rows[missing >= 0], missing[missing >= 0], named)
            rows = rows[missing < 0]
        plane, runs = self._plane, self._plane.runs
        if not len(rows):
            return
        event = self.write(rows, rows + 1)

        def told() -> None:
            runs.state[rows], runs.delivered[rows] = RunState.TOLD, plane.is_heard
            plane.tell(event)

        faults = plane.faults
        if plane.dice.happens(faults.late) and not (plane.gang_of(rows) >= 0).any():
            plane.message(plane.delay(), told)
        else:
            told()
        if plane.dice.happens(faults.other_token):
            self._report_again(int(rows[plane.dice.one_of(len(rows))]))

    def _report_again(self, row: int) -> None:
        plane = self._plane
        twin = np.array([plane.runs.again(row)])
        event = self.write(np.array([row]), twin + 1)

        def told() -> None:
            plane.runs.delivered[twin] = plane.is_heard
            plane.runs.state[row] = RunState.TOLD  # also where its own report is on its way still
            plane.tell(event)

        plane.message(plane.delay(), told)

    def _written(self, dataset: int, subtasks: Ints, command: c.Deploy) -> e.PartitionReports:
        report = super()._written(dataset, subtasks, command)
        if self._plane.graph.datasets[dataset].ship is not ShipStrategy.RANGE:
            return report
        n = command.subpartitions[dataset]
        return replace(
            report, sizes=None, sketches=[self._sketch(dataset, subtask, n) for subtask in subtasks.tolist()]
        )

    def _sketch(self, dataset: int, partition: int, subpartitions: int) -> bytes:
        """Of the same bytes: a key for each subpartition, or a run of them, and the producer's number behind it."""
        sizes = self._plane.world.workload.plain(dataset, partition, subpartitions)
        starts = np.arange(0, subpartitions, -(-subpartitions // SKETCH_ENTRIES))
        weights = np.add.reduceat(sizes, starts)
        starts, weights = starts[weights > 0], weights[weights > 0]
        keys = tuple(struct.pack(">II", start, partition) for start in starts.tolist())
        return encode_sketch(Sketch(keys, weights, int(weights.max(initial=0))))

    # --- inputs --------------------------------------------------------------------------------------------------

    def missing(self, rows: Ints) -> tuple[Ints, list[e.FailureCause]]:
        """For each row the number of what it misses, -1 where nothing is; and what is missed, by number."""
        found = np.full(len(rows), -1, np.int64)
        order = np.argsort(self._plane.runs.deployment[rows], kind="stable")
        place = 0
        named: list[e.FailureCause] = []
        for deployment, group in self._plane.runs.by_deployment(rows):
            places = order[place : place + len(group)]
            place += len(group)
            for index, (gate, ranges) in enumerate(inputs_of(deployment.command)):
                version = int(self._plane.storage.version[gate.dataset])
                if self._seen.get((deployment.first, index)) == version:
                    continue
                there = self._plane.storage.is_readable(gate.dataset, gate.tokens)
                if there.all():
                    self._seen[deployment.first, index] = version
                    continue
                misses, first = reading.first_missing(gate, ranges, there, group - deployment.first)
                new = misses & (found[places] < 0)
                for at in np.unique(first[new]).tolist():
                    named.append(loss_of(gate, at))
                    found[places[new & (first == at)]] = len(named) - 1
        return found, named

    def tell_missing(self, rows: Ints, misses: Ints, named: list[e.FailureCause]) -> None:
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
            self.tell_failed(readers, missing)

    def halt_gangs(self, rows: Ints) -> None:
        """Members of a gang stand still when one of them is gone, until they are cancelled."""
        gangs = self._plane.gang_of(rows)
        hurt = gangs[gangs >= 0]
        if len(hurt):
            slots = np.flatnonzero(self._plane.cluster.run >= 0)
            runs = self._plane.cluster.run[slots]
            stuck = np.isin(self._plane.gang_of(runs), hurt) & ~self._plane.runs.cancelled[runs]
            self._plane.cluster.ends[slots[stuck]] = np.inf

"""Merging small outputs before they are read: best effort, on top of a finished result, never needed for a right answer.

Each consumer of an all-to-all exchange asks each producer's object for a slice: producers x consumers requests. Where the
mean slice is small, neighbouring producers' objects are merged first, into ones that are sorted by subpartition too, so
that the requests come near to stored bytes / threshold. Decided once per result, when all its producers have finished and
its first consumer is decided; consumers wait for the answer, but not for ever. What was not merged, or is lost or
damaged later, is read from the partitions' own objects, which stay.

RANGE results are not merged: their objects are in the order of the key, not of subpartitions, so that a merge would have to
compare every row again, and each holds the index of its keys, which a merged one would lack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import MERGE_REQUEST_TIME, MERGE_THRESHOLD
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import GateDescriptor, MergedObjects, MergePartitions, ReleaseMerged
from firesteel.scheduler.kernel.decisions import Merge, Merged
from firesteel.scheduler.kernel.events import Event, PartitionsMerged
from firesteel.scheduler.kernel.waits import ForMerging, Wait
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.groups import Mask

SLICE_SECONDS = 60e-6
"""Seconds that a reader spends on each slice, however near the storage is: its place in the index, its checksum, its decoding."""
ROUND_SECONDS = 0.5
"""Seconds that one more round of tasks costs, however little each does."""
BYTES_PER_SECOND = 100 << 20
"""Stored bytes that one slot reads, orders and writes once more in a second."""
WORTH = 2.0
"""A merge must save this many times its own cost. ``_reason`` says it in words."""
MOST_CELLS = 4 << 20
"""Partitions x subpartitions of one merged object: its task holds what their indexes say."""
WHOLE_BYTES = 64 << 10
WHOLE_TOTAL_BYTES = 32 << 20
"""Objects up to so large on average, and all together, are fetched whole once by each worker, which keeps them."""
PATIENCE_SECONDS = 60.0
PATIENCE_FACTOR = 20.0
"""Consumers wait for a merge this many times the time it should take, and never less than the former."""
_PREFIX = "merge-"


@dataclass(frozen=True, slots=True)
class MergeEstimate:
    """An estimate of whether merging pays, in columns of the decision record.

    ``slices``: those that are not empty, as far as ranges, sizes and rows tell: at most the rows of the result.
    ``requests``: as many; but where the objects are so small that a worker fetches each once and keeps it, at most
    partitions x slots. ``mean = stored bytes / slices``. A merged object takes ``f = ceil(threshold / mean)`` partitions, at most
    MOST_CELLS / subpartitions; there are ``groups = ceil(partitions / f)``, or more where that is faster. Merging is
    ``work = 2 x stored bytes / BYTES_PER_SECOND + 2 x partitions x request_seconds``, on as many slots as there are groups;
    ``reading = requests x request_seconds + slices x SLICE_SECONDS``, on all slots, becomes groups / partitions of what it
    was. So ``work / groups + reading x groups / (partitions x slots)`` is least at ``groups = sqrt(work x partitions x
    slots / reading)``: no more than the slots can work on at once are worth it, of at least two partitions each. Then
    ``saved = reading x (1 - groups / partitions) / slots`` and ``cost = ROUND_SECONDS + work / min(groups, slots)``
    seconds. It pays when ``saved > WORTH x cost``.
    """

    partitions: int
    slices: int
    requests: int
    mean: float
    groups: int
    saved: float
    cost: float

    @property
    def pays(self) -> bool:
        return self.groups < self.partitions and self.saved > WORTH * self.cost


@dataclass(slots=True)
class _Asked:
    """A merge that was not answered yet."""

    number: int
    gate: GateDescriptor
    bounds: Ints
    since: float


@dataclass(slots=True)
class _Watched:
    """A result that was, or is being, merged."""

    result: IntermediateResult
    asked: _Asked | None = None
    damaged: list[MergedObjects] = field(default_factory=list)
    """Not read any more, but perhaps by those that were told of them before: they go with the partitions."""


class Merging(Policy):
    answers: ClassVar[Mapping[type[Event], str]] = {PartitionsMerged: "merged"}

    def __init__(self, job: Job) -> None:
        self._job = job
        self._graph = job.graph
        self._threshold = job.options[MERGE_THRESHOLD]
        self._given = job.options[MERGE_REQUEST_TIME]
        self._recorder = job.recorder
        self._slots = max(job.inputs.slots, 1)
        datasets = job.graph.job_graph.datasets if self._threshold else []
        self._open = [d.id for d in datasets if d.ship is ShipStrategy.HASH and job.graph.consumers[d.id]]
        """Data sets of which it is still to be decided."""
        self._watched: dict[int, _Watched] = {}
        self._late: dict[int, _Asked] = {}
        """Merges that nobody waits for any more, by number."""
        self._number = 0

    @property
    def is_open(self) -> bool:
        """There is something yet of which it is to be decided."""
        return bool(self._open)

    @property
    def request_seconds(self) -> float:
        """0: not known."""
        if self._given is not None:
            return self._given
        return self._job.side_inputs.number("request seconds", self._job.inputs.request_seconds) or 0.0

    def act(self) -> None:
        """Decide on results that are finished and have a consumer that is decided. O(results) while any is open."""
        for dataset in self._open if self._open and self.request_seconds > 0 else ():
            result = self._graph.results[dataset]
            if result is None or not result.is_available:
                continue
            consumers = [self._graph.vertices[v] for v in self._graph.consumers[dataset]]
            decided = [vertex for vertex in consumers if vertex.ranges is not None]
            if decided:
                self._open = [other for other in self._open if other != dataset]
                if not result.is_pipelined and not any(edge.inside for edge in result.consumers):
                    self._decide(result, decided)

    def _decide(self, result: IntermediateResult, consumers: list[ExecutionJobVertex]) -> None:
        estimate = self._estimate(result, sum(_requests(result, vertex) for vertex in consumers))
        if estimate is None:
            return
        bounds = np.arange(estimate.groups + 1) * result.num_partitions // estimate.groups
        self._recorder.decision(
            "merge",
            vertex=result.dataset.producer,
            name=self._graph.vertices[result.dataset.producer].job.name,
            inputs=Merge(
                dataset=result.dataset.id,
                partitions=estimate.partitions,
                slices=estimate.slices,
                requests=estimate.requests,
                stored_bytes=result.info.stored_bytes,
                mean_slice=round(estimate.mean, 1),
                request_seconds=self.request_seconds,
                slots=self._slots,
                threshold=self._threshold,
                saved_s=round(estimate.saved, 6),
                cost_s=round(estimate.cost, 6),
            ),
            rule=f"time for saved requests and slices > {WORTH:g} x (a round of tasks that reads and writes all bytes)",
            result=estimate.groups if estimate.pays else "not merged",
        )
        if estimate.pays:
            self._ask(result, bounds.astype(np.int64), estimate)

    def _estimate(self, result: IntermediateResult, slices: int) -> MergeEstimate | None:
        """None: slices are large enough."""
        partitions, stored = result.num_partitions, result.info.stored_bytes
        slices = min(slices, result.info.rows or slices)  # no rows but bytes: nobody counted rows
        if not (slices and result.info.num_bytes_produced) or partitions < 2 or stored >= self._threshold * slices:
            return None
        mean = stored / slices
        kept = stored <= min(WHOLE_BYTES * partitions, WHOLE_TOTAL_BYTES)
        requests = min(slices, partitions * self._slots) if kept else slices
        most = max(MOST_CELLS // result.num_subpartitions, 1)
        together = min(math.ceil(self._threshold / max(mean, 1e-9)), most, partitions)
        reading = requests * self.request_seconds + slices * SLICE_SECONDS
        work = 2 * stored / BYTES_PER_SECOND + 2 * partitions * self.request_seconds
        fastest = math.ceil(math.sqrt(work * partitions * self._slots / reading))
        groups = max(math.ceil(partitions / together), min(fastest, self._slots, partitions // 2))
        saved = reading * (1 - groups / partitions) / self._slots
        cost = ROUND_SECONDS + work / min(groups, self._slots)
        return MergeEstimate(partitions, slices, requests, mean, groups, saved, cost)

    def _ask(self, result: IntermediateResult, bounds: Ints, estimate: MergeEstimate) -> None:
        self._number += 1
        asked = _Asked(self._number, self._job.descriptors.gate(result), bounds, self._recorder.at)
        watched = self._watched[result.dataset.id] = _Watched(result, asked)
        result.is_withheld = True
        self._recorder.emit(MergePartitions(asked.number, asked.gate, bounds))
        patience = max(PATIENCE_SECONDS, PATIENCE_FACTOR * estimate.cost)
        until = self._recorder.at + patience
        number = asked.number  # a timer that nobody cancels is not to hold the gate
        self._job.timers.set(f"{_PREFIX}{number}", until, lambda: self._give_up(watched, number))

    def merged(self, event: PartitionsMerged) -> None:
        """The answer. One that comes twice changes nothing, one that comes too late is thrown away."""
        watched = self._watched.get(event.dataset)
        asked = None if watched is None else watched.asked
        if watched is None or asked is None or asked.number != event.merge:
            late = self._late.pop(event.merge, None)
            if late is not None:
                self._drop(event.dataset, _objects(late, event))
            return
        watched.asked = None
        objects, result = _objects(asked, event), watched.result
        usable = _unchanged(asked, objects, result)
        self._drop(event.dataset, _select(objects, ~usable))
        kept = _select(objects, usable) if usable.any() else None
        result.read_merged(kept)
        count = 0 if kept is None else len(kept.first)
        self._recorder.decision(
            "merged",
            vertex=result.dataset.producer,
            name=self._graph.vertices[result.dataset.producer].job.name,
            inputs=Merged(
                dataset=event.dataset,
                groups=len(asked.bounds) - 1,
                seconds=self._recorder.at - asked.since,
                bytes=int(event.stored_bytes.sum()),
                stale=int((~usable).sum()),
                failed=len(asked.bounds) - 1 - len(event.groups),
                failure=event.reason,
            ),
            result=count,
        )
        self._go_ahead(result)

    def _give_up(self, watched: _Watched, number: int) -> None:
        """Consumers have waited long enough for a merge."""
        asked = watched.asked
        if asked is None or asked.number != number:
            return
        watched.asked = None
        self._late[asked.number] = asked
        result = watched.result
        self._recorder.decision(
            "merged",
            vertex=result.dataset.producer,
            name=self._graph.vertices[result.dataset.producer].job.name,
            inputs=Merged(
                dataset=result.dataset.id,
                groups=len(asked.bounds) - 1,
                seconds=self._recorder.at - asked.since,
                in_time=False,
            ),
            rule="patience",
            result=0,
        )
        self._go_ahead(result)

    def damaged(self, dataset: int, first: int, token: int) -> bool:
        """A reader found this merged object missing or damaged: nobody is told of it any more. False: nobody was."""
        watched = self._watched.get(dataset)
        merged = None if watched is None else watched.result.merged
        if watched is None or merged is None:
            return False
        bad = (merged.first == first) & (merged.tokens == token)
        if not bad.any():
            return False
        watched.damaged.append(_select(merged, bad))
        watched.result.read_merged(_select(merged, ~bad) if not bad.all() else None)
        return True

    def job_ends(self) -> None:
        """No merged object is needed any more."""
        for dataset, watched in self._watched.items():
            self._release(dataset, watched)

    def waiting_for(self) -> list[Wait]:
        now = self._recorder.at
        return [
            ForMerging(dataset, max(0.0, now - watched.asked.since))
            for dataset, watched in self._watched.items()
            if watched.asked is not None
        ]

    def _go_ahead(self, result: IntermediateResult) -> None:
        result.is_withheld = False
        self._job.readers_may_run([(edge, np.arange(len(edge))) for edge in result.consumers])

    def withdrawn(self, result: IntermediateResult, partitions: Ints) -> None:
        """Whoever reads a merged object reads each of its partitions: with
        the first that goes, it has no reader any more, or only such as are restarted."""
        dataset = result.dataset.id
        watched = self._watched.get(dataset)
        if watched is None or watched.result is not result:
            return
        if not result.num_available:
            self._release(dataset, watched)
        elif result.merged is not None:
            hit = _covers(result.merged, partitions)
            self._drop(dataset, _select(result.merged, hit))
            result.read_merged(_select(result.merged, ~hit) if not hit.all() else None)

    def _release(self, dataset: int, watched: _Watched) -> None:
        merged = [watched.result.merged] if watched.result.merged is not None else []
        for objects in [*merged, *watched.damaged]:
            self._drop(dataset, objects)
        if merged:
            watched.result.read_merged(None)
        watched.damaged = []

    def _drop(self, dataset: int, objects: MergedObjects) -> None:
        if len(objects.first):
            self._recorder.emit(ReleaseMerged(dataset, objects))


def _requests(result: IntermediateResult, vertex: ExecutionJobVertex) -> int:
    """Returns the number of slices that the vertex' subtasks read, without those of ranges in which no producer has anything, nor
    those read in parts, which are never read from merged objects."""
    assert vertex.ranges is not None
    sizes = result.info.subpartition_bytes
    before = np.concatenate(([0], np.cumsum(sizes)))
    total = 0
    for edge, ranges in zip(vertex.inputs, vertex.ranges, strict=True):
        if edge.dataset == result.dataset.id:
            rects = ranges.rects[~ranges.is_divided].astype(np.int64)
            filled = before[rects[:, 3]] > before[rects[:, 2]] if before[-1] else np.ones(len(rects), np.bool_)
            total += int((rects[:, 1] - rects[:, 0])[filled].sum())
    return total


def _objects(asked: _Asked, event: PartitionsMerged) -> MergedObjects:
    groups = np.asarray(event.groups, np.int64)
    order = np.argsort(groups)
    groups = groups[order]
    return MergedObjects(asked.bounds[groups], asked.bounds[groups + 1], np.asarray(event.tokens, np.int64)[order])


def _unchanged(asked: _Asked, objects: MergedObjects, result: IntermediateResult) -> Mask:
    """Returns a mask of these objects: True for those made of partitions that are still the current ones."""
    same = result.available & (result.attempts == asked.gate.attempts) & (result.tokens == asked.gate.tokens)
    before = np.concatenate(([0], np.cumsum(same)))
    return before[objects.end] - before[objects.first] == objects.end - objects.first


def _covers(objects: MergedObjects, partitions: Ints) -> Mask:
    """Returns a mask of these objects: True for those that hold any of the partitions."""
    place = np.searchsorted(objects.first, partitions, side="right") - 1
    hit = np.zeros(len(objects.first), np.bool_)
    inside = (place >= 0) & (partitions < objects.end[np.maximum(place, 0)])
    hit[place[inside]] = True
    return hit


def _select(objects: MergedObjects, chosen: Mask) -> MergedObjects:
    return MergedObjects(objects.first[chosen], objects.end[chosen], objects.tokens[chosen])

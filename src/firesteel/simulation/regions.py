"""Which executions of a DeployRegions must run at the same time: those that pipelined gates connect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.scheduler.commands import Deploy, DeployRegions, GateDescriptor, InputRanges
from firesteel.scheduler.events import Ints
from firesteel.simulation.violation import check


@dataclass(frozen=True, slots=True)
class _Link:
    """A pipelined gate; producers and consumers are numbered from ``producer_start`` and ``start``."""

    producer_start: int
    producer: Deploy
    start: int
    gate: GateDescriptor
    ranges: InputRanges


def gangs_of(command: DeployRegions) -> list[Ints]:
    """For each part the number of the gang of each of its executions, from 0. Numbers rise with the subtasks."""
    producers = {dataset: number for number, part in enumerate(command.parts) for dataset in part.subpartitions}
    starts = np.cumsum([0] + [len(part.subtasks) for part in command.parts])
    labels = np.arange(starts[-1])
    links = [
        _Link(starts[producers[gate.dataset]], command.parts[producers[gate.dataset]], starts[number], gate, ranges)
        for number, part in enumerate(command.parts)
        for gate, ranges in zip(part.gates, part.ranges, strict=True)
        if gate.pipelined and _has_producer(gate, producers)
    ]
    while True:
        before = labels.copy()
        for link in links:
            _join(labels, link)
        if (labels == before).all():
            break
    numbers = np.unique(labels, return_inverse=True)[1]
    return np.split(numbers, starts[1:-1])


def _has_producer(gate: GateDescriptor, producers: dict[int, int]) -> bool:
    check(gate.dataset in producers, f"a pipelined gate of data set {gate.dataset} is deployed without its producers")
    return True


def _join(labels: Ints, link: _Link) -> None:
    """Consumers and the producers they read from get the smallest label among them."""
    gate, rects = link.gate, link.ranges.rects
    places = np.searchsorted(link.producer.subtasks, rects[:, :2].astype(np.int64))
    full = places[:, 1] - places[:, 0] == rects[:, 1] - rects[:, 0]
    check(bool(full.all()), f"a pipelined gate of data set {gate.dataset} is deployed without some of its producers")
    owner = link.start + np.repeat(np.arange(link.ranges.parallelism), np.diff(link.ranges.offsets))
    mine = labels[link.producer_start : link.producer_start + len(link.producer.subtasks)]
    busy = np.flatnonzero(places[:, 1] > places[:, 0])
    if not len(busy):
        return
    first, end, owner = places[busy, 0], places[busy, 1], owner[busy]
    if (first == 0).all() and (end == len(mine)).all():
        least = min(int(mine.min()), int(labels[owner].min()))
        mine[:] = least
        labels[owner] = least
        return
    np.minimum.at(labels, owner, _least_in(mine, first, end))
    np.minimum.at(
        mine,
        np.repeat(end - np.cumsum(end - first), end - first) + np.arange(int((end - first).sum())),
        np.repeat(labels[owner], end - first),
    )


def _least_in(values: Ints, first: Ints, end: Ints) -> Ints:
    """The smallest value in each half-open, non-empty span. Spans may overlap."""
    padded = np.append(values, np.iinfo(np.int64).max)
    bounds = np.stack([first, end], axis=1).reshape(-1)
    return np.minimum.reduceat(padded, bounds)[::2]

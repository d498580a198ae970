"""Gangs of executions of a DeployRegions that must run at the same time: those that pipelined gates or shared slots connect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Deploy, DeployRegions, InputRanges


@dataclass(frozen=True, slots=True)
class _Link:
    """A pipelined gate; producers and consumers are numbered from ``producer_start`` and ``start``."""

    producer_start: int
    producer: Deploy
    start: int
    ranges: InputRanges


def gangs_of(command: DeployRegions, slot_of: Ints | None = None) -> list[Ints]:
    """For each part the number of the gang of each of its executions, from 0. Numbers rise with the subtasks. ``slot_of``: of each execution a number;
    those of one slot are of one gang."""
    producers = {dataset: number for number, part in enumerate(command.parts) for dataset in part.subpartitions}
    starts = np.cumsum([0] + [len(part.subtasks) for part in command.parts])
    labels = np.arange(starts[-1])
    links = [
        _Link(starts[producers[gate.dataset]], command.parts[producers[gate.dataset]], starts[number], ranges)
        for number, part in enumerate(command.parts)
        for gate, ranges in zip(part.gates, part.ranges, strict=True)
        if gate.pipelined
    ]
    while True:
        before = labels.copy()
        for link in links:
            _join(labels, link)
        if slot_of is not None:
            labels = _least_of_each(labels, slot_of)
        if (labels == before).all():
            break
    numbers = np.unique(labels, return_inverse=True)[1]
    return np.split(numbers, starts[1:-1])


def _join(labels: Ints, link: _Link) -> None:
    """Consumers and the producers they read from get the smallest label among them."""
    rects = link.ranges.rects
    places = np.searchsorted(link.producer.subtasks, rects[:, :2].astype(np.int64))
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


def _least_of_each(labels: Ints, owner: Ints) -> Ints:
    """For each the smallest label among those with the same owner."""
    least = np.full(int(owner.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, owner, labels)
    return least[owner]


def _least_in(values: Ints, first: Ints, end: Ints) -> Ints:
    """The smallest value in each half-open, non-empty span. Spans may overlap."""
    padded = np.append(values, np.iinfo(np.int64).max)
    bounds = np.stack([first, end], axis=1).reshape(-1)
    return np.minimum.reduceat(padded, bounds)[::2]

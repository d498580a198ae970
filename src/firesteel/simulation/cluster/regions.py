"""Gangs of executions of a DeployRegions that must run at the same time: those that pipelined gates or shared slots connect."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Deploy, DeployRegions, GateDescriptor, InputRanges, SlotGrants
from firesteel.simulation.cluster.worker_queue import Member
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
    slot_of = _slots_of(command)
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
        if slot_of is not None:
            labels = _least_of_each(labels, slot_of)
        if (labels == before).all():
            break
    numbers = np.unique(labels, return_inverse=True)[1]
    return np.split(numbers, starts[1:-1])


def members_of(rows: list[Ints], gangs: list[Ints], grants: list[SlotGrants]) -> list[list[Member]]:
    """Of each gang its members, in topological order. The arguments run parallel to the parts of the command.

    Raises ViolationError where executions that share a slot are two of one vertex, or are told to hold different things.
    """
    found: dict[int, list[Member]] = {}
    of_slot: dict[int, list[Member]] = {}
    for own, numbers, granted in zip(rows, gangs, grants, strict=True):
        assert granted.shared is not None, "a region is deployed, and nobody says who shares a slot"
        columns = zip(own.tolist(), numbers.tolist(), granted.shared.tolist(), strict=True)
        for place, (row, gang, slot) in enumerate(columns):
            member = Member(row, granted, place, slot)
            found.setdefault(gang, []).append(member)
            of_slot.setdefault(slot, []).append(member)
    for members in of_slot.values():
        _check_shared(members)
    return [found[gang] for gang in sorted(found)]


def seen_by(part: Deploy, command: DeployRegions) -> Deploy:
    """The part, its gates on results that the same regions make marked as pipelined.

    A blocking result between members of a region is one that closes a circle of their steps: its reader is deployed
    before it is there, finds it when it is done, and cannot outlive those who make it.
    """
    made = {dataset: other.subtasks for other in command.parts for dataset in other.subpartitions}
    gates = tuple(
        replace(gate, pipelined=True) if _is_made_beside(gate, ranges, made) else gate
        for gate, ranges in zip(part.gates, part.ranges, strict=True)
    )
    return replace(part, gates=gates)


def _is_made_beside(gate: GateDescriptor, ranges: InputRanges, made: dict[int, Ints]) -> bool:
    if gate.pipelined or gate.dataset not in made:
        return gate.pipelined
    absent = np.setdiff1d(np.flatnonzero(gate.tokens < 0), made[gate.dataset])
    first, end = ranges.rects[:, 0], ranges.rects[:, 1]
    read = np.searchsorted(absent, end) > np.searchsorted(absent, first)
    check(not read.any(), f"a gate of data set {gate.dataset} names objects that neither are there nor will be")
    return True


def _has_producer(gate: GateDescriptor, producers: dict[int, int]) -> bool:
    check(gate.dataset in producers, f"a pipelined gate of data set {gate.dataset} is deployed without its producers")
    return True


def _slots_of(command: DeployRegions) -> Ints | None:
    """Of each execution the number of its slot, from 0; None: none is shared."""
    told = [part.slots.shared for part in command.parts if part.slots is not None and part.slots.shared is not None]
    if len(told) < len(command.parts):
        return None
    return np.unique(np.concatenate(told), return_inverse=True)[1]


def _check_shared(members: list[Member]) -> None:
    """Checks that these, which share a slot, are of different vertices, of one group, and at the same addresses."""
    first, *others = members
    told = f"executions of group '{first.grants.group}' that share a slot"
    check(len({id(member.grants) for member in members}) == len(members), f"{told} are of one vertex")
    for other in others:
        check(other.grants.group == first.grants.group, f"{told} are of group '{other.grants.group}' too")
        own, its = (
            member.grants.addresses[member.place] if member.grants.addresses else {} for member in (first, other)
        )
        check(own == its, f"{told} are told different addresses, {own} and {its}")


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

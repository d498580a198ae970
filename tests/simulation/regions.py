"""Checks of regions that are deployed together, and their gates as the books see them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from msgspec import structs
from tests.simulation.worker_queue import Member

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Deploy, DeployRegions, GateDescriptor, InputRanges, SlotGrants
from firesteel.simulation.violation import check


def check_producers(command: DeployRegions) -> None:
    """Pipelined gates are deployed together with all that they read from."""
    producers = {dataset: part for part in command.parts for dataset in part.subpartitions}
    for part in command.parts:
        for gate, ranges in zip(part.gates, part.ranges, strict=True):
            if gate.pipelined:
                there = gate.dataset in producers
                check(there, f"a pipelined gate of data set {gate.dataset} is deployed without its producers")
                rects = ranges.rects.astype(np.int64)
                places = np.searchsorted(producers[gate.dataset].subtasks, rects[:, :2])
                full = bool((places[:, 1] - places[:, 0] == rects[:, 1] - rects[:, 0]).all())
                check(full, f"a pipelined gate of data set {gate.dataset} is deployed without some of its producers")


def check_shared(command: DeployRegions) -> None:
    """Executions that share a slot are of different vertices, of one group, and at the same addresses."""
    of_slot: defaultdict[int, list[tuple[SlotGrants, int]]] = defaultdict(list)
    for part in command.parts:
        assert part.slots is not None and part.slots.shared is not None
        for place, slot in enumerate(part.slots.shared.tolist()):
            of_slot[slot].append((part.slots, place))
    for (first, at), *others in of_slot.values():
        told = f"executions of group '{first.group}' that share a slot"
        check(len({id(first), *(id(other) for other, _ in others)}) == 1 + len(others), f"{told} are of one vertex")
        for other, place in others:
            check(other.group == first.group, f"{told} are of group '{other.group}' too")
            own, its = (grants.addresses[k] if grants.addresses else {} for grants, k in ((first, at), (other, place)))
            check(own == its, f"{told} are told different addresses, {own} and {its}")


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
    return structs.replace(part, gates=gates)


def _is_made_beside(gate: GateDescriptor, ranges: InputRanges, made: dict[int, Ints]) -> bool:
    if gate.pipelined or gate.dataset not in made:
        return gate.pipelined
    absent = np.setdiff1d(np.flatnonzero(gate.tokens < 0), made[gate.dataset])
    first, end = ranges.rects[:, 0], ranges.rects[:, 1]
    read = np.searchsorted(absent, end) > np.searchsorted(absent, first)
    check(not read.any(), f"a gate of data set {gate.dataset} names objects that neither are there nor will be")
    return True


def members_of(rows: list[Ints], gangs: list[Ints], grants: list[SlotGrants]) -> list[list[Member]]:
    """Of each gang its members, in topological order. The arguments run parallel to the parts of the command."""
    found: dict[int, list[Member]] = {}
    for own, numbers, granted in zip(rows, gangs, grants, strict=True):
        assert granted.shared is not None, "a region is deployed, and nobody says who shares a slot"
        columns = zip(own.tolist(), numbers.tolist(), granted.shared.tolist(), strict=True)
        for place, (row, gang, slot) in enumerate(columns):
            found.setdefault(gang, []).append(Member(row, granted, place, slot))
    return [found[gang] for gang in sorted(found)]


def slots_of(command: DeployRegions) -> Ints | None:
    """Of each execution the number of its slot, from 0; None: none is shared."""
    told = [part.slots.shared for part in command.parts if part.slots is not None and part.slots.shared is not None]
    if len(told) < len(command.parts):
        return None
    return np.unique(np.concatenate(told), return_inverse=True)[1]

"""Reads of executions: which objects, how many requests that takes, and what of it is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Deploy, GateDescriptor, InputRanges
from firesteel.simulation.cluster.storage import Mask, Storage
from firesteel.simulation.violation import check
from firesteel.simulation.workload import Workload


@dataclass(frozen=True, slots=True)
class Missing:
    """The first object that an execution missed."""

    dataset: int
    partition: int
    attempt: int
    token: int


def inputs_of(command: Deploy) -> list[tuple[GateDescriptor, InputRanges]]:
    """The stored inputs: what is pipelined is not read from storage."""
    pairs = zip(command.gates, command.ranges, strict=True)
    return [(gate, ranges) for gate, ranges in pairs if not gate.pipelined]


def requests_of(command: Deploy) -> Ints:
    """Objects that each deployed execution reads from: merged ones in the place of those that they hold, but for shares."""
    requests = np.zeros(len(command.subtasks), np.int64)
    for gate, ranges in inputs_of(command):
        objects = _objects_up_to(gate)
        first, end = _places(gate, ranges.rects)
        asked = np.where(ranges.is_divided, end - first, objects[end] - objects[first])
        upto = np.concatenate(([0], np.cumsum(asked)))
        requests += upto[ranges.offsets[1:]] - upto[ranges.offsets[:-1]]
    return requests


def bytes_of(command: Deploy, workload: Workload) -> Ints:
    """Plain bytes that each deployed execution reads from all inputs: its rectangles' share of the partitions, as if all
    subpartitions of one were alike. Rectangles that cover a result without overlap add up to it, to the byte."""
    read = np.zeros(len(command.subtasks), np.int64)
    for gate, ranges in zip(command.gates, command.ranges, strict=True):
        n = gate.num_subpartitions
        first, end, low, high = ranges.rects.astype(np.int64).T
        before, whole = workload.written_before(gate.dataset, first, n), workload.written_before(gate.dataset, end, n)

        def up_to(written: Ints, subpartition: Ints, n: int = n) -> Ints:
            each, rest = np.divmod(written, n)  # bytes times subpartitions could be more than 64 bits hold
            return each * subpartition + rest * subpartition // n

        share = up_to(whole, high) - up_to(before, high) - up_to(whole, low) + up_to(before, low)
        if ranges.shares is not None:
            part, parts = ranges.shares.astype(np.int64).T
            each, rest = np.divmod(share, parts)
            share = each + (rest * (part + 1) // parts - rest * part // parts)
        upto = np.concatenate(([0], np.cumsum(share)))
        read += upto[ranges.offsets[1:]] - upto[ranges.offsets[:-1]]
    return read


def check_told_of_stored(command: Deploy, storage: Storage) -> None:
    """No deployment may name what was deleted, or nothing at all, where somebody reads it."""
    for gate, ranges in inputs_of(command):
        bad = (gate.tokens < 0) | storage.was_deleted(gate.dataset, gate.tokens)
        if bad.any():
            told = not bool(reads_one_of(gate, ranges, bad).any())
            check(told, f"vertex {command.vertex} is told to read objects of data set {gate.dataset} that are deleted")
        if gate.merged is not None:
            there = all(token in storage.merged for token in gate.merged.tokens.tolist())
            check(there, f"vertex {command.vertex} is told to read a merged object that is deleted")


def first_missing(
    gate: GateDescriptor, ranges: InputRanges, there: Mask, places: Ints
) -> tuple[Mask, NDArray[np.int64]]:
    """For the executions at these places of a deployment: whether an object is missing, and where in the gate the first."""
    next_missing = np.full(len(there) + 1, len(there), np.int64)
    gaps = np.flatnonzero(~there)
    next_missing[: gaps[-1] + 1] = gaps[np.searchsorted(gaps, np.arange(gaps[-1] + 1))]
    mine = ranges.select(places)
    first, end = _places(gate, mine.rects)
    found = next_missing[first]
    found[found >= end] = len(there)
    earliest = np.full(len(places), len(there), np.int64)
    np.minimum.at(earliest, np.repeat(np.arange(len(places)), np.diff(mine.offsets)), found)
    return earliest < len(there), earliest


def named(gate: GateDescriptor, place: int) -> Missing:
    partition = place if gate.partitions is None else int(gate.partitions[place])
    return Missing(gate.dataset, partition, int(gate.attempts[place]), int(gate.tokens[place]))


def reads_one_of(gate: GateDescriptor, ranges: InputRanges, bad: Mask) -> Mask:
    """Returns a mask of the rectangles that hold one of these places of the gate."""
    upto = np.concatenate(([0], np.cumsum(bad)))
    first, end = _places(gate, ranges.rects)
    return upto[end] > upto[first]


def _places(gate: GateDescriptor, rects: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Returns the range in the gate's columns of each rectangle's partitions: half-open, neighbours there too."""
    first, end = rects[:, 0].astype(np.int64), rects[:, 1].astype(np.int64)
    if gate.partitions is None:
        return first, end
    return np.searchsorted(gate.partitions, first), np.searchsorted(gate.partitions, end)


def _objects_up_to(gate: GateDescriptor) -> Ints:
    """Returns the number of objects that the first ``k`` places of the gate take, by ``k``."""
    objects = np.ones(len(gate.tokens), np.int64)
    if gate.merged is not None:
        rects = np.stack([gate.merged.first, gate.merged.end], axis=1).astype(np.int32)
        for first, end in zip(*(column.tolist() for column in _places(gate, rects)), strict=True):
            objects[first:end] = 0
            objects[first : first + 1] = int(end > first)
    return np.concatenate(([0], np.cumsum(objects)))

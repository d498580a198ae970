"""What executions must not be told to read, and what of their inputs is missing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.simulation.storage import Storage

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Deploy, GateDescriptor, InputRanges
from firesteel.simulation.cluster.reading import inputs_of, places_of
from firesteel.simulation.cluster.storage import Mask
from firesteel.simulation.violation import check


def check_told_of_stored(command: Deploy, storage: Storage) -> None:
    """No deployment may name what was deleted, or nothing at all, where somebody reads it."""
    for gate, ranges in inputs_of(command):
        bad = (gate.tokens < 0) | storage.was_deleted(gate.dataset, gate.tokens)
        if bad.any():
            told = not bool(reads_one_of(gate, ranges, bad).any())
            check(told, f"vertex {command.vertex} is told to read objects of data set {gate.dataset} that are deleted")
        if gate.merged is not None:
            there = storage.merged.has(gate.merged.tokens).all()
            check(bool(there), f"vertex {command.vertex} is told to read a merged object that is deleted")


def first_missing(
    gate: GateDescriptor, ranges: InputRanges, there: Mask, places: Ints
) -> tuple[Mask, NDArray[np.int64]]:
    """For the executions at these places of a deployment: whether an object is missing, and where in the gate the first."""
    next_missing = np.full(len(there) + 1, len(there), np.int64)
    gaps = np.flatnonzero(~there)
    next_missing[: gaps[-1] + 1] = gaps[np.searchsorted(gaps, np.arange(gaps[-1] + 1))]
    mine = ranges.select(places)
    first, end = places_of(gate, mine.rects)
    found = next_missing[first]
    found[found >= end] = len(there)
    earliest = np.full(len(places), len(there), np.int64)
    np.minimum.at(earliest, np.repeat(np.arange(len(places)), np.diff(mine.offsets)), found)
    return earliest < len(there), earliest


def reads_one_of(gate: GateDescriptor, ranges: InputRanges, bad: Mask) -> Mask:
    """Returns a mask of the rectangles that hold one of these places of the gate."""
    upto = np.concatenate(([0], np.cumsum(bad)))
    first, end = places_of(gate, ranges.rects)
    return upto[end] > upto[first]

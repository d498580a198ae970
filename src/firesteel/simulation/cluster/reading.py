"""Reads of executions: which objects, how many requests that takes, and what of it is missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Deploy, GateDescriptor, InputRanges
from firesteel.scheduler.kernel.events import FailureCause, FailureKind
from firesteel.simulation.workload import Workload

_SPAN = 1 << 16


def inputs_of(command: Deploy) -> list[tuple[GateDescriptor, InputRanges]]:
    """The stored inputs: what is pipelined is not read from storage."""
    pairs = zip(command.gates, command.ranges, strict=True)
    return [(gate, ranges) for gate, ranges in pairs if not gate.pipelined]


def requests_of(command: Deploy) -> Ints:
    """Objects that each deployed execution reads from: merged ones in the place of those that they hold, but for shares."""
    requests = np.zeros(len(command.subtasks), np.int64)
    for gate, ranges in inputs_of(command):
        objects = _objects_up_to(gate)
        for places, some in _spans(ranges):
            first, end = places_of(gate, some.rects)
            asked = np.where(some.is_divided, end - first, objects[end] - objects[first])
            requests[places] += _per_execution(asked, some)
    return requests


def bytes_of(command: Deploy, workload: Workload) -> Ints:
    """Plain bytes that each deployed execution reads from all inputs: its rectangles' share of the partitions, as if all
    subpartitions of one were alike. Rectangles that cover a result without overlap add up to it, to the byte."""
    read = np.zeros(len(command.subtasks), np.int64)
    for gate, ranges in zip(command.gates, command.ranges, strict=True):
        for places, some in _spans(ranges):
            read[places] += _per_execution(_bytes_in(gate, some, workload), some)
    return read


def _bytes_in(gate: GateDescriptor, ranges: InputRanges, workload: Workload) -> Ints:
    """Plain bytes in each rectangle, or in the share of it that is read."""
    n = gate.num_subpartitions
    first, end, low, high = ranges.rects.astype(np.int64).T
    before, whole = workload.written_before(gate.dataset, first, n), workload.written_before(gate.dataset, end, n)

    def up_to(written: Ints, subpartition: Ints) -> Ints:
        each, rest = np.divmod(written, n)  # bytes times subpartitions could be more than 64 bits hold
        return each * subpartition + rest * subpartition // n

    share = up_to(whole, high) - up_to(before, high) - up_to(whole, low) + up_to(before, low)
    if ranges.shares is None:
        return share
    part, parts = ranges.shares.astype(np.int64).T
    each, rest = np.divmod(share, parts)
    return each + (rest * (part + 1) // parts - rest * part // parts)


def loss_of(gate: GateDescriptor, place: int) -> FailureCause:
    """Why an execution fails that misses the object at this place of the gate."""
    partition = place if gate.partitions is None else int(gate.partitions[place])
    return FailureCause(
        FailureKind.PARTITION,
        "an injected loss of an object",
        dataset=gate.dataset,
        partition=partition,
        attempt=int(gate.attempts[place]),
        token=int(gate.tokens[place]),
    )


def places_of(gate: GateDescriptor, rects: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Returns the range in the gate's columns of each rectangle's partitions: half-open, neighbours there too."""
    first, end = rects[:, 0].astype(np.int64), rects[:, 1].astype(np.int64)
    if gate.partitions is None:
        return first, end
    return np.searchsorted(gate.partitions, first), np.searchsorted(gate.partitions, end)


def _objects_up_to(gate: GateDescriptor) -> Ints:
    """Returns the number of objects that the first ``k`` places of the gate take, by ``k``."""
    if gate.merged is None:
        return np.arange(len(gate.tokens) + 1)
    rects = np.stack([gate.merged.first, gate.merged.end], axis=1).astype(np.int32)
    first, end = places_of(gate, rects)
    first, end = first[end > first], end[end > first]
    objects = 1 - _inside(first, end, len(gate.tokens))
    objects[first] = 1
    return np.concatenate(([0], np.cumsum(objects)))


def _inside(first: Ints, end: Ints, size: int) -> Ints:
    """Returns 1 for the places below ``size`` that lie in one of these disjoint, half-open spans, else 0."""
    steps = np.bincount(first, minlength=size + 1) - np.bincount(end, minlength=size + 1)
    return np.cumsum(steps)[:size]


def _spans(ranges: InputRanges) -> Iterator[tuple[slice, InputRanges]]:
    """Executions some at a time, and their ranges: what is computed of a million takes no more memory than of these."""
    for begin in range(0, ranges.parallelism, _SPAN):
        end = min(begin + _SPAN, ranges.parallelism)
        first, last = int(ranges.offsets[begin]), int(ranges.offsets[end])
        shares = None if ranges.shares is None else ranges.shares[first:last]
        yield slice(begin, end), InputRanges(ranges.offsets[begin : end + 1] - first, ranges.rects[first:last], shares)


def _per_execution(of_rects: Ints, ranges: InputRanges) -> Ints:
    """Adds up what there is of each rectangle."""
    upto = np.concatenate(([0], np.cumsum(of_rects)))
    return upto[ranges.offsets[1:]] - upto[ranges.offsets[:-1]]

"""Facts of deployments: what each execution was given to do and to read, as digests.

They are written beside the event that a deployment followed from. A replay is held against them, and they tell which executions of a
changed program would read just what earlier ones have read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from firesteel.humanize import plural
from firesteel.model.descriptors import DIGEST_BYTES, digest_of
from firesteel.scheduler.kernel.commands import Command, Deploy, DeployRegions, GateDescriptor, InputRanges, Splits
from firesteel.scheduler.recovery.records import Deployed

_EXECUTION = struct.Struct("<qq")
"""Subtask, parallelism."""
_GATE = struct.Struct("<q??")
"""Subpartitions, whether it is a broadcast, and whether it is pipelined."""
_COUNT = struct.Struct("<q")


def facts_of(commands: Iterable[Command]) -> list[Deployed]:
    """Returns a fact for each deployment of one vertex among the commands, in their order."""
    return [_fact(part) for command in commands for part in _parts(command)]


def _parts(command: Command) -> Sequence[Deploy]:
    if isinstance(command, DeployRegions):
        return command.parts
    return (command,) if isinstance(command, Deploy) else ()


def _fact(command: Deploy) -> Deployed:
    return Deployed(
        command.vertex,
        command.parallelism,
        tuple(command.subpartitions.values()),
        command.subtasks.astype(np.int32).tobytes(),
        command.attempts.astype(np.int32).tobytes(),
        _inputs(command),
    )


def _inputs(command: Deploy) -> bytes:
    """A digest for each execution, one behind the other."""
    outputs = tuple(command.subpartitions.values())
    written = struct.pack(f"<{len(outputs)}q", *outputs)
    read = [_read(gate, ranges) for gate, ranges in zip(command.gates, command.ranges, strict=True)]
    if command.splits is not None:
        read.append(_splits(command.splits))
    digests: list[bytes] = []
    for place, subtask in enumerate(command.subtasks.tolist()):
        told = (_EXECUTION.pack(subtask, command.parallelism), written, *(column[place] for column in read))
        digests.append(digest_of(b"".join(told)))
    return b"".join(digests)


def _splits(splits: Splits) -> list[bytes]:
    """By execution, in the order in which they are read. They go by their numbers."""
    told = [_COUNT.pack(index) for index in splits.indexes.tolist()]
    found: list[bytes] = []
    for first, end in pairwise(splits.offsets.tolist()):
        own = told[first:end]
        found.append(b"".join((_COUNT.pack(len(own)), *own)))
    return found


def _read(gate: GateDescriptor, ranges: InputRanges) -> list[bytes]:
    """By execution: its rectangles and shares, and the tokens of the partitions that these touch. Whatever was merged has the same rows."""
    head = _gate(gate)
    offsets, columns = ranges.columns
    first, end = columns[:, 0].astype(np.int64), columns[:, 1].astype(np.int64)
    if gate.pipelined:  # nothing is stored, hence nothing is named
        first, end = np.zeros_like(first), np.zeros_like(end)
    elif gate.partitions is not None:
        first, end = np.searchsorted(gate.partitions, first), np.searchsorted(gate.partitions, end)
    tokens: dict[tuple[int, int], bytes] = {}
    """By run of the gate's columns: many executions read the same."""
    named: list[bytes] = []
    for span in zip(first.tolist(), end.tolist(), strict=True):
        if span not in tokens:
            tokens[span] = digest_of(np.ascontiguousarray(gate.tokens[span[0] : span[1]], np.int64).tobytes())
        named.append(tokens[span])
    rects, width = np.ascontiguousarray(columns, np.int32).tobytes(), 4 * columns.shape[1]
    bounds = offsets.tolist()
    return [
        b"".join((head, _COUNT.pack(last - since), rects[since * width : last * width], *named[since:last]))
        for since, last in pairwise(bounds)
    ]


def _gate(gate: GateDescriptor) -> bytes:
    keys = gate.boundaries or ()
    boundaries = b"".join(_COUNT.pack(len(key)) + key for key in keys)
    return digest_of(_GATE.pack(gate.num_subpartitions, gate.is_broadcast, gate.pipelined) + boundaries)


def difference(then: Sequence[Deployed], now: Sequence[Deployed], named: Callable[[int], str]) -> str | None:
    """Returns the first difference of deployments that should be equal, in a sentence; None: there is none. ``named``: of a vertex."""
    for old, new in zip(then, now, strict=False):
        if old != new:
            return f"{named(old.vertex)}: {_different(old, new, named)}."
    if len(then) > len(now):
        return f"{named(then[len(now)].vertex)} was deployed then, and is not now."
    return f"{named(now[len(then)].vertex)} was not deployed then, and is now." if len(now) > len(then) else None


def _different(old: Deployed, new: Deployed, named: Callable[[int], str]) -> str:
    if old.vertex != new.vertex:
        return f"deployed then, where {named(new.vertex)} is now"
    if old.parallelism != new.parallelism:
        return f"{plural(old.parallelism, 'subtask')} then, {new.parallelism} now"
    if old.outputs != new.outputs:
        return f"wrote {_counts(old.outputs)} subpartitions then, {_counts(new.outputs)} now"
    if (old.subtasks, old.attempts) != (new.subtasks, new.attempts):
        return "other executions were deployed then"
    places = range(0, len(old.inputs), DIGEST_BYTES)
    place = next(p for p in places if old.inputs[p : p + DIGEST_BYTES] != new.inputs[p : p + DIGEST_BYTES])
    subtask = np.frombuffer(old.subtasks, np.int32)[place // DIGEST_BYTES]
    return f"subtask {subtask} was given other rows to read then"


def _counts(outputs: tuple[int, ...]) -> str:
    return ", ".join(map(str, outputs)) or "no"

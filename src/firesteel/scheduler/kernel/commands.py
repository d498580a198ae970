"""Commands: all that the control plane wants done. The Spark runtime and the simulation carry these out; nobody else acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, Names, is_ascending
from firesteel.model.descriptors import Encoded, GateColumns, encode_gate
from firesteel.model.job_graph import RuntimeFilter
from firesteel.scheduler.kernel.events import FailureCause
from firesteel.scheduler.slots.resource_profile import ResourceProfile

Offset = TypeVar("Offset", np.int32, np.int64)


def _runs(offsets: NDArray[Offset], chosen: Ints) -> tuple[NDArray[Offset], Ints]:
    """The runs ``offsets[k]:offsets[k + 1]`` of the chosen k, one behind another: their offsets, and the place of each entry."""
    spans = offsets[chosen + 1] - offsets[chosen]
    ends = np.concatenate(([0], np.cumsum(spans))).astype(offsets.dtype)
    return ends, np.repeat(offsets[chosen] - ends[:-1], spans) + np.arange(ends[-1])


@dataclass(frozen=True, slots=True)
class InputRanges:
    """The parts of one consumed data set that each subtask (of a vertex, or of a deployment) reads, as columns.

    Subtask ``k`` reads ``rects[offsets[k]:offsets[k + 1]]``; a rectangle is half-open
    ``(partition_from, partition_to, subpartition_from, subpartition_to)``. int32.

    ``shares``, where subpartitions are divided among subtasks: per rectangle ``(part, parts)``, int32. One with several parts
    holds one subpartition, and of the ``n`` rows that each producer has there, in their order, are read those from
    ``n * part // parts`` to ``n * (part + 1) // parts``.
    """

    offsets: NDArray[np.int32]
    rects: NDArray[np.int32]
    shares: NDArray[np.int32] | None = None

    def of(self, subtask: int) -> NDArray[np.int32]:
        return self.rects[self.offsets[subtask] : self.offsets[subtask + 1]]

    @property
    def is_divided(self) -> NDArray[np.bool_]:
        """Returns a mask of the rectangles: True for those that are read in parts."""
        return np.zeros(len(self.rects), np.bool_) if self.shares is None else self.shares[:, 1] > 1

    @property
    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Returns the offsets, and all that is told of each rectangle: four numbers, or six where there are shares."""
        return self.offsets, self.rects if self.shares is None else np.hstack((self.rects, self.shares))

    def select(self, subtasks: Ints) -> InputRanges:
        """The ranges of these subtasks, in their order."""
        if len(subtasks) == self.parallelism and is_ascending(subtasks):
            return self
        offsets, places = _runs(self.offsets, subtasks)
        shares = None if self.shares is None else self.shares[places]
        if shares is not None and (shares[:, 1] <= 1).all():
            shares = None
        return InputRanges(offsets, self.rects[places], shares)

    @property
    def parallelism(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The splits that each subtask of a source (of all, or of a deployment) reads, as columns.

    Subtask ``k`` reads those numbered ``indexes[offsets[k]:offsets[k + 1]]``, possibly none. int32.
    """

    offsets: NDArray[np.int32]
    indexes: NDArray[np.int32]

    def of(self, subtask: int) -> NDArray[np.int32]:
        return self.indexes[self.offsets[subtask] : self.offsets[subtask + 1]]

    def select(self, subtasks: Ints) -> Splits:
        """The splits of these (distinct) subtasks, in their order."""
        if len(subtasks) == self.parallelism and is_ascending(subtasks):
            return self
        offsets, places = _runs(self.offsets, subtasks)
        return Splits(offsets, self.indexes[places])

    @property
    def parallelism(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class MergedObjects:
    """Objects that hold the rows of partitions ``first[k]`` .. ``end[k] - 1``, by subpartition. Ascending, disjoint.

    ``results.merged_name(dataset, first, end, token)``. The partitions' own objects are there still.
    """

    first: Ints
    end: Ints
    tokens: Ints


@dataclass(frozen=True, eq=False)
class GateDescriptor:
    """The places of the partitions of a consumed data set. Built, and encoded, once for consumers that read all of it.

    ``attempts`` and ``tokens`` (int64, one per partition) name the accepted object of each partition:
    ``results.object_name(dataset, partition, attempt, token)``. A pointwise deployment is told of the partitions of
    its own groups only: ``partitions``, ascending, which the other columns run parallel to. Attempt -1 of a partition
    that is read: a blocking result within a region (on a circle of exchanges), made by the same :class:`DeployRegions`.
    """

    dataset: int
    num_subpartitions: int
    attempts: Ints
    tokens: Ints
    is_broadcast: bool
    partitions: Ints | None = None
    """None: all of the data set."""
    pipelined: bool = False
    """Its producers run together with its consumers, in the same :class:`DeployRegions`: nothing is stored."""
    merged: MergedObjects | None = None
    """Objects to read in the place of several partitions' own ones."""
    boundaries: tuple[bytes, ...] | None = None
    """Of a RANGE data set: the keys at which its ranges begin, but for the first, which has no beginning."""
    offloaded: bool = False
    """Its encoded form is a blob (:class:`StoreBlob`): a deployment names it by ``encoded.digest`` only."""

    @property
    def columns(self) -> GateColumns:
        """The same as plain columns, as executors get them."""
        merged = None if self.merged is None else (self.merged.first, self.merged.end, self.merged.tokens)
        return GateColumns(
            self.dataset,
            self.num_subpartitions,
            self.attempts,
            self.tokens,
            self.is_broadcast,
            self.partitions,
            self.pipelined,
            merged,
            self.boundaries,
        )

    @cached_property
    def encoded(self) -> Encoded:
        """The descriptor as bytes, made when first asked for."""
        return Encoded.of(encode_gate(self.columns))

    def as_offloaded(self) -> GateDescriptor:
        """The same, for deployments that name its blob; not encoded again."""
        marked = replace(self, offloaded=True)
        vars(marked)["encoded"] = self.encoded
        return marked


class Command(msgspec.Struct, frozen=True, eq=False):
    pass


class VertexAbsorbed(Command, frozen=True):
    """From here on ``vertex`` runs the program of ``producer``, whose rows it joins, before its own, and reads its input
    ``build`` (0 or 1) whole; None: it is the second of two steps, and does the work of both (``model.absorbing``). Nothing of either was
    deployed."""

    vertex: int
    producer: int
    build: int | None


class NarrowSource(Command, frozen=True):
    """Find the rows of ``vertex``' source that match these finished data sets, let the vertex read only those from here on, and tell
    SourceNarrowed: always. ``filters`` run parallel to ``gates``."""

    vertex: int
    filters: tuple[RuntimeFilter, ...]
    gates: tuple[GateDescriptor, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes on which executions should run, and how soon. A wish that the data plane fulfils as well as it can."""

    avoid: tuple[str, ...] = ()
    """Nodes that they must not go to while another one can take them."""
    urgent: bool = False
    """They do not queue behind other work of the job."""
    may_reject: bool = True
    """One that finds itself on a blocked node (:class:`BlockNodes`) is rejected (ExecutionsRejected); False: it
    runs wherever it is."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotGrants:
    """The slots of a deployment, all of one profile. ``executors`` runs parallel to the subtasks: the worker from which the slot
    was cut; not known (code -1): pending, Spark starts it where and when it can.

    ``insists``: it matters that they run there, for Spark alone would give the workers more than they hold.
    ``addresses``: per subtask its external resources' addresses, where the pool hands them out; empty: Spark does.
    ``shared``: in a :class:`DeployRegions`, per subtask the number of its slot; executions of the command with the same number
    share one. None: each has its own.
    """

    group: str
    profile: ResourceProfile
    executors: Names
    insists: bool = False
    addresses: Sequence[Mapping[str, tuple[str, ...]]] = ()
    shared: Ints | None = None

    def select(self, places: Ints) -> SlotGrants:
        addresses = [self.addresses[k] for k in places.tolist()] if self.addresses else ()
        shared = None if self.shared is None else self.shared[places]
        return replace(self, executors=self.executors.select(places), addresses=addresses, shared=shared)


class Deploy(Command, frozen=True):
    """Run these executions of one vertex, as one Spark job.

    ``gates`` and ``ranges`` run parallel to the vertex' inputs; ranges hold the deployed subtasks, in the order of
    ``subtasks``, and name partitions by their number in the data set. ``subpartitions``: data set id to the number of
    subpartitions to write. ``splits``: for a source, which splits each subtask deployed reads, in the order of ``subtasks``.
    """

    vertex: int
    parallelism: int
    subtasks: Ints
    attempts: Ints
    gates: tuple[GateDescriptor, ...]
    ranges: tuple[InputRanges, ...]
    subpartitions: dict[int, int]
    splits: Splits | None = None
    input_bytes: Ints | None = None
    """Plain bytes each deployed subtask will read (int64), where known."""
    placement: Placement | None = None
    """None: anywhere, in its turn, and nothing is blocked ever."""
    slots: SlotGrants | None = None
    """None: one of Spark's own slots each."""

    def select(self, places: Ints) -> Deploy:
        """The same for the subtasks at these places."""
        return structs.replace(
            self,
            subtasks=self.subtasks[places],
            attempts=self.attempts[places],
            ranges=tuple(ranges.select(places) for ranges in self.ranges),
            splits=None if self.splits is None else self.splits.select(places),
            input_bytes=None if self.input_bytes is None else self.input_bytes[places],
            slots=None if self.slots is None else self.slots.select(places),
        )


class DeployRegions(Command, frozen=True):
    """Run these executions at the same time: they make up pipelined regions. Parts are in topological order.

    A gate of a part that is ``pipelined`` is fed by an earlier part while it runs. All or none of a region run: when
    one of its executions fails, the scheduler cancels and restarts the others.
    """

    parts: tuple[Deploy, ...]


class StoreSizes(Command, frozen=True):
    """Keep these packed rows of sizes (``firesteel.model.sizes``) in the driver's scratch files, until DropSizes."""

    dataset: int
    partitions: Ints
    attempts: Ints
    rows: Sequence[bytes]


class LoadSizes(Command, frozen=True):
    """Read rows that were stored, and tell SizesLoaded: always, with None for what cannot be read."""

    dataset: int
    partitions: Ints
    attempts: Ints


class DropSizes(Command, frozen=True, eq=True):
    """Nobody will ask for the rows of this data set again."""

    dataset: int


class MergePartitions(Command, frozen=True):
    """Merge small outputs: group ``g`` is partitions ``bounds[g]`` .. ``bounds[g + 1] - 1`` of the gate's data set.

    Carried out as well as can be: PartitionsMerged tells which groups worked. Consumers wait for that answer.
    """

    merge: int
    gate: GateDescriptor
    bounds: Ints


class ReleaseMerged(Command, frozen=True):
    """Deletes merged objects that are not needed any more."""

    dataset: int
    merged: MergedObjects


class StoreBlob(Command, frozen=True):
    """Put ``data`` (``digest`` names it) where every executor can fetch it; deployments that follow refer to it."""

    digest: bytes
    data: bytes


class DropBlobs(Command, frozen=True):
    """No deployment will refer to these blobs again."""

    digests: tuple[bytes, ...]


class BlockNodes(Command, frozen=True, eq=True):
    """All nodes that are blocked from now on (MARK_BLOCKED, FLIP-224): nothing new goes there, what runs goes on.

    Also what was deployed before and waits for a slot keeps away: see :class:`Placement`.
    """

    nodes: tuple[str, ...]


class ShareBlockedNode(Command, frozen=True, eq=True):
    """The other jobs of the session are to know that this job has blocked a node, why, and until when on its clock."""

    node: str
    cause: str
    end: float


class Cancel(Command, frozen=True):
    vertex: int
    subtasks: Ints
    attempts: Ints
    reason: str


class ReleasePartitions(Command, frozen=True):
    """The objects of these partitions are not needed any more: delete them."""

    dataset: int
    partitions: Ints
    attempts: Ints
    tokens: Ints


class VerifyPartitions(Command, frozen=True):
    """One object of the data set is lost: look whether these are still stored, by listing, and tell PartitionsLost.

    A reader names the first one it misses only, but a lost disk or bucket held many of them.
    """

    dataset: int
    partitions: Ints
    attempts: Ints
    tokens: Ints


class DiscardExecutions(Command, frozen=True):
    """Attempts that were not admitted (late, doubled, losers) or are void: delete what they wrote, abort their sink output."""

    vertex: int
    subtasks: Ints
    attempts: Ints
    tokens: Ints


class SetTimer(Command, frozen=True, eq=True):
    """TimerFired(``timer``) is to be told at ``at``; a timer of that name that was set before is forgotten."""

    timer: str
    at: float


class CancelTimer(Command, frozen=True, eq=True):
    timer: str


class CommitSinks(Command, frozen=True):
    """All vertices have finished. ``winners``: vertex to its subtasks' admitted (attempt, commit messages)."""

    winners: dict[int, list[tuple[int, tuple[bytes, ...]]]]


class Record(Command, frozen=True, eq=True):
    """Appends a record to the journal."""

    record: Any


class JobStatus(Enum):
    """Flink: JobStatus."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    CANCELLING = "CANCELLING"
    FAILING = "FAILING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    FINISHED = "FINISHED"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = (JobStatus.CANCELED, JobStatus.FAILED, JobStatus.FINISHED)


class JobStatusChanged(Command, frozen=True):
    status: JobStatus
    cause: FailureCause | None = None
    vertex: int | None = None
    subtask: int | None = None
    persistent: tuple[GateDescriptor, ...] = ()
    """On FINISHED: where the persistent data sets lie."""

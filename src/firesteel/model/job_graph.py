"""The job graph: what the compiler hands to the scheduler.

A :class:`JobVertex` is a chain of operators that runs in one task; an :class:`IntermediateDataSet` is a
blocking result it produces; a :class:`JobEdge` is one consumer of such a result. The scheduler reads the shape
(parallelisms, distribution patterns, split sizes) and never looks into ``program``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.model.order import Order
from firesteel.model.slot_sharing_group import DEFAULT_SLOT_SHARING_GROUP, SlotSharingGroup

PARALLELISM_DEFAULT = -1
"""Nobody set a parallelism: the scheduler decides (Flink: ExecutionConfig.PARALLELISM_DEFAULT)."""


class DistributionPattern(Enum):
    ALL_TO_ALL = "all-to-all"
    POINTWISE = "pointwise"


class ShipStrategy(Enum):
    """The way records travel along an edge (Flink: StreamPartitioner)."""

    FORWARD = "forward"
    RESCALE = "rescale"
    REBALANCE = "rebalance"
    HASH = "hash"
    RANGE = "range"
    """By ranges of the key (``IntermediateDataSet.order``), which are decided when all of it is there."""
    BROADCAST = "broadcast"
    GLOBAL = "global"

    @property
    def pattern(self) -> DistributionPattern:
        if self in (ShipStrategy.FORWARD, ShipStrategy.RESCALE):
            return DistributionPattern.POINTWISE
        return DistributionPattern.ALL_TO_ALL

    @property
    def is_keyed(self) -> bool:
        """Rows that belong together share a subpartition, which must not be split between consumers."""
        return self in (ShipStrategy.HASH, ShipStrategy.RANGE, ShipStrategy.GLOBAL)


class ResultPartitionType(Enum):
    BLOCKING = "blocking"
    PIPELINED = "pipelined"


@dataclass(frozen=True, slots=True)
class IntermediateDataSet:
    """One blocking result of a job vertex. Consumers with the same partitioning share it."""

    id: int
    producer: int
    ship: ShipStrategy
    keys: tuple[str, ...] = ()
    type: ResultPartitionType = ResultPartitionType.BLOCKING
    persistent: bool = False
    """Read by the driver or a later job (collect, to_dataframe): not released with its last consumer."""
    order: Order | None = None
    """Of a RANGE data set: by what its rows are ordered, and whether equal ones may be parted."""


@dataclass(frozen=True, slots=True)
class JobEdge:
    """Input ``index`` of a job vertex: it consumes ``dataset``.

    ``co_partitioned``: keyed together with the other co-partitioned inputs of the vertex (join, cogroup, a
    single keyed input): they have equally many subpartitions, are walked together, and their bytes add up.
    ``divisible``: the rows of one subpartition may be dealt out to several subtasks, if each of them reads the same subpartition
    of the vertex' other co-partitioned input whole, or each part of it once. ``indivisible``: why not, in words; empty: nobody asks.
    ``by_value``: rows would not be dealt out by their order but by the hash of their values in columns that the program names, each
    subtask keeping its part of what it reads; there is no other co-partitioned input.
    """

    dataset: int
    index: int
    co_partitioned: bool = False
    divisible: bool = False
    indivisible: str = ""
    whole: bool = False
    """Every subtask reads all of it, whatever the data set's partitioning: the build side of a broadcast join."""
    by_value: bool = False


@dataclass(frozen=True, slots=True)
class JoinInfo:
    """The ways in which the join of a vertex' first two inputs (left, right) may be done, as the compiler found them.

    ``obstacles``: for each input why it cannot be the build side of a broadcast join, which every task reads whole while the
    producer of the other input runs in the join's own tasks; "" where it can. ``hint``: the input that the user wants
    to be the build side, 2: none ("never"); None: the scheduler decides.
    """

    how: str
    obstacles: tuple[str, str]
    hint: int | None = None

    def can_build(self, side: int) -> bool:
        return not self.obstacles[side] and self.hint in (None, side)


@dataclass(frozen=True, slots=True)
class RuntimeFilter:
    """Rows of a source that need not be read: those whose key no row of a join's other side has (Flink: runtime filter).

    ``join``, ``build``: the vertex of the join, and its input (0 or 1) that is this side, ``dataset``; ``keys``: columns of the data
    set; ``columns``: the source's columns that are joined with them, one for each. ``selective``: some step on the way to the data
    set drops rows; where none does, it likely has every key.
    """

    join: int
    build: int
    dataset: int
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    selective: bool = True


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """All that a source knows before it runs. ``split_bytes``: plain (uncompressed) bytes per split, int64."""

    split_bytes: NDArray[np.int64]
    fixed_parallelism: int | None = None
    """A source whose parallelism is given by its nature (one subtask per split, e.g. a Spark DataFrame)."""
    inferred_parallelism: int | None = None
    """The answer of the source's own ``infer_parallelism``, if it has one."""
    deterministic: bool = True
    """False: a split may give other rows when it is read again."""


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The files that a vertex should write: about ``nbytes`` each. ``sample``: the step before the exchange that counts how many bytes of files
    some of the rows make (``SAMPLED``, ``SAMPLED_FILE``)."""

    nbytes: int
    sample: str


@dataclass(slots=True)
class JobVertex:
    id: int
    name: str
    uid: str
    inputs: list[JobEdge] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    """Ids of the data sets it produces."""
    parallelism: int = PARALLELISM_DEFAULT
    max_parallelism: int = PARALLELISM_DEFAULT
    source: SourceInfo | None = None
    has_sink: bool = False
    files: FileSizes | None = None
    """None: however large they become."""
    supports_concurrent_attempts: bool = True
    """False: two attempts of a subtask must never run at once, as its source, sink or side effects demand."""
    speculative: bool = True
    """Mirrors of its slow executions may be made, if attempts may be concurrent at all and speculation is on."""
    not_mirrored: str = ""
    """Why there are no mirrors, in words, where one of the two above is False."""
    by_engine: bool = False
    """The engine of queries alone makes its rows: from 1 GiB a second or so, and in memory that does not grow with what a subtask reads."""
    waits: bool = False
    """It waits for services: how long it takes says nothing of the node it runs on, and no detector looks at it."""
    deterministic: bool = True
    """False: a subtask that runs again may give other rows."""
    other_rows: str = ""
    """Why it may, in words."""
    slot_sharing_group: str = DEFAULT_SLOT_SHARING_GROUP
    likely_bytes: int | None = None
    """Plain bytes that it gives, guessed from the rows of sources; None: nobody knows."""
    step: str = ""
    """The identity of what it does, the same in every run of the same code (``compile.fingerprint``); empty: not known."""
    join: JoinInfo | None = None
    """Of a vertex that begins with one join and no other keyed step."""
    filters: tuple[RuntimeFilter, ...] = ()
    """Of a source, by the joins that its rows go to."""
    first_step: int | None = None
    """The vertex that makes its first input, if the two may be one step: it is absorbed, unless what it reads is to be divided, or it is a
    join of which one side is broadcast. None: there is none, or that is decided."""
    is_whole: bool = False
    """Of a vertex with a first step: its name and identity are those of both in one step."""
    absorbed_by: int | None = None
    """The vertex whose tasks do this one's work: it has no subtasks of its own."""
    program: Any = None
    """``firesteel.task.program.VertexProgram``: opaque to the scheduler."""


@dataclass(slots=True)
class JobGraph:
    """Vertices are listed in topological order and ``vertices[i].id == i``; likewise the data sets."""

    name: str
    vertices: list[JobVertex]
    datasets: list[IntermediateDataSet]
    slot_sharing_groups: dict[str, SlotSharingGroup] = field(default_factory=dict)
    """By name. One that is not here is coarse."""

    def group_of(self, vertex: int) -> SlotSharingGroup:
        name = self.vertices[vertex].slot_sharing_group
        return self.slot_sharing_groups.get(name) or SlotSharingGroup(name)

    def copy(self) -> JobGraph:
        """One that can change by itself; vertices and data sets are shared until they are replaced."""
        return JobGraph(self.name, list(self.vertices), list(self.datasets), self.slot_sharing_groups)

    def consumers(self, dataset: int) -> list[int]:
        return [v.id for v in self.vertices for e in v.inputs if e.dataset == dataset]

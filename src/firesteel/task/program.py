"""The program of a job vertex, as plain picklable data: what runs inside one task.

Executor side: stdlib, numpy and pyarrow only (and pandas where the user asks for it). A program is serialised
once per vertex with cloudpickle and is the same for every subtask and attempt; what differs per execution is in
:class:`TaskContext` and the gates.

    head  ->  operators (one chain of generators)  ->  outputs (each takes every batch)
"""

from __future__ import annotations

import copyreg
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.engine.files import FileRows
from firesteel.engine.package import EnginePackage
from firesteel.model.order import Order
from firesteel.model.reports import StepReport
from firesteel.results.storage.store import ResultStore
from firesteel.task.mapped import MappedObjects, PrivateObjects

Batches = Iterator[pa.RecordBatch]


def _fixed_size_list(kind: Any) -> tuple[Any, ...]:
    return pa.list_, (kind.value_field, kind.list_size)


def _map(kind: Any) -> tuple[Any, ...]:
    return pa.map_, (kind.key_field, kind.item_field, kind.keys_sorted)


# What pyarrow itself pickles of these two types leaves out the item's name and nullability, and that keys are sorted: the
# executor would write its rows under another schema than the driver reads them with.
copyreg.pickle(pa.FixedSizeListType, _fixed_size_list)
copyreg.pickle(pa.MapType, _map)

MAX_RECORDS_PER_BATCH = 10_000
"""Rows a user function gets at once, as PySpark's spark.sql.execution.arrow.maxRecordsPerBatch."""


@dataclass(slots=True)
class TaskContext:
    """Facts about a running execution, for its operators and error messages."""

    job_id: str
    vertex: int
    vertex_name: str
    subtask: int
    attempt: int
    parallelism: int
    token: int
    memory_budget: int
    """Bytes that the operators, readers and writers of this task may hold together."""
    scratch: Path
    """A private directory on the executor's local disk, removed when the task ends."""
    heavy_keys: bool = False
    """Heavy keys of its keyed outputs are looked for."""
    failed_rows: bool = True
    """Rows that failed are reported, some of them."""
    side_inputs: dict[str, pa.Table] = field(default_factory=dict)
    builds: dict[str, BuildInput] = field(default_factory=dict)
    """Build sides of broadcast joins by name: read whole, by the operator that joins."""
    shared: MappedObjects | PrivateObjects = field(default_factory=PrivateObjects)
    """Objects that operators make once for all workers of the executor."""
    engine: EnginePackage | None = None
    """Of fragments, the driver's; None: this process has its packages."""
    reports: dict[str, StepReport] = field(default_factory=dict[str, StepReport])
    """The counts of its steps, by name."""
    ran: dict[str, float] | None = None
    """Seconds that functions of batches and groups ran, by step, not counting their waits for rows; None: nobody wants to know."""
    routes: dict[int, Callable[[pa.RecordBatch], None]] = field(
        default_factory=dict[int, "Callable[[pa.RecordBatch], None]"]
    )
    """By ``ResultOutput.route``: what takes the rows that a step could not do."""
    peers: ResultStore | None = None
    """The job's storage, where its executors leave word for each other; None: there is one executor only."""
    input_bytes: int = 0
    """Plain bytes that it should read, as the scheduler estimates; 0: not known."""
    kept_functions: int = 1 << 30
    """Most bytes that the worker keeps of functions with a set-up that its task does not need."""
    instances: dict[int, Any] = field(default_factory=dict[int, Any])
    """Functions with a set-up that it has taken, by their steps'."""
    places: dict[int, str] = field(default_factory=dict)
    """``place`` by thread."""

    @property
    def place(self) -> str:
        """The split whose rows the calling thread has in hand, in words, for error messages; empty: it is none."""
        return self.places.get(get_ident(), "")

    @place.setter
    def place(self, place: str) -> None:
        self.places[get_ident()] = place

    def report(self, step: str) -> StepReport:
        """The counts of a step; made when first asked for."""
        return self.reports.setdefault(step, StepReport(step))


class Operator(Protocol):
    """A step in the chain: an iterator of batches in, an iterator of batches out. Picklable, stateless itself."""

    @property
    def name(self) -> str: ...

    unitwise: ClassVar[bool]
    """True: may be applied unit by unit behind a keyed head (it has no state across batches)."""

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches: ...


@runtime_checkable
class TakesKeys(Protocol):
    """An operator that leaves out rows without a match while it reads them, before all else that it does."""

    def with_keys(self, keys: Sequence[pa.Table]) -> Self:
        """The same of rows alone that are in each of these tables, by the columns which it has."""
        ...


class UnitInput(Protocol):
    """One input's rows of the unit at hand: a run of consecutive subpartitions."""

    @property
    def nbytes(self) -> int: ...
    @property
    def schema(self) -> pa.Schema: ...
    def batches(self) -> Batches: ...
    def table(self) -> pa.Table: ...


class BuildInput(Protocol):
    """A build side as it is stored."""

    @property
    def identity(self) -> str:
        """Names its rows, within the job."""
        ...

    @property
    def unit(self) -> UnitInput: ...
    @property
    def rows(self) -> int: ...


def within(part: Any) -> Iterator[Any]:
    """Yields an operator and all that it holds: fields of dataclasses, items of tuples and lists, at any depth."""
    yield part
    if isinstance(part, tuple | list):
        inside: Iterable[Any] = cast(Iterable[Any], part)
    elif is_dataclass(part) and not isinstance(part, type):
        inside = (getattr(part, one.name) for one in fields(part))
    else:
        inside = ()
    for one in inside:
        yield from within(one)


class KeyedOperator(Protocol):
    """Works on all rows of a run of subpartitions at once: all rows of a key are in one unit."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Key columns, per input."""
        ...

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches: ...


class Source(Protocol):
    """The reading half of a source (executor side). ``split`` is any picklable object."""

    def read(self, split: Any, ctx: TaskContext) -> Batches: ...


@runtime_checkable
class FileSource(Protocol):
    """A source whose splits are rows of Parquet files."""

    def files(self, splits: Sequence[Any]) -> list[FileRows] | None:
        """None: the source has to read them itself."""
        ...

    def read_all(self, splits: Sequence[Any], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        """The rows of splits, one after the other. Later ones are fetched from a far store meanwhile."""
        ...

    def without_hints(self) -> Self:
        """The same with all row groups of its files."""
        ...

    def count_rows(self) -> int: ...
    def count_values(self, name: str) -> int | None: ...


class Combiner(Protocol):
    """Partial aggregation before an exchange. ``new`` gives the state of one task."""

    def new(self, ctx: TaskContext) -> CombinerState: ...


class CombinerState(Protocol):
    def add(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]: ...
    def finish(self) -> Iterable[pa.RecordBatch]: ...


class SinkWriter(Protocol):
    """Writes one attempt's share. ``finish`` returns the picklable commit message."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> Any: ...
    def abort(self) -> None: ...


class SinkFactory(Protocol):
    """The writing half of a sink (executor side): ``Sink.write(subtask, attempt)`` of the public protocol."""

    def write(self, subtask: int, attempt: int) -> SinkWriter: ...


# --- heads ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceHead:
    """Reads the splits assigned to the subtask, one after another."""

    source: Source


@dataclass(frozen=True, slots=True)
class SparkHead:
    """The batches come from Spark itself (``from_dataframe``): the task runs inside ``DataFrame.mapInArrow``."""


@dataclass(frozen=True, slots=True)
class GateHead:
    """Reads these gates one after another (several: a union)."""

    gates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyedHead:
    """Walks the subpartitions of these co-partitioned gates together, one unit at a time."""

    operator: KeyedOperator
    gates: tuple[int, ...]


Head = SourceHead | SparkHead | GateHead | KeyedHead


# --- outputs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultOutput:
    """Writes a blocking result. ``keys`` non-empty: hash partitioned; else rows go round robin (1 subpartition: all there).

    ``order``: rows are written in it, with a sketch of their keys and no subpartitions; ``keys`` is empty then.
    """

    dataset: int
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    combiner: Combiner | None = None
    order: Order | None = None
    route: int | None = None
    """It takes what one step hands it under this number (rows that its function could not do), not what leaves the chain."""


@dataclass(frozen=True, slots=True)
class SinkOutput:
    sink: SinkFactory


@dataclass(frozen=True, slots=True)
class VertexProgram:
    head: Head
    operators: tuple[Operator, ...]
    outputs: tuple[ResultOutput | SinkOutput, ...]
    gate_schemas: tuple[pa.Schema, ...] = ()
    """Schema of each gate's data set, in the order of the vertex' inputs."""
    side_inputs: tuple[tuple[str, int], ...] = ()
    """(name, gate): broadcast gates read whole, as a table, before the head starts."""
    builds: tuple[tuple[str, int], ...] = ()
    """(name, gate): gates read whole by broadcast joins."""
    gate_orders: tuple[Order | None, ...] = ()
    """Of each gate, the order in which its data set was written, if in any; empty: none was."""

    @property
    def orders(self) -> tuple[Order | None, ...]:
        """``gate_orders``, one for each gate."""
        return self.gate_orders or (None,) * len(self.gate_schemas)


# --- what comes in and goes out of one execution --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gate:
    """One input of one execution. ``attempts`` and ``tokens``: int64, one per partition of the data set;
    ``rects``: int32 (n, 4), half-open (partition_from, partition_to, subpartition_from, subpartition_to)."""

    dataset: int
    num_subpartitions: int
    attempts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    rects: NDArray[np.int32]
    partitions: NDArray[np.int64] | None = None
    """Ascending: the partitions that ``attempts`` and ``tokens`` speak of; None: all of the data set."""
    merged: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None
    """(first partition, end, token) of each merged object; ascending, disjoint."""
    boundaries: tuple[bytes, ...] | None = None
    """Of a data set that was written in an order: the keys at which its ranges begin, but for the first; its subpartitions
    are these ranges."""
    shares: NDArray[np.int32] | None = None
    """int32 (n, 2): (part, parts) of each rectangle's rows; None: all of them."""

    @property
    def identity(self) -> str:
        """Names the rows that are read, within the job: other attempts at them have another one."""
        digest = hashlib.blake2b(repr((self.dataset, self.num_subpartitions, self.boundaries)).encode(), digest_size=16)
        for column in (self.attempts, self.tokens, self.rects, self.partitions, self.shares, *(self.merged or ())):
            digest.update(b"none" if column is None else len(column).to_bytes(8, "little") + column.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class PipelinedGate:
    """An input that another part of the same task feeds while it runs: nothing of it is stored."""

    dataset: int


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    dataset: int
    bytes: NDArray[np.int64]
    """Plain bytes per subpartition."""
    rows: int
    stored_bytes: int
    sketch: bytes | None = None
    """Of an output with an order: its keys and how many bytes lie between them (``firesteel.model.sketches``)."""
    heavy_keys: bytes = b""
    """Of a keyed output (``firesteel.model.heavy_keys``); empty: there are none."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    partitions: tuple[PartitionOutcome, ...]
    commits: tuple[bytes, ...]
    """cloudpickled commit message per SinkOutput, in order."""
    rows_in: int
    bytes_in: int
    rows_out: int
    reports: tuple[StepReport, ...] = ()

"""Runs a task: builds the readers, the chain of generators and the writers of a program, and drives it batch by batch.

A task is one execution, or several that make up a pipelined region: then each part is a chain that pulls the one before it.

Shares of the memory budget: a keyed head's unit takes an eighth and its operator up to four times that again; the outputs share a
quarter (half without a keyed head and build sides), evenly among result writers and combiners; what is left is for batches on their way.
"""

from __future__ import annotations

import itertools
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import FiresteelError, error_words
from firesteel.model.order import Order
from firesteel.model.sketches import Boundaries
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.order.range_reader import RangeReader
from firesteel.results.order.sorting import SortedWriter
from firesteel.results.plain import TooManyValues, from_stored, stored_type, to_stored
from firesteel.results.reader import GateReader, Share
from firesteel.results.storage.objects import ObjectCache, worker_cache
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.results.writer import KeySampler, ResultWriter
from firesteel.task.batches import closing, coalesce, filter_rows, labelled, whole, with_null_indices
from firesteel.task.functions.instances import make_room, put_back, tell_close_errors
from firesteel.task.functions.user_code import UserFunctionError, user_frames
from firesteel.task.mapped import let_go
from firesteel.task.operators.composed import as_one
from firesteel.task.operators.fragments import Chain, KeyedQuery, Query, composed
from firesteel.task.operators.groups import PartialRows
from firesteel.task.operators.units import GateBuild, run_keyed
from firesteel.task.overlap import Behind
from firesteel.task.program import (
    Batches,
    CombinerState,
    FileSource,
    Gate,
    GateHead,
    Head,
    KeyedHead,
    Operator,
    PartitionOutcome,
    PipelinedGate,
    ResultOutput,
    SinkOutput,
    SourceHead,
    TaskContext,
    TaskOutcome,
    VertexProgram,
    within,
)

__all__ = ["Part", "TaskRun", "UserFunctionError", "run_task"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """One execution of a task. ``gates``: inputs, in the order of ``program.gate_schemas``. ``splits``: of a source; payloads,
    or objects with ``payload`` and ``description``. ``subpartitions``: data set to number of subpartitions to write.
    ``spark_batches``: the input of a SparkHead.
    """

    program: VertexProgram
    ctx: TaskContext
    gates: Sequence[Gate | PipelinedGate]
    splits: Sequence[Any]
    subpartitions: Mapping[int, int]
    spark_batches: Batches | None = None


def run_task(  # noqa: PLR0917
    program: VertexProgram,
    ctx: TaskContext,
    gates: Sequence[Gate],
    splits: Sequence[Any],
    store: ResultStore,
    subpartitions: Mapping[int, int],
    codec: str,
    spark_batches: Batches | None = None,
) -> TaskOutcome:
    """Runs one ``program`` once and says what came out; see :class:`Part` and :class:`TaskRun`."""
    return TaskRun([Part(program, ctx, gates, splits, subpartitions, spark_batches)], store, codec).run()[0]


class TaskRun:
    """Runs the parts of a task together: one, or the executions of a pipelined region.

    ``parts`` are in topological order. A part that feeds another one is pulled by it, batch by batch, and writes its own
    outputs on the way; it is run to its end for those even if nobody pulls any more.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        store: ResultStore,
        codec: str,
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        """``ending`` is called when the task has failed and is about to clear away what it wrote."""
        self._ending = ending
        streamed = _streamed(parts)
        self.culprit: int | None = None
        """The part that raised."""
        cache = _object_cache(parts, store)
        let_go(but=[_identity(part, gate) for part in parts for _, gate in part.program.builds])
        make_room([_operators(part.program) for part in parts], parts[0].ctx.kept_functions)
        self._parts = [_PartRun(part, store, codec, streamed, cache) for part in parts]

    def run(self) -> list[TaskOutcome]:
        """Runs all parts and returns the outcome of each. Nothing that any of them wrote is left behind when it raises.

        Raises UserFunctionError, PartitionException, StorageError or what a connector raises; then see ``culprit``.
        """
        try:
            self._each(_PartRun.open)
            self._connect()
            self._each(_PartRun.drain, self._order())
            outcomes = self._each(_PartRun.finish)
        except BaseException as error:
            try:
                self._ending()
            finally:
                for number, part in reversed(list(enumerate(self._parts))):
                    part.abort(sound=number != self.culprit or not isinstance(error, UserFunctionError))
            raise
        self._each(_PartRun.put_back)
        return outcomes

    def _connect(self) -> None:
        """Makes the chains, each reading the streams of those before it."""
        streams: dict[int, Stream] = {}
        for number, part in enumerate(self._parts):
            with self._blaming(number):
                part.begin(streams)
            if part.feeds is not None:
                stream = Stream(part.batches(), part.feeds.schema, partial(self._blame, number))
                part.stream = streams[part.feeds.dataset] = stream

    def _order(self) -> list[int]:
        """Returns the parts in the order they are run to their end: those that feed nobody, then the rest from the last reader back."""
        last = [k for k, part in enumerate(self._parts) if part.feeds is None]
        return last + [k for k in reversed(range(len(self._parts))) if k not in last]

    def _each(self, step: Callable[[_PartRun], _T], order: Iterable[int] | None = None) -> list[_T]:
        done: list[_T] = []
        for number in range(len(self._parts)) if order is None else order:
            with self._blaming(number):
                done.append(step(self._parts[number]))
        return done

    @contextmanager
    def _blaming(self, number: int) -> Generator[None]:
        try:
            yield
        except BaseException:
            self._blame(number)
            raise

    def _blame(self, number: int) -> None:
        """The first one is the one: an error passes through the parts that were pulling when it was raised."""
        if self.culprit is None:
            self.culprit = number


def _streamed(parts: Sequence[Part]) -> set[int]:
    """The data sets that one part makes for another. Rows have one way to go: one reader, and one such result per part."""
    read = [gate.dataset for part in parts for gate in part.gates if isinstance(gate, PipelinedGate)]
    made = [[o.dataset for o in part.program.outputs if isinstance(o, ResultOutput)] for part in parts]
    if len(set(read)) < len(read) or any(len(set(read).intersection(datasets)) > 1 for datasets in made):
        raise ValueError(
            f"Data sets {sorted(read)} cannot be pipelined together in one task: a part feeds one other part."
        )
    return set(read)


def _object_cache(parts: Sequence[Part], store: ResultStore) -> ObjectCache:
    """Returns the cache of objects that the readers of all parts share."""
    stored = [gate.dataset for part in parts for gate in part.gates if not isinstance(gate, PipelinedGate)]
    budget = sum(part.ctx.memory_budget for part in parts)
    return worker_cache(store, stored, budget, parts[0].ctx.scratch.parent / "indexes")


def _identity(part: Part, gate: int) -> str:
    """Of the rows that a stored input reads."""
    given = part.gates[gate]
    return given.identity if isinstance(given, Gate) else ""


class _PartRun:
    """One part: its reading and its writing half."""

    def __init__(self, part: Part, store: ResultStore, codec: str, streamed: Set[int], cache: ObjectCache) -> None:
        results = [output for output in part.program.outputs if isinstance(output, ResultOutput)]
        self.feeds = next((output for output in results if output.dataset in streamed), None)
        """The output that another part reads while it is made; None: there is none."""
        self.stream: Stream | None = None
        part = replace(part, program=_chained(part.program, streamed))
        self._part = part
        self._reading = _Reading(part, store, cache)
        self._outputs = _Outputs(part, store, codec, streamed)
        self._chain: Batches | None = None

    def open(self) -> None:
        self._outputs.open()

    def begin(self, streams: Mapping[int, Stream]) -> None:
        self._reading.read_side_inputs()
        self._chain = self._reading.chain(streams)

    def batches(self) -> Batches:
        """Yields the part's output; each batch has been written to its outputs when it comes."""
        assert self._chain is not None
        for batch in coalesce(self._chain):
            self._outputs.write(batch)
            yield batch

    def drain(self) -> None:
        """Runs it to its end, or closes it if nobody wants what is left."""
        if self.stream is not None and self.stream.error is not None:
            raise self.stream.error  # a reader swallowed it: its rows are not all
        if self.stream is None:
            deque(self.batches(), maxlen=0)
        elif self._outputs:
            self.stream.drain()
        else:
            self._close()

    def finish(self) -> TaskOutcome:
        partitions, commits = self._outputs.finish()
        counts = self._reading.rows, self._reading.bytes, self._outputs.rows
        tell_close_errors(self._part.ctx)
        return TaskOutcome(partitions, commits, *counts, tuple(self._part.ctx.reports.values()))

    def put_back(self) -> None:
        put_back(self._part.ctx, sound=True)

    def abort(self, *, sound: bool) -> None:
        """``sound``: what it has set up may be used again."""
        with suppress(Exception):
            self._close()
        put_back(self._part.ctx, sound=sound)
        self._outputs.abort()

    def _close(self) -> None:
        if self._chain is not None:
            closing(self._chain)


class _Reading:
    """The reading half: gates, head, chain."""

    def __init__(self, part: Part, store: ResultStore, cache: ObjectCache) -> None:
        self._program, self._ctx, self._part = part.program, part.ctx, part
        self._schemas = part.program.gate_schemas
        divided_by = _divided_by(part.program)
        self._readers: list[GateReader | None] = [
            None if isinstance(gate, PipelinedGate) else _reader(gate, schema, order, store, cache, divided_by)
            for gate, schema, order in zip(part.gates, self._schemas, part.program.orders, strict=True)
        ]
        self._streams: list[Stream] = []
        self._rows = self._bytes = 0

    @property
    def rows(self) -> int:
        return self._rows + sum(s.rows for s in self._streams) + sum(r.rows_read for r in self._readers if r)

    @property
    def bytes(self) -> int:
        return self._bytes + sum(s.bytes for s in self._streams) + sum(r.bytes_read for r in self._readers if r)

    def read_side_inputs(self) -> None:
        for name, gate in self._program.side_inputs:
            self._ctx.side_inputs[name] = whole(self._stored(gate).read(), self._schemas[gate])
        for name, gate in self._program.builds:
            self._ctx.builds[name] = GateBuild(self._stored(gate), self._schemas[gate], _identity(self._part, gate))

    def chain(self, streams: Mapping[int, Stream]) -> Batches:
        """``streams``: by data set, what earlier parts of the task make."""
        head, operators = self._composed()
        batches = self._by_first(operators)
        if batches is None:
            batches = self._head(head, streams)
        else:
            operators = operators[1:]
        for operator in operators:
            batches = operator.apply(batches, self._ctx)
        return batches

    def _by_first(self, operators: Sequence[Operator]) -> Batches | None:
        """The rows of the first operator, if it reads the splits' files itself."""
        head, first = self._program.head, operators[0] if operators else None
        if (
            not isinstance(head, SourceHead)
            or not isinstance(head.source, FileSource)
            or not isinstance(first, Chain | PartialRows)
            or not first.reads_files
        ):
            return None
        files = head.source.files([_payload(split) for split in self._part.splits])
        if files is None:
            return None
        self._rows, self._bytes = sum(one.count for one in files), sum(one.nbytes for one in files)
        return first.apply_files(files, self._ctx)

    def _composed(self) -> tuple[Head, Sequence[Operator]]:
        """The head and the operators, with consecutive queries as one."""
        program, operators, last = self._program, list(_with_threads(self._program)), list[Any]()
        wanted = _wanted(program.outputs)
        if operators and isinstance(end := operators[-1], PartialRows):
            last, wanted = [operators.pop()], end.reads.names
        head, made = composed(as_one(program.head), operators, wanted)
        return head, [*made, *last]

    def _head(self, head: Head, streams: Mapping[int, Stream]) -> Batches:
        if isinstance(head, SourceHead):
            return self._counted(self._read_splits(head, self._part.splits))
        if isinstance(head, GateHead):
            inputs = [self._input(gate, streams) for gate in head.gates]
            return (batch for read in inputs for batch in read())
        if isinstance(head, KeyedHead):
            readers = [self._stored(gate) for gate in head.gates]
            return run_keyed(head.operator, readers, [self._schemas[gate] for gate in head.gates], self._ctx)
        if self._part.spark_batches is None:
            raise FiresteelError(
                f"Step '{self._ctx.vertex_name}' reads from Spark, but was started without Spark's batches."
            )
        return self._counted(self._part.spark_batches)

    def _input(self, number: int, streams: Mapping[int, Stream]) -> Callable[[], Batches]:
        gate = self._part.gates[number]
        if not isinstance(gate, PipelinedGate):
            return self._stored(number).read
        stream = streams[gate.dataset]
        self._streams.append(stream)
        return lambda: stream

    def _stored(self, gate: int) -> GateReader:
        reader = self._readers[gate]
        if reader is None:
            raise FiresteelError(f"Step '{self._ctx.vertex_name}' cannot read input {gate} as a stream.")
        return reader

    def _read_splits(self, head: SourceHead, splits: Sequence[Any]) -> Batches:
        try:
            if isinstance(head.source, FileSource):
                yield from head.source.read_all([_payload(split) for split in splits], self._ctx)
            else:
                for split in splits:
                    self._ctx.place = split.description if _is_described(split) else ""
                    yield from head.source.read(_payload(split), self._ctx)
        except (FiresteelError, OSError):
            raise
        except Exception as error:
            place = self._ctx.place or "a split"
            text = f"Reading {place} failed with {error_words(error)}."
            raise UserFunctionError(text, trace=user_frames(error), place=self._ctx.place) from error
        self._ctx.place = ""

    def _counted(self, batches: Batches) -> Batches:
        for batch in batches:
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            yield with_null_indices(batch)


def _is_described(split: Any) -> bool:
    return hasattr(split, "payload") and hasattr(split, "description")


def _payload(split: Any) -> Any:
    return split.payload if _is_described(split) else split


def _operators(program: VertexProgram) -> list[Any]:
    """All that work on rows in it."""
    return [*program.operators, program.head.operator] if isinstance(program.head, KeyedHead) else [*program.operators]


def _divided_by(program: VertexProgram) -> tuple[str, ...]:
    """The columns by whose hash subpartitions are divided among tasks; none: rows are dealt out by their order."""
    return getattr(program.head.operator, "divided_by", ()) if isinstance(program.head, KeyedHead) else ()


def _wanted(outputs: Sequence[ResultOutput | SinkOutput]) -> list[str]:
    """The columns that partial aggregations take of the rows; empty: all, or nobody knows."""
    combiners = [output.combiner if isinstance(output, ResultOutput) else None for output in outputs]
    narrow = [list(reads.names) for reads in (getattr(one, "reads", None) for one in combiners) if reads is not None]
    return list(dict.fromkeys(itertools.chain.from_iterable(narrow))) if len(narrow) == len(outputs) else []


def _reader(  # noqa: PLR0917
    gate: Gate,
    schema: pa.Schema,
    order: Order | None,
    store: ResultStore,
    cache: ObjectCache,
    divided_by: tuple[str, ...],
) -> GateReader:
    if order is not None:
        if gate.boundaries is None:
            raise FiresteelError(f"Data set {gate.dataset} was written in an order, but its ranges are not given.")
        where = gate.attempts, gate.tokens, gate.rects, gate.partitions
        return RangeReader(store, gate.dataset, schema, order, Boundaries(gate.boundaries), *where, cache)
    columns = (
        store,
        gate.dataset,
        schema,
        gate.num_subpartitions,
        gate.attempts,
        gate.tokens,
        gate.rects,
        gate.partitions,
        gate.merged,
        cache,
    )
    if divided_by and gate.shares is not None and (gate.shares[:, 1] > 1).any():
        ((part, parts),) = gate.shares.tolist()  # of one subpartition, and nothing else
        return ValuePartReader(*columns, columns=divided_by, share=(part, parts))
    return GateReader(*columns, gate.shares)


class _Outputs:
    """The writing half: every output takes every batch; all finish, or all are aborted. What is ``streamed`` is not written."""

    def __init__(self, part: Part, store: ResultStore, codec: str, streamed: Set[int]) -> None:
        self._holds = isinstance(part.program.head, KeyedHead) or bool(part.program.builds)
        """Operators hold rows as well."""
        self._outputs = [
            output
            for output in part.program.outputs
            if not isinstance(output, ResultOutput) or output.dataset not in streamed
        ]
        self._ctx, self._store = part.ctx, store
        self._subpartitions, self._codec = part.subpartitions, codec
        self._writers: list[Any] = []
        self._prefetch = _prefetched(part.program)
        self._behind: Behind[pa.RecordBatch] | None = None
        """Writes while the function of a step with ``prefetch`` computes."""
        self._combiners: list[CombinerState | None] = []
        self.rows = 0

    def __len__(self) -> int:
        return len(self._outputs)

    def open(self) -> None:
        share = self._share()
        for output in self._outputs:
            if isinstance(output, SinkOutput):
                self._writers.append(output.sink.write(self._ctx.subtask, self._ctx.attempt))
                if getattr(self._writers[-1], "expects", False):
                    self._writers[-1].expect(self._ctx.input_bytes)
                self._combiners.append(None)
                continue
            writer = self._result_writer(output, share)
            self._writers.append(writer)
            if output.route is not None:
                self._ctx.routes[output.route] = partial(_write_labelled, writer, output.schema)
            context = replace(self._ctx, memory_budget=share)
            self._combiners.append(None if output.combiner is None else output.combiner.new(context))

        if self._prefetch and self._outputs:
            self._behind = Behind(self._write, self._prefetch)

    def _share(self) -> int:
        """Bytes for each result writer and each combiner."""
        results = [output for output in self._outputs if isinstance(output, ResultOutput)]
        parts = len(results) + sum(output.combiner is not None for output in results)
        whole = self._ctx.memory_budget // (4 if self._holds else 2)
        return max(whole // max(parts, 1), 1)

    def _result_writer(self, output: ResultOutput, share: int) -> ResultWriter:
        ctx, count = self._ctx, self._subpartitions[output.dataset]
        name = object_name(output.dataset, ctx.subtask, ctx.attempt, ctx.token)
        if output.order is not None:
            return SortedWriter(
                self._store,
                name,
                output.schema,
                output.order,
                producer=ctx.subtask,
                producers=ctx.parallelism,
                ranges=count,
                memory_budget=share,
                codec=self._codec,
            )
        return ResultWriter(
            self._store,
            name,
            output.schema,
            count,
            output.keys,
            memory_budget=share,
            codec=self._codec,
            start=ctx.subtask % count,
            heavy_keys=KeySampler() if ctx.heavy_keys else None,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self._behind is None:
            self._write(batch)
        else:
            self._behind.put(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        for output, writer, combiner in zip(self._outputs, self._writers, self._combiners, strict=True):
            if isinstance(output, ResultOutput) and output.route is not None:
                continue  # a step of the chain writes to it
            if combiner is None:
                writer.write(batch)
            else:
                for combined in combiner.add(batch):
                    writer.write(combined)

    def finish(self) -> tuple[tuple[PartitionOutcome, ...], tuple[bytes, ...]]:
        if self._behind is not None:
            self._behind.end()
        partitions: list[PartitionOutcome] = []
        commits: list[bytes] = []
        for output, writer, combiner in zip(self._outputs, self._writers, self._combiners, strict=True):
            if isinstance(output, SinkOutput):
                commits.append(_pickled(writer.finish()))
                continue
            for combined in combiner.finish() if combiner is not None else ():
                writer.write(combined)
            summary = writer.finish()
            written = summary.bytes, summary.rows, summary.stored_bytes, summary.sketch, summary.heavy_keys
            partitions.append(PartitionOutcome(output.dataset, *written))
        return tuple(partitions), tuple(commits)

    def abort(self) -> None:
        """Removes what was written; the error that led here is the one that counts."""
        if self._behind is not None:
            self._behind.stop()
        for writer in self._writers:
            with suppress(Exception):
                writer.abort()


def _write_labelled(writer: ResultWriter, schema: pa.Schema, batch: pa.RecordBatch) -> None:
    writer.write(labelled(batch, schema))


def _chained(program: VertexProgram, streamed: Set[int]) -> VertexProgram:
    """The program with the combiner of its only output as the last operator, if it is one: it reads the rows as they come, and the engine
    computes it in one statement with those before it. Beside a step that reads ahead it stays behind."""
    if len(program.outputs) != 1 or any(getattr(one, "prefetch", 0) for one in program.operators):
        return program
    (output,) = program.outputs
    if (
        not isinstance(output, ResultOutput)
        or output.dataset in streamed
        or not isinstance(output.combiner, PartialRows)
    ):
        return program
    return replace(program, operators=(*program.operators, output.combiner), outputs=(replace(output, combiner=None),))


def _with_threads(program: VertexProgram) -> tuple[Operator, ...]:
    """The operators, of which none reads ahead beside the embedded engine: its queries set what is all threads' own."""
    operators: tuple[Any, ...] = program.operators
    if not any(getattr(one, "prefetch", 0) for one in operators):
        return operators
    if not any(isinstance(one, Query | KeyedQuery) for one in within(_operators(program))):
        return operators
    return tuple(replace(one, prefetch=0) if getattr(one, "prefetch", 0) else one for one in operators)


def _prefetched(program: VertexProgram) -> int:
    """Batches to be written behind: as many as the step that reads ahead has. 0: none does, or a sink of the user's may be of one thread."""
    sinks = [output.sink for output in program.outputs if isinstance(output, SinkOutput)]
    if any(not type(sink).__module__.startswith("firesteel.") for sink in sinks):
        return 0
    return max((getattr(operator, "prefetch", 0) for operator in _with_threads(program)), default=0)


def _pickled(message: Any) -> bytes:
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        return cloudpickle.dumps(message)


_SEED = 0x7A
"""Another one than those by which rows find their subpartitions, and buckets on local disk."""


class ValuePartReader(GateReader):
    """As :class:`GateReader` of one rectangle, but only the rows of ``share`` (part, parts), by the hash of ``columns``."""

    def __init__(self, *gate: Any, columns: tuple[str, ...], share: Share) -> None:
        """``gate``: the arguments of :class:`GateReader`, without shares."""
        super().__init__(*gate)
        self._columns = columns
        self._part, self._parts = share

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]:
        """The part's, as if all were alike."""
        first, sizes = super().bytes_per_subpartition()
        return first, -(-sizes // self._parts)

    def read(
        self, subpartition_from: int | None = None, subpartition_to: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        for batch in super().read(subpartition_from, subpartition_to):
            hashes = hash_columns([batch.column(name) for name in self._columns], seed=_SEED)
            kept = filter_rows(batch, pa.array(subpartition_of(hashes, self._parts) == self._part))
            self.rows_read -= batch.num_rows - kept.num_rows
            if kept.num_rows:
                yield kept


class Stream:
    """The batches of one part, for the gate of another one. Counts the rows that went through, and their bytes in memory.

    It has no ``close``: who leaves it early does not end the part that makes the rows, whose other outputs want the rest.
    An error of that part is handed on and kept: ``error`` is what no reader can swallow. ``blame`` is called with it.
    """

    def __init__(self, batches: Batches, schema: pa.Schema, blame: Callable[[], None]) -> None:
        self._batches = batches
        self._schema = schema
        self._blame = blame
        self._waiting: list[pa.RecordBatch] = []
        self.error: BaseException | None = None
        self.rows = self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self.error is not None:
            raise self.error
        while not self._waiting:
            try:
                self._waiting = conformed(next(self._batches), self._schema)
            except StopIteration:
                raise
            except BaseException as error:
                self.error = error
                self._blame()
                raise
        batch = self._waiting.pop(0)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        return batch

    def drain(self) -> None:
        """Runs the part to its end, when its reader wants no more."""
        deque(self._batches, maxlen=0)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The batch as if it had been stored and read again: in the declared types, where a source gives others.

    Several batches where its values are too many for a declared dictionary index.
    """
    if batch.schema.equals(schema):
        return [batch]
    if batch.schema.names != schema.names:
        raise FiresteelError(
            f"A batch with columns ({', '.join(batch.schema.names)}) came where ({', '.join(schema.names)}) were declared."
        )
    try:
        columns = [_column(column, field) for column, field in zip(batch.columns, schema, strict=True)]
    except TooManyValues:
        if batch.num_rows == 1:
            raise
        half = batch.num_rows // 2
        return [*conformed(batch.slice(0, half), schema), *conformed(batch.slice(half), schema)]
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]


def _column(column: Any, field: pa.Field) -> Any:
    if column.type.equals(field.type):
        return column
    plain, wanted = to_stored(column), stored_type(field.type)
    try:
        cast = plain if plain.type.equals(wanted) else plain.cast(wanted)
    except pa.ArrowException as error:
        raise FiresteelError(
            f"Column '{field.name}' came as {column.type} where {field.type} was declared: {error}"
        ) from None
    return from_stored(cast, field.type)

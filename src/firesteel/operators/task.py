"""Runs one execution: builds the readers, the chain of generators and the writers of a program, and drives it batch by batch.

Shares of the memory budget: a keyed head's unit takes an eighth and its operator up to four times that again; the outputs share a
quarter (half without a keyed head), evenly among result writers and combiners; what is left is for batches on their way.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from firesteel.errors import FiresteelError
from firesteel.operators.batches import closing, coalesce, whole, with_null_indices
from firesteel.operators.program import (
    Batches,
    CombinerState,
    Gate,
    GateHead,
    KeyedHead,
    PartitionOutcome,
    ResultOutput,
    SinkOutput,
    SourceHead,
    TaskContext,
    TaskOutcome,
    VertexProgram,
)
from firesteel.operators.units import run_keyed
from firesteel.operators.user_code import UserFunctionError, error_words, user_frames
from firesteel.results.reader import GateReader
from firesteel.results.store import ResultStore, object_name
from firesteel.results.writer import ResultWriter

__all__ = ["UserFunctionError", "run_task"]


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
    """Runs ``program`` once and says what came out. Nothing it wrote is left behind when it raises.

    ``gates``: inputs, in the order of ``program.gate_schemas``. ``splits``: of a source; payloads, or objects with
    ``payload`` and ``description``. ``subpartitions``: data set to number of subpartitions to write. ``spark_batches``:
    the input of a SparkHead.
    Raises UserFunctionError, PartitionException, StorageError or what a connector raises.
    """
    if pa.cpu_count() != 1:
        pa.set_cpu_count(1)  # Spark gives a task one core
    run = _Run(program, ctx, gates, store)
    outputs = _Outputs(program, ctx, store, subpartitions, codec)
    chain: Batches | None = None
    try:
        outputs.open()
        run.read_side_inputs()
        chain = run.chain(splits, spark_batches)
        for batch in coalesce(chain):
            outputs.write(batch)
        partitions, commits = outputs.finish()
    except BaseException:
        if chain is not None:
            with suppress(Exception):
                closing(chain)
        outputs.abort()
        raise
    return TaskOutcome(partitions, commits, run.rows_in, run.bytes_in, outputs.rows)


class _Run:
    """The reading half: gates, head, chain."""

    def __init__(self, program: VertexProgram, ctx: TaskContext, gates: Sequence[Gate], store: ResultStore) -> None:
        self._program, self._ctx = program, ctx
        self._schemas = program.gate_schemas
        self._readers = [
            GateReader(
                store,
                gate.dataset,
                schema,
                gate.num_subpartitions,
                gate.attempts,
                gate.tokens,
                gate.rects,
                gate.partitions,
            )
            for gate, schema in zip(gates, program.gate_schemas, strict=True)
        ]
        self._rows = self._bytes = 0

    @property
    def rows_in(self) -> int:
        return self._rows + sum(reader.rows_read for reader in self._readers)

    @property
    def bytes_in(self) -> int:
        return self._bytes + sum(reader.bytes_read for reader in self._readers)

    def read_side_inputs(self) -> None:
        for name, gate in self._program.side_inputs:
            self._ctx.side_inputs[name] = whole(self._readers[gate].read(), self._schemas[gate])

    def chain(self, splits: Sequence[Any], spark_batches: Batches | None) -> Batches:
        batches = self._head(splits, spark_batches)
        for operator in self._program.operators:
            batches = operator.apply(batches, self._ctx)
        return batches

    def _head(self, splits: Sequence[Any], spark_batches: Batches | None) -> Batches:
        head = self._program.head
        if isinstance(head, SourceHead):
            return self._counted(self._read_splits(head, splits))
        if isinstance(head, GateHead):
            return (batch for gate in head.gates for batch in self._readers[gate].read())
        if isinstance(head, KeyedHead):
            readers, schemas = (
                [self._readers[gate] for gate in head.gates],
                [self._schemas[gate] for gate in head.gates],
            )
            return run_keyed(head.operator, readers, schemas, self._ctx)
        if spark_batches is None:
            raise FiresteelError(
                f"Step '{self._ctx.vertex_name}' reads from Spark, but was started without Spark's batches."
            )
        return self._counted(spark_batches)

    def _read_splits(self, head: SourceHead, splits: Sequence[Any]) -> Batches:
        for split in splits:
            described = hasattr(split, "payload") and hasattr(split, "description")
            self._ctx.place = split.description if described else ""
            try:
                yield from head.source.read(split.payload if described else split, self._ctx)
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


class _Outputs:
    """The writing half: every output takes every batch; all finish, or all are aborted."""

    def __init__(
        self, program: VertexProgram, ctx: TaskContext, store: ResultStore, subpartitions: Mapping[int, int], codec: str
    ) -> None:
        self._program, self._ctx, self._store = program, ctx, store
        self._subpartitions, self._codec = subpartitions, codec
        self._writers: list[Any] = []
        self._combiners: list[CombinerState | None] = []
        self.rows = 0

    def open(self) -> None:
        share = self._share()
        for output in self._program.outputs:
            if isinstance(output, SinkOutput):
                self._writers.append(output.sink.write(self._ctx.subtask, self._ctx.attempt))
                self._combiners.append(None)
                continue
            self._writers.append(self._result_writer(output, share))
            context = replace(self._ctx, memory_budget=share)
            self._combiners.append(None if output.combiner is None else output.combiner.new(context))

    def _share(self) -> int:
        """Bytes for each result writer and each combiner."""
        results = [output for output in self._program.outputs if isinstance(output, ResultOutput)]
        parts = len(results) + sum(output.combiner is not None for output in results)
        whole = self._ctx.memory_budget // (4 if isinstance(self._program.head, KeyedHead) else 2)
        return max(whole // max(parts, 1), 1)

    def _result_writer(self, output: ResultOutput, share: int) -> ResultWriter:
        ctx, count = self._ctx, self._subpartitions[output.dataset]
        name = object_name(output.dataset, ctx.subtask, ctx.attempt, ctx.token)
        return ResultWriter(
            self._store,
            name,
            output.schema,
            count,
            output.keys,
            memory_budget=share,
            codec=self._codec,
            start=ctx.subtask % count,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for writer, combiner in zip(self._writers, self._combiners, strict=True):
            if combiner is None:
                writer.write(batch)
            else:
                for combined in combiner.add(batch):
                    writer.write(combined)

    def finish(self) -> tuple[tuple[PartitionOutcome, ...], tuple[bytes, ...]]:
        partitions: list[PartitionOutcome] = []
        commits: list[bytes] = []
        for output, writer, combiner in zip(self._program.outputs, self._writers, self._combiners, strict=True):
            if isinstance(output, SinkOutput):
                commits.append(_pickled(writer.finish()))
                continue
            for combined in combiner.finish() if combiner is not None else ():
                writer.write(combined)
            summary = writer.finish()
            partitions.append(PartitionOutcome(output.dataset, summary.bytes, summary.rows, summary.stored_bytes))
        return tuple(partitions), tuple(commits)

    def abort(self) -> None:
        """Removes what was written; the error that led here is the one that counts."""
        for writer in self._writers:
            with suppress(Exception):
                writer.abort()


def _pickled(message: Any) -> bytes:
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        return cloudpickle.dumps(message)

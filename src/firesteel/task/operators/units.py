"""The keyed head: co-partitioned gates walked unit by unit within the memory budget.

A unit is a run of consecutive subpartitions whose plain bytes, over all gates, stay within :func:`unit_limit`. A single
subpartition beyond that is hashed again, by another seed, into buckets on local disk, until each fits or holds one
key that cannot be divided. An operator that works on units of any size says so by ``any_size``; one that ``takes_all`` gets all as one unit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.task.batches import chunked, labelled, stable_order, take_rows, whole
from firesteel.task.program import Batches, KeyedOperator, TaskContext, UnitInput

MAX_LEVEL = 6
MAX_BUCKETS = 64
_SEED = 0x5F1E
_NO_LIMIT = 1 << 62
_numbers = itertools.count()


def unit_limit(ctx: TaskContext) -> int:
    """Plain bytes of one unit: an eighth of the task's budget. Codes, orders and copies of narrow rows take four times that again."""
    return max(ctx.memory_budget // 8, 1)


# --- inputs of a unit -------------------------------------------------------------------------------------------


class Reader(Protocol):
    """The part of ``results.reader.GateReader`` that a keyed head uses."""

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]: ...
    def read(self, subpartition_from: int | None = None, subpartition_to: int | None = None) -> Batches: ...


class CountingReader(Reader, Protocol):
    def num_rows(self) -> int: ...


@dataclass(slots=True)
class GateInput:
    """A run of subpartitions of one gate; every call of ``batches`` reads it anew."""

    reader: Reader
    schema: pa.Schema
    subpartition_from: int
    subpartition_to: int
    nbytes: int

    def batches(self) -> Batches:
        return self.reader.read(self.subpartition_from, self.subpartition_to)

    def table(self) -> pa.Table:
        return whole(self.batches(), self.schema)


class GateBuild:
    """All that ``reader`` reads, as a build side; how much that is, is looked up when it is first asked for."""

    def __init__(self, reader: CountingReader, schema: pa.Schema, identity: str) -> None:
        self.identity = identity
        self._reader, self._schema = reader, schema
        self._sizes: tuple[GateInput, int] | None = None

    @property
    def unit(self) -> GateInput:
        return self._sized()[0]

    @property
    def rows(self) -> int:
        return self._sized()[1]

    def _sized(self) -> tuple[GateInput, int]:
        if self._sizes is None:
            first, sizes = self._reader.bytes_per_subpartition()
            unit = GateInput(self._reader, self._schema, first, first + len(sizes), int(sizes.sum()))
            self._sizes = unit, self._reader.num_rows()
        return self._sizes


class SpoolInput:
    """Rows held in memory up to a limit and in a file on local disk beyond it. Written once, read any number of times."""

    def __init__(self, schema: pa.Schema, scratch: Path, limit: int) -> None:
        self.schema = schema
        self.nbytes = 0
        self._limit = limit
        self._held: list[pa.RecordBatch] = []
        self._path = scratch / f"spool-{next(_numbers)}.arrow"
        self._on_disk = False
        self._file: Any = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        batch = labelled(batch, self.schema)
        self.nbytes += batch.nbytes
        if not self._on_disk and self.nbytes <= self._limit:
            self._held.append(batch)
            return
        if not self._on_disk:
            self._open()
        self._writer.write_batch(batch)

    def _open(self) -> None:
        self._on_disk = True
        self._file = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_stream(self._file, self.schema)
        for batch in self._held:
            self._writer.write_batch(batch)
        self._held = []

    def finish(self) -> SpoolInput:
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._writer = None
        return self

    def batches(self) -> Batches:
        if not self._on_disk:
            yield from self._held
            return
        with pa.OSFile(str(self._path), "rb") as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    def table(self) -> pa.Table:
        return whole(self.batches(), self.schema)

    def close(self) -> None:
        """Drops the rows, on disk too. May be called twice."""
        self._held = []
        if self._file is not None:
            self._writer = None
            self._file.close()
            self._path.unlink(missing_ok=True)


def spool(batches: Iterable[pa.RecordBatch], schema: pa.Schema, ctx: TaskContext) -> SpoolInput:
    """All of ``batches``; what exceeds a unit goes to disk."""
    spooled = SpoolInput(schema, ctx.scratch, unit_limit(ctx))
    try:
        for batch in batches:
            spooled.write(batch)
    except BaseException:
        spooled.close()
        raise
    return spooled.finish()


# --- walking ----------------------------------------------------------------------------------------------------


def run_keyed(
    operator: KeyedOperator, readers: Sequence[Reader], schemas: Sequence[pa.Schema], ctx: TaskContext
) -> Batches:
    """The keyed head: what ``operator`` yields over all units of this subtask's range."""
    limit = _NO_LIMIT if getattr(operator, "takes_all", False) else unit_limit(ctx)
    for low, high, sizes in units(readers, limit):
        inputs: list[UnitInput] = [
            GateInput(reader, schema, low, high, nbytes)
            for reader, schema, nbytes in zip(readers, schemas, sizes, strict=True)
        ]
        yield from run_unit(operator, inputs, ctx)


def units(readers: Sequence[Reader], limit: int) -> Iterator[tuple[int, int, list[int]]]:
    """(first subpartition, end, plain bytes per gate) of each unit, covering the range without a gap."""
    found = [reader.bytes_per_subpartition() for reader in readers]
    start = min(first for first, _ in found)
    end = max(first + len(sizes) for first, sizes in found)
    per_gate = np.zeros((len(found), end - start), dtype=np.int64)
    for row, (first, sizes) in zip(per_gate, found, strict=True):
        row[first - start : first - start + len(sizes)] = sizes
    ends = np.cumsum(per_gate.sum(axis=0))
    low = 0
    while low < len(ends):
        before = ends[low - 1] if low else 0
        high = max(int(np.searchsorted(ends, before + limit, side="right")), low + 1)
        yield start + low, start + high, per_gate[:, low:high].sum(axis=1).tolist()
        low = high


def takes_any_size(operator: Any) -> bool:
    return getattr(operator, "takes_all", False) or getattr(operator, "any_size", False)


def run_unit(operator: KeyedOperator, inputs: list[UnitInput], ctx: TaskContext, level: int = 0) -> Batches:
    """``operator`` on one unit; beyond the limit on each of its buckets."""
    limit, nbytes = unit_limit(ctx), [unit.nbytes for unit in inputs]
    if sum(nbytes) <= limit or takes_any_size(operator) or level >= MAX_LEVEL or not all(operator.keys):
        yield from operator.apply_unit(inputs, ctx)
        return
    for bucket in rehash(inputs, operator.keys, level, ctx):
        divided = sum(unit.nbytes for unit in bucket) < 0.9 * sum(nbytes)
        yield from run_unit(operator, bucket, ctx, level + 1 if divided else MAX_LEVEL)


def rehash(
    inputs: Sequence[UnitInput], keys: Sequence[Sequence[str]], level: int, ctx: TaskContext
) -> Iterator[list[UnitInput]]:
    """The same rows in buckets by another hash of the keys, on local disk; rows of one key share a bucket."""
    total = sum(unit.nbytes for unit in inputs)
    n = min(max(math.ceil(1.5 * total / unit_limit(ctx)), 2), MAX_BUCKETS)
    with ExitStack() as stack:
        buckets = [_scatter(unit, names, n, level, ctx, stack) for unit, names in zip(inputs, keys, strict=True)]
        for bucket in zip(*buckets, strict=True):
            if any(spooled is not None for spooled in bucket):
                yield [s or SpoolInput(unit.schema, ctx.scratch, 0) for s, unit in zip(bucket, inputs, strict=True)]
            for spooled in bucket:
                if spooled is not None:
                    spooled.close()


def _scatter(  # noqa: PLR0917
    unit: UnitInput, keys: Sequence[str], n: int, level: int, ctx: TaskContext, stack: ExitStack
) -> list[SpoolInput | None]:
    buckets: list[SpoolInput | None] = [None] * n
    for table in chunked(unit.batches(), unit.schema, max(unit_limit(ctx) // 4, 1), 1 << 20):
        hashes = hash_columns([table.column(key) for key in keys], seed=_SEED + level)
        targets = np.asarray(subpartition_of(hashes, n))
        ordered = take_rows(table, stable_order(targets)).to_batches()[0]
        counts = np.bincount(targets, minlength=n)
        starts = np.cumsum(counts) - counts
        for k in np.flatnonzero(counts).tolist():
            spooled = buckets[k]
            if spooled is None:
                spooled = buckets[k] = SpoolInput(unit.schema, ctx.scratch, 0)
                stack.callback(spooled.close)
            spooled.write(ordered.slice(starts[k], counts[k]))
    for spooled in buckets:
        if spooled is not None:
            spooled.finish()
    return buckets

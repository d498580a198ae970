"""The steps of a stream in this process, one after another: no job, no Spark, so that thousands of queries take minutes.

Rows go to a random number of subtasks, by the hash that jobs use, and in batches of a few rows, so that each fragment sees parts,
and some of them nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from firesteel.compile.stream_graph import (
    ChainedStep,
    DataFrameStep,
    KeyedStep,
    SortStep,
    SourceStep,
    StreamEdge,
    StreamNode,
    UnionStep,
    reachable,
)
from firesteel.engine.files import FileRows
from firesteel.model.job_graph import ShipStrategy
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.order.sorting import row_order
from firesteel.task.operators.fragments import Chain, SqlFragment
from firesteel.task.program import FileSource, TaskContext

BATCH_ROWS = 7


class Unit:
    """Rows in memory, as a keyed operator reads them."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows, self.schema, self.nbytes = rows, rows.schema, rows.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._rows.to_batches(max_chunksize=BATCH_ROWS))

    def table(self) -> pa.Table:
        return self._rows


class Steps:
    """``run`` gives the rows of a stream."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self._scratch, self._rng = scratch, random.Random(seed)

    def run(self, step: StreamNode) -> pa.Table:
        parts: dict[StreamNode, list[pa.Table]] = {}
        for node in reachable([step]):
            parts[node] = self._parts(node, parts)
        return pa.concat_tables(parts[step])

    def _parts(self, node: StreamNode, known: dict[StreamNode, list[pa.Table]]) -> list[pa.Table]:
        """The rows of each subtask."""
        work = node.work
        if isinstance(work, SourceStep):
            return self._scanned(node, work.source)
        if isinstance(work, DataFrameStep):
            return [work.settle().dataframe.toArrow().cast(node.schema)]
        if isinstance(work, UnionStep):
            return [part.cast(node.schema) for edge in node.inputs for part in known[edge.source]]
        if isinstance(work, SortStep):
            rows = pa.concat_tables(known[node.inputs[0].source]).combine_chunks()
            order = work.operator.order
            return [rows.take(row_order([rows[column.name].combine_chunks() for column in order.columns], order))]
        tables = {name: pa.concat_tables(known[edge.source]) for name, edge in node.sides}
        if isinstance(work, ChainedStep):
            return self._chained(node, work, known, tables)
        assert isinstance(work, KeyedStep), work
        return self._of_keys(node, work, known)

    def _scanned(self, node: StreamNode, source: object) -> list[pa.Table]:
        splits = source.list_splits(1)
        found = [_table(source.read(split.payload, self._context(1, {})), node.schema) for split in splits]
        return found or [node.schema.empty_table()]

    def _chained(
        self, node: StreamNode, work: ChainedStep, known: dict[StreamNode, list[pa.Table]], tables: dict[str, pa.Table]
    ) -> list[pa.Table]:
        (edge,) = node.inputs
        files = self._files(edge, work)
        if files:
            assert isinstance(work.operator, SqlFragment)
            chain = Chain((work.operator,))
            return [_table(chain.apply_files(one, self._context(1, tables)), node.schema) for one in files]
        parts = known[edge.source]
        if edge.ship is ShipStrategy.GLOBAL:
            parts = [pa.concat_tables(parts)]
        batches = (iter(part.to_batches(max_chunksize=BATCH_ROWS)) for part in parts)
        return [_table(work.operator.apply(one, self._context(len(parts), tables)), node.schema) for one in batches]

    def _files(self, edge: StreamEdge, work: ChainedStep) -> list[list[FileRows]]:
        """The files that the operator may read itself, of a random number of subtasks; empty: it is to read batches, as it has to in a
        part of the cases, too."""
        read = edge.source.work
        if not isinstance(read, SourceStep) or not isinstance(read.source, FileSource) or edge.ship is not None:
            return []
        splits = read.source.list_splits(1)
        count = self._rng.randint(0, 3)
        groups = [read.source.files([one.payload for one in splits[i::count]]) for i in range(count)]
        readable = isinstance(work.operator, SqlFragment) and all(one is not None for one in groups)
        return groups if readable and splits else []

    def _of_keys(self, node: StreamNode, work: KeyedStep, known: dict[StreamNode, list[pa.Table]]) -> list[pa.Table]:
        count = self._rng.randint(1, 4) if work.keys[0] else 1
        sides = [
            self._exchanged(edge, keys, known[edge.source], count)
            for edge, keys in zip(node.inputs, work.keys, strict=True)
        ]
        return [
            _table(work.direct.apply_unit([Unit(side) for side in one], self._context(count, {})), node.schema)
            for one in zip(*sides, strict=True)
        ]

    @staticmethod
    def _exchanged(edge: StreamEdge, keys: tuple[str, ...], parts: list[pa.Table], count: int) -> list[pa.Table]:
        rows = pa.concat_tables(parts).combine_chunks()
        if not keys:
            return [rows]
        to = subpartition_of(hash_columns([rows[key].combine_chunks() for key in keys]), count)
        return [rows.filter(pa.array(to == number)) for number in range(count)]

    def _context(self, parallelism: int, tables: dict[str, pa.Table]) -> TaskContext:
        return TaskContext("job", 0, "step", 0, 0, parallelism, 0, 64 << 20, self._scratch, side_inputs=tables)


def _table(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)

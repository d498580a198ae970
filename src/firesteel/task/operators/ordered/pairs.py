"""Rows of a join, of the numbers of the rows that go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.model.arrays import Ints
from firesteel.task.batches import one_chunk, take, take_rows
from firesteel.task.operators.join import HashJoin, payload
from firesteel.task.program import Batches

_OUTPUT_BYTES = 4 << 20
_MIN_PAIRS, _MAX_PAIRS = 1 << 10, 1 << 17


def only_left(join: HashJoin, left: pa.Table, rows: Ints) -> Batches:
    nothing = join.right_schema.empty_table()
    for part in _parts(rows, pairs_at_once(left)):
        yield joined(join, left, part, nothing, np.full(len(part), -1, dtype=np.int64))


def only_right(join: HashJoin, right: pa.Table, rows: Ints) -> Batches:
    nothing = join.left_schema.empty_table()
    for part in _parts(rows, pairs_at_once(right)):
        yield joined(join, nothing, np.full(len(part), -1, dtype=np.int64), right, part)


def joined(join: HashJoin, left: pa.Table, left_rows: Ints, right: pa.Table, right_rows: Ints) -> pa.RecordBatch:
    """Output rows of these pairs of row numbers; -1 stands for no row."""
    left_index, right_index = row_indices(left_rows), row_indices(right_rows)
    pairs = dict(zip(join.left_keys, join.right_keys, strict=True))
    sources: list[tuple[Any, Any]] = []
    for name in join.left_schema.names:
        if left.num_rows:
            sources.append((left.column(name), left_index))
        else:
            sources.append((right.column(pairs[name]), right_index) if name in pairs else (None, None))
    for field in payload(join.right_schema, join.right_keys):
        sources.append((right.column(field.name), right_index) if right.num_rows else (None, None))
    columns = [
        pa.nulls(len(left_rows), field.type) if column is None else _cast(take(one_chunk(column), index), field.type)
        for field, (column, index) in zip(join.schema, sources, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=join.schema)


def flat(table: pa.Table) -> pa.Table:
    """One chunk per column, so that a take of pairs does not look for the chunk of each."""
    return pa.Table.from_arrays([one_chunk(column) for column in table.columns], schema=table.schema)


def row_indices(rows: Ints) -> pa.Array:
    """Indices for ``take``: null for no row."""
    return pa.array(rows, mask=rows < 0) if len(rows) and rows.min() < 0 else pa.array(rows)


def _cast(column: Any, type_: pa.DataType) -> Any:
    return column if column.type == type_ else column.cast(type_)


def _parts(rows: Ints, at_once: int) -> Iterator[Ints]:
    for low in range(0, len(rows), at_once):
        yield rows[low : low + at_once]


def pairs_at_once(table: pa.Table) -> int:
    """Output rows per batch: about 4 MiB of this side's rows."""
    row_bytes = table.nbytes / max(table.num_rows, 1)
    return int(min(max(_OUTPUT_BYTES / max(row_bytes, 1), _MIN_PAIRS), _MAX_PAIRS))


def emit(table: pa.Table, rows: Ints) -> Batches:
    for part in _parts(rows, pairs_at_once(table)):
        yield from take_rows(table, part).to_batches()

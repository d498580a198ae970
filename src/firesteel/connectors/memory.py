"""Sources of what is in the driver's memory already (Arrow tables, pandas frames, Python collections), and of ranges of numbers.

Each split carries its own rows (Arrow IPC), so that only the subtask that reads it receives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.connectors.base import Split
from firesteel.connectors.files.paths import first_line
from firesteel.connectors.files.reading.source import piece_bytes
from firesteel.errors import UsageError
from firesteel.humanize import check_once
from firesteel.task.functions.python_values import exact_array, record_fields
from firesteel.task.program import TaskContext

LEAST_COMPRESSED = 16 << 10
"""Bytes of a piece. Smaller ones cost more to compress than they save."""
_PIECES = 64
"""A small table is still cut into this many splits where it has the rows: a few rows may be much work."""


class TableSource:
    """The rows of a table. ``table``: anything :func:`as_table` takes."""

    supports_concurrent_execution_attempts = True

    def __init__(self, table: Any, name: str = "from_arrow") -> None:
        data = as_table(table)
        self._table: pa.Table | None = data
        self.name = name
        self.schema: pa.Schema = data.schema

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}  # the rows travel in the splits

    def list_splits(self, data_volume: int) -> list[Split]:
        assert self._table is not None, "list_splits is called on the driver"
        rows, size = self._table.num_rows, self._table.nbytes
        count = min(rows, max(_PIECES, -(-size // piece_bytes(size, data_volume))))
        bounds = [rows * i // count for i in range(count + 1)] if count else []
        return [self._split(a, b) for a, b in pairwise(bounds)]

    def _split(self, start: int, end: int) -> Split:
        assert self._table is not None
        piece = self._table.slice(start, end - start)
        stream = pa.BufferOutputStream()
        codec = "lz4" if piece.nbytes >= LEAST_COMPRESSED else None
        with pa.ipc.new_stream(stream, self.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(piece, max_chunksize=1 << 16)
        return Split(stream.getvalue().to_pybytes(), max(piece.nbytes, 1), f"{self.name}, rows {start}-{end}")

    def read(self, split: bytes, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        ctx.place = self.name
        yield from pa.ipc.open_stream(split)


def as_table(data: Any) -> pa.Table:
    """A table of a Table, RecordBatch, RecordBatchReader, or an iterable of batches (at least one). Raises UsageError."""
    try:
        if isinstance(data, pa.RecordBatch):
            table = pa.Table.from_batches([data])
        elif isinstance(data, pa.Table):
            table = data
        elif isinstance(data, pa.RecordBatchReader):
            table = data.read_all()
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.table(data)
        else:
            table = pa.Table.from_batches(list(data))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(
            f"A {type(data).__name__} cannot be read as an Arrow table: {first_line(error)}.",
            hint="Give a pyarrow.Table, RecordBatch, RecordBatchReader or a list of RecordBatches.",
        ) from None
    check_once(table.column_names, lambda twice: f"The table has two columns '{twice}'.", "Rename one of them.")
    return table.replace_schema_metadata(None).unify_dictionaries()


def table_from_pandas(frame: Any, schema: pa.Schema | None = None) -> pa.Table:
    """The columns of a DataFrame, without its index. Raises UsageError naming the column that has no Arrow type."""
    if not (hasattr(frame, "columns") and hasattr(frame, "iloc")):
        raise UsageError(
            f"from_pandas wants a pandas DataFrame, not a {type(frame).__name__}.",
            hint="See from_collection, from_arrow and from_dataframe.",
        )
    names = list(frame.columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise UsageError(
            f"The column name {odd[0]!r} of the DataFrame is not a string.",
            hint="frame.columns = frame.columns.map(str) makes it one.",
        )
    try:
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        why = "; ".join(str(arg) for arg in error.args) or type(error).__name__
        raise UsageError(
            f"The DataFrame cannot be turned into an Arrow table: {why}.", hint="Convert the column, or give a schema."
        ) from None
    return as_table(table)


def table_from_collection(rows: Iterable[Any], schema: pa.Schema | Sequence[str] | None = None) -> pa.Table:
    """A table of Python values: dicts, instances of dataclasses, tuples or lists (named by ``schema``), named tuples, or scalars (column
    ``value``).

    ``schema``: a ``pyarrow.Schema``, or names only, the types being inferred from all rows. A dict may lack keys (null).
    Raises UsageError naming the row (counted from 0) and the column that does not fit.
    """
    rows = [record_fields(row) if is_dataclass(row) and not isinstance(row, type) else row for row in rows]
    typed: Any = schema if isinstance(schema, pa.Schema) else None
    names: list[Any] | None = typed.names if typed is not None else list(schema) if schema is not None else None
    if not rows and typed is None:
        raise UsageError("An empty collection has no types.", hint="Give from_collection a schema with types.")
    names, columns = _columns(rows, names)
    arrays = [
        _array(values, typed.field(i).type if typed is not None else None, names[i]) for i, values in enumerate(columns)
    ]
    if typed is not None:
        return as_table(pa.Table.from_arrays(arrays, schema=typed))
    return as_table(pa.Table.from_arrays(arrays, names=names))


def _columns(rows: list[Any], names: list[Any] | None) -> tuple[list[Any], list[list[Any]]]:
    first = next((row for row in rows if row is not None), None)
    if isinstance(first, Mapping):
        if names is None:
            _expect(rows, lambda row: isinstance(row, Mapping), "a dict, as the first row is")
            names = list(dict.fromkeys(key for row in rows for key in row))
        known = set(names)
        _expect(
            rows,
            lambda row: isinstance(row, Mapping) and known.issuperset(row),
            f"a dict with no other keys than {', '.join(map(str, names))}",
        )
        odd = next((name for name in names if not isinstance(name, str)), None)
        if odd is not None:
            raise UsageError(f"The key {odd!r} is not a string, so it cannot name a column.", hint="Use string keys.")
        return names, [[row.get(name) for row in rows] for name in names]
    if isinstance(first, tuple | list) and (names is None or len(names) > 1 or isinstance(first, tuple)):
        names = names or list(getattr(first, "_fields", ())) or [f"_{i + 1}" for i in range(len(first))]
        width = len(names)
        _expect(
            rows,
            lambda row: isinstance(row, tuple | list) and len(row) == width,
            f"a tuple of {width} values ({', '.join(names)})",
        )
        return names, [list(column) for column in zip(*rows, strict=True)]
    names = names or ["value"]
    if rows and len(names) != 1:
        raise UsageError(
            f"Row 0 of the collection is {_show(rows[0])}, not a tuple of {len(names)} values ({', '.join(names)}).",
            hint="Give a dict or tuple a row.",
        )
    return names, [rows] if rows else [[] for _ in names]


def _expect(rows: list[Any], fits: Callable[[Any], bool], what: str) -> None:
    for i, row in enumerate(rows):
        if not fits(row):
            raise UsageError(f"Row {i} of the collection is {_show(row)}, not {what}.")


def _array(values: list[Any], data_type: pa.DataType | None, name: str) -> pa.Array:
    try:
        return _made(values, data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        row = _first_bad(values, data_type)
        as_what = f"as {data_type}" if data_type is not None else "with the rows before it"
        raise UsageError(
            f"Row {row} of the collection does not fit: column '{name}' is {_show(values[row])}, which cannot be read {as_what} ({first_line(error)}).",
            hint="Correct the row, or give a schema that fits all rows.",
        ) from None


def _made(values: list[Any], data_type: pa.DataType | None) -> pa.Array:
    return pa.array(values) if data_type is None else exact_array(values, data_type)


def _first_bad(values: list[Any], data_type: pa.DataType | None) -> int:
    """The last row of the shortest beginning that cannot be converted, by halving."""
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _made(values[:middle], data_type)
            good = middle
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            bad = middle
    return bad - 1


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_BATCH_ROWS = 1 << 16
_WIDTH = 8


class RangeSource:
    """The column ``id``: so many bigints from ``start`` on, ``step`` apart, all of which fit."""

    supports_concurrent_execution_attempts = True
    name = "range"
    schema = pa.schema([("id", pa.int64())])

    def __init__(self, start: int, step: int, count: int) -> None:
        self._start, self._step, self._count = start, step, count

    def list_splits(self, data_volume: int) -> list[Split]:
        """By the rows' numbers."""
        size = self._count * _WIDTH
        pieces = -(-size // piece_bytes(size, data_volume))
        bounds = [self._count * i // pieces for i in range(pieces + 1)] if pieces else []
        return [Split((a, b), (b - a) * _WIDTH, f"rows {a}-{b} of a range") for a, b in pairwise(bounds)]

    def read(self, split: tuple[int, int], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        begin, end = split
        ctx.place = f"rows {begin}-{end} of a range"
        for first in range(begin, end, _BATCH_ROWS):
            numbers = np.arange(min(_BATCH_ROWS, end - first), dtype=np.int64) * self._step
            numbers += self._start + first * self._step
            yield pa.record_batch([pa.array(numbers)], schema=self.schema)

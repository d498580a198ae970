"""Sources of a local run: rows that were given, and the first rows of a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import Source, Split
from firesteel.connectors.memory import as_table, table_from_collection, table_from_pandas
from firesteel.errors import UsageError
from firesteel.task.program import TaskContext

_BATCH_ROWS = 1 << 16


class GivenRows:
    """The rows of a table, as one split."""

    supports_concurrent_execution_attempts = True

    def __init__(self, name: str, table: pa.Table) -> None:
        self.name = name
        self.schema: pa.Schema = table.schema
        self._table = table

    def list_splits(self, data_volume: int) -> list[Split]:
        return [Split(None, max(self._table.nbytes, 1), self.name)]

    def read(self, split: None, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches(_BATCH_ROWS)


class FirstRows:
    """The first rows of a source, in the order of its splits. Nothing is pushed into the source: they are its first ones as it is."""

    supports_concurrent_execution_attempts = True

    def __init__(self, source: Source, rows: int) -> None:
        self.name = source.name
        self.schema = source.schema
        self._source, self._rows = source, rows

    def list_splits(self, data_volume: int) -> list[Split]:
        """Returns one; the source's own are listed when it is read."""
        return [Split(data_volume, 1, self.name)]

    def read(self, split: int, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        left = self._rows
        for one in self._source.list_splits(split) if left else ():
            ctx.place = one.description
            for batch in self._source.read(one.payload, ctx):
                yield batch.slice(0, left)
                left -= batch.num_rows
                if left <= 0:
                    return


def table_of(rows: Any, schema: pa.Schema) -> pa.Table:
    """The rows (dicts, tuples, a table, a pandas frame) as a table of this schema. Raises UsageError for those that do not fit."""
    if hasattr(rows, "iloc"):
        table = table_from_pandas(rows, schema)
    elif isinstance(rows, pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__"):
        table = _cast(as_table(rows), schema)
    else:
        table = table_from_collection(rows, schema)
    for field, column in zip(schema, table.columns, strict=True):
        if column.null_count and not field.nullable:
            row = pc.index(column.is_null(), True).as_py()
            raise UsageError(f"column '{field.name}' is null in row {row}, and its schema says NOT NULL.")
    return table


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if set(table.column_names) != set(schema.names):
        raise UsageError(
            f"The table has the columns {', '.join(table.column_names)}, and the step {', '.join(schema.names)}."
        )
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(f"The table does not fit {schema.to_string(show_schema_metadata=False)!r}: {error}") from None

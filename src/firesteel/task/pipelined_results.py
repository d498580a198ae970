"""Batches of a pipelined result, passed between two parts of one task as the reader pulls them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from firesteel.errors import FiresteelError
from firesteel.results.plain import TooManyValues, from_stored, stored_type, to_stored
from firesteel.task.program import Batches


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

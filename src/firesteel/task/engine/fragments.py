"""Queries as steps: of a stream of rows, of all rows of a run of keys, of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from firesteel.task.engine.connection import conformed, run
from firesteel.task.engine.files import scan_of
from firesteel.task.program import Batches, FileRows, TaskContext, UnitInput

INPUT = "input"
"""The name of the rows in the text; those of several inputs are ``input0``, ``input1``."""


@dataclass(frozen=True, slots=True)
class SqlFragment:
    """A query on the rows of the step before it, once for each subtask, also of no rows. ``sides``: inputs read whole."""

    name: str
    sql: str
    reads: pa.Schema
    schema: pa.Schema
    sides: tuple[str, ...] = ()
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        return run(self.sql, {INPUT: (self.reads, _cast(batches, self.reads))}, self._tables(ctx), self.schema, ctx)

    def apply_files(self, files: Sequence[FileRows], ctx: TaskContext) -> Batches:
        """The same of the rows of files, which the engine reads itself."""
        if not files:
            return self.apply(iter(()), ctx)
        return run(self.sql, {}, {**self._tables(ctx), INPUT: scan_of(files, self.reads)}, self.schema, ctx)

    def _tables(self, ctx: TaskContext) -> dict[str, pa.Table]:
        return {name: ctx.side_inputs[name] for name in self.sides}


@dataclass(frozen=True, slots=True)
class SqlOfKeys:
    """A query on all rows of a run of keys, of one or several inputs. Keys empty: on all rows there are.

    The engine itself spills what does not fit in memory, so nothing is cut into units before.
    """

    name: str
    sql: str
    keys: tuple[tuple[str, ...], ...]
    reads: tuple[pa.Schema, ...]
    schema: pa.Schema
    takes_all: ClassVar[bool] = True

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        """Takes inputs of any size."""
        return True

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        streams = {
            f"{INPUT}{i}": (reads, _cast(one.batches(), reads))
            for i, (one, reads) in enumerate(zip(inputs, self.reads, strict=True))
        }
        return run(self.sql, streams, {}, self.schema, ctx)


def _cast(batches: Batches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of ``schema`` alone, whatever else is there."""
    for batch in batches:
        yield batch if batch.schema.equals(schema) else conformed(batch.select(schema.names), schema)

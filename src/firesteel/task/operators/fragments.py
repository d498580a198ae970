"""Queries as steps: of a stream of rows, of all rows of a run of keys, of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from firesteel.engine.connection import SPILLED, EngineSettings, run
from firesteel.engine.convert import conformed
from firesteel.engine.files import FileRows, by_place, scan_of
from firesteel.task.executor.place import here
from firesteel.task.program import Batches, TaskContext, UnitInput

INPUT = "input"
"""The name of the rows in the text; those of several inputs are ``input0``, ``input1``."""
_ALL = "input_all"
"""Their name before those are left out that match no key."""


@dataclass(frozen=True, slots=True)
class SqlFragment:
    """A query on the rows of the step before it, once for each subtask, also of no rows. ``sides``: inputs read whole.

    ``names``: of the columns of ``reads`` in the text; empty: ``c0``, ``c1``, ... by their places. What comes out is named by ``schema``, by place.
    """

    name: str
    sql: str
    reads: pa.Schema
    schema: pa.Schema
    sides: tuple[str, ...] = ()
    passed: Mapping[str, str] = field(default_factory=dict)
    """By column that of ``reads`` which it is, if rows of one value are made of rows of this value alone."""
    selective: bool = True
    """It is there to drop rows: what it leaves is likely not every key."""
    keys: tuple[pa.Table, ...] = ()
    """Rows of ``reads`` are left out before all else whose values of these columns are not in the table."""
    names: tuple[str, ...] = ()
    unitwise: ClassVar[bool] = False

    def with_keys(self, keys: Sequence[pa.Table]) -> SqlFragment:
        """The same of rows alone whose values are in each of these tables."""
        return replace(self, keys=(*self.keys, *keys))

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        rows = {self._rows: (self._named, _cast(batches, self.reads))}
        return run(self._query(), rows, self._tables(ctx), self.schema, settings_of(ctx))

    def apply_files(self, files: Sequence[FileRows], ctx: TaskContext) -> Batches:
        """The same of the rows of files, which the engine reads itself."""
        if not files:
            return self.apply(iter(()), ctx)
        scan = scan_of(files, dict(zip(self.reads.names, self._named.names, strict=True)))
        read = {one.path for one in files}
        return run(self._query(scan), {}, self._tables(ctx), self.schema, settings_of(ctx), files=read)

    @property
    def _named(self) -> pa.Schema:
        return _named(self.reads, self.names)

    @property
    def _rows(self) -> str:
        return _ALL if self.keys else INPUT

    def _query(self, scan: str = "") -> str:
        """``scan``: the query that gives the rows, if nothing of their name is registered."""
        named = [f"{self._rows} AS NOT MATERIALIZED ({scan})"] if scan else []
        if self.keys:
            columns = [", ".join(table.column_names) for table in self._keys()]
            matches = " ".join(f"SEMI JOIN keys_{i} USING ({names})" for i, names in enumerate(columns))
            named.append(f"{INPUT} AS (SELECT * FROM {_ALL} {matches})")
        return f"WITH {', '.join(named)} {self.sql}" if named else self.sql

    def _tables(self, ctx: TaskContext) -> dict[str, pa.Table]:
        sides = {name: ctx.side_inputs[name] for name in self.sides}
        return {**sides, **{f"keys_{i}": table for i, table in enumerate(self._keys())}}

    def _keys(self) -> list[pa.Table]:
        names = dict(zip(self.reads.names, self._named.names, strict=True))
        return [table.rename_columns([names[name] for name in table.column_names]) for table in self.keys]


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
    passed: tuple[Mapping[str, str], ...] = ()
    """Per input, by column that of the input which it is, or is equal to, if rows of one value are made of its rows of this value
    alone."""
    names: tuple[tuple[str, ...], ...] = ()
    """Per input, as of :class:`SqlFragment`."""
    takes_all: ClassVar[bool] = True

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        """Takes inputs of any size."""
        return True

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        streams = {
            f"{INPUT}{i}": (_named(reads, self.names[i] if self.names else ()), _cast(one.batches(), reads))
            for i, (one, reads) in enumerate(zip(inputs, self.reads, strict=True))
        }
        return run(self.sql, streams, {}, self.schema, settings_of(ctx))


def settings_of(ctx: TaskContext) -> EngineSettings:
    """The engine of a task: it may hold half of the task's memory, and spills into the worker's scratch directory."""
    memory = max(ctx.memory_budget // 2, 64 << 20)
    return EngineSettings(ctx.scratch / SPILLED, memory, ctx.engine, here().host)


def _named(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field.with_name(name) for field, name in zip(schema, names or by_place(schema), strict=True)])


def _cast(batches: Batches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of ``schema`` alone, whatever else is there."""
    for batch in batches:
        yield batch if batch.schema.equals(schema) else conformed(batch.select(schema.names), schema)

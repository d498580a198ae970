"""The work of tasks for a merge: keys are looked at, files rewritten without the rows whose keys came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import pyarrow as pa

from firesteel.connectors.files.shaping import fit
from firesteel.connectors.merging.folder import FILE, Reader
from firesteel.errors import UsageError
from firesteel.task.batches import coalesce
from firesteel.task.operators.grouping import Groups, encode, key_columns
from firesteel.task.operators.join import only_of
from firesteel.task.program import Batches, TaskContext, UnitInput

ROWS = "__firesteel_rows"
"""The column that tells how many rows of the stream have a key."""


@dataclass(frozen=True, slots=True)
class OneRowAKey:
    """Passes keys on that are in one row (``ROWS``). Raises UsageError for others, and for keys with a null."""

    name: str
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in batches:
            keys = batch.select(self.schema.names)
            for name in keys.schema.names:
                if keys.column(name).null_count:
                    row = int(np.argmax(np.asarray(keys.column(name).is_null())))
                    raise UsageError(
                        f"{self.name}: the key column '{name}' is null in a row of the stream ({_words(keys, row)}), which no key equals.",
                        hint=f"Leave such rows out: drop_nulls('{name}'), or write them with mode='append'.",
                    )
            counts = np.asarray(batch.column(ROWS))
            if len(counts) and counts.max() > 1:
                row = int(counts.argmax())
                raise UsageError(
                    f"{self.name}: {counts[row]} rows of the stream have the key {_words(keys, row)}; which of them shall stay is not said.",
                    hint="Keep one row of each key: drop_duplicates(...), or key_by(...) with an aggregation.",
                )
            yield keys


def _words(keys: pa.RecordBatch, row: int) -> str:
    return ", ".join(f"{name}={keys.column(name)[row].as_py()!r}" for name in keys.schema.names)


@dataclass(frozen=True, slots=True)
class NoRows:
    """Takes all rows in and gives none, of ``schema``: for what the step before it finds."""

    name: str
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for _ in batches:
            pass
        yield from ()


@dataclass(frozen=True, slots=True)
class RewriteFiles:
    """Reads files again in which keys were found: the rows with other keys, and for each file one row of nulls that names it."""

    name: str
    key: tuple[str, ...]
    schema: pa.Schema
    reader: Reader
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return ((FILE,),)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return coalesce(self._rewritten(inputs[0], ctx))

    def _rewritten(self, unit: UnitInput, ctx: TaskContext) -> Batches:
        table = unit.table()
        if not table.num_rows:
            return
        groups = Groups(table, *encode(key_columns(table, (FILE,)), nulls_match=True))
        for code in groups.codes():
            found = groups.of(code)
            name = found.column(FILE)[0].as_py()
            yield _marks([name], self.schema)
            batches = iter(self.reader.read(name, ctx))
            first = next(batches, None)
            if first is not None:
                others = only_of(found.select(self.key), self.key, first.schema, "anti").apply(
                    chain([first], batches), ctx
                )
                yield from (_unmarked(batch, self.schema) for batch in others)


def _marks(names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.nulls(len(names), field.type) for field in schema if field.name != FILE]
    return pa.RecordBatch.from_arrays([*columns, pa.array(names, pa.string())], schema=schema)


def _unmarked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = fit(batch, pa.schema([field for field in schema if field.name != FILE]))
    return pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, pa.string())], schema=schema)

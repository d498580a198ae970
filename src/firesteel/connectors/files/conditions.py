"""Filters that a source applies itself: which columns they look at, and rows filtered on the task's one core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from firesteel.connectors.files.paths import first_line
from firesteel.errors import UsageError
from firesteel.humanize import first_of
from firesteel.task.expressions import referenced_columns


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter, the columns it looks at, and whether statistics tell the truth about it. ``rejects_null``: it looks at one column,
    and a null there does not pass."""

    expression: pc.Expression
    columns: tuple[str, ...]
    prunes: bool
    rejects_null: bool


def condition(expression: Any, schema: pa.Schema, name: str) -> Condition:
    """The filter ``expression`` of the source ``name``. Raises UsageError when it does not fit the schema."""
    if not isinstance(expression, pc.Expression):
        what = type(expression).__name__
        raise UsageError(
            f"The filter of {name} is a {what}, not an expression.",
            hint='Write one with col and lit, e.g. col("n") > 3.',
        )
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"The filter {expression} does not fit {name}: {first_line(error)}.",
            hint=f"Its columns: {first_of(schema.names)}.",
        ) from None
    reads = referenced_columns([expression], schema)
    columns = tuple(name for name in schema.names if name in reads)
    # NaNs are left out of a row group's minimum and maximum, so ~(x > 5) or x != 7 would drop row groups whose NaNs it keeps.
    prunes = not has_type([schema.field(column) for column in columns], pa.types.is_floating)
    nothing = pa.table({column: pa.nulls(1, schema.field(column).type) for column in columns})
    rejects_null = len(columns) == 1 and nothing.filter(expression).num_rows == 0
    return Condition(expression, columns, prunes, rejects_null)


def filter_batch(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> list[pa.RecordBatch]:
    """Rows for which all hold, in order. On this thread alone: the task has one core."""
    if not conditions:
        return [batch]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    steps = [acero.Declaration("filter", acero.FilterNodeOptions(part.expression)) for part in conditions]
    kept = acero.Declaration.from_sequence([source, *steps]).to_table(use_threads=False)
    return [part for part in kept.combine_chunks().to_batches() if part.num_rows]


def has_type(fields: Iterable[pa.Field], kind: Callable[[pa.DataType], bool]) -> bool:
    """True if a type of this kind is among the fields' types, or inside one."""
    for field in fields:
        data_type = field.type
        if kind(data_type):
            return True
        if pa.types.is_dictionary(data_type) and kind(data_type.value_type):
            return True
        if pa.types.is_nested(data_type) and has_type([data_type.field(i) for i in range(data_type.num_fields)], kind):
            return True
    return False

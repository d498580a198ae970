"""Pivots: aggregates for each of some values of a column, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.steps import keyed
from firesteel.api.steps.aggregates import agg
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.aggregates.written import calls, prepared, with_condition
from firesteel.api.steps.common import step_at
from firesteel.api.steps.keyed import Keyed
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.projection import project
from firesteel.api.steps.spark_columns import plain_names
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.task.expressions import column
from firesteel.task.functions.rows import fits
from firesteel.task.operators.aggregation.aggregate import is_number
from firesteel.task.operators.relational import check_columns

MOST_VALUES = 10_000
"""As in Spark (``spark.sql.pivotMaxValues``)."""


@dataclass(frozen=True, slots=True)
class Pivot:
    keyed: Keyed
    column: str
    values: tuple[Any, ...]

    @property
    def pipeline(self) -> Pipeline:
        return self.keyed.pipeline

    def over(self, pipeline: Pipeline) -> Pivot:
        """The same of other rows, which have these columns too."""
        return replace(self, keyed=replace(self.keyed, pipeline=pipeline))

    def aggregate(self, given: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
        with step_at("pivot.aggregate") as place:
            return self.aggregated(calls(given, named, "aggregate", self.keyed.schema), place)

    def count(self) -> Pipeline:
        with step_at("pivot.count") as place:
            return self.aggregated([("count", agg.count())], place)

    def aggregated(self, written: Sequence[tuple[str, AggregateCall]], place: str) -> Pipeline:
        """The keys, and for each value these aggregates."""
        pipeline, keys = self.keyed.pipeline, self.keyed.keys
        pipeline.refuse_sides("pivot")
        schema = pipeline.schema
        many: list[tuple[str, AggregateCall]] = []
        rows_of: dict[str, str] = {}
        for number, value in enumerate(self.values):
            condition, label, rows = _equals(schema.field(self.column), value), said(value), f"__rows{number}"
            for output, call in written:
                name = label if len(written) == 1 else f"{label}_{output}"
                many.append((name, with_condition(call, condition, schema, "aggregate")))
                rows_of[name] = rows
            many.append((rows, agg.count().where(condition)))
        twice = named_twice([*keys, *(name for name, _ in many)])
        if twice is not None:
            raise UsageError(f"pivot makes the column '{twice}' twice.", hint="Name the aggregates otherwise.")
        out = keyed.aggregated(pipeline, keys, prepared(many, schema, "aggregate"), place)
        types = {name: out.schema.field(name).type for name in rows_of}
        found = {name: column(name) for name in rows_of}
        if all(is_number(type_) or pa.types.is_boolean(type_) for type_ in types.values()):
            found = {name: _where_there(column(name), column(rows), types[name]) for name, rows in rows_of.items()}
        pairs = [*((key, column(key)) for key in keys), *found.items()]
        return project(out, f"pivot({self.column})", pairs, place)


def pivot(keyed: Keyed, given: Any, values: Any) -> Pivot:
    with step_at("pivot"):
        (name,) = plain_names([given], "pivot")
        check_columns(keyed.schema, [name], "pivot")
        if values is None or isinstance(values, str):
            raise UsageError(
                "pivot wants the values that become columns.",
                hint=f'Name them: pivot("{name}", values=[...]). '
                f'key_by("{name}").count().collect() tells which there are.',
            )
        found = tuple(cast(Sequence[Any], values))
        if not found or len(found) > MOST_VALUES:
            raise UsageError(f"pivot takes 1 to {MOST_VALUES:,} values, not {len(found):,}.")
        type_ = keyed.schema.field(name).type
        wrong = next((value for value in found if value is not None and not fits(value, type_)), None)
        if wrong is not None or pa.types.is_nested(type_):
            raise UsageError(
                f"{wrong!r} is not a value for pivot of '{name}', which is {type_}.",
                hint=f"A pivot of {type_} is not done: make it a text before, by with_column()."
                if pa.types.is_nested(type_)
                else f"Give values of that type, or cast the column to that of {wrong!r} before, by with_column().",
            )
        if name in keyed.keys:
            raise UsageError(f"pivot of '{name}', which is a key already.", hint="Leave it out of key_by.")
        return Pivot(keyed, name, found)


def _equals(field: pa.Field, value: Any) -> pc.Expression:
    if value is None:
        return pc.field(field.name).is_null()
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    one = pc.field(field.name).cast(plain) if plain != field.type else pc.field(field.name)
    return one == pc.scalar(pa.scalar(value, plain))


def _where_there(value: pc.Expression, rows: pc.Expression, type_: pa.DataType) -> pc.Expression:
    """Null where there is no row of the key with the value: as Spark has it as long as all aggregates are numbers or booleans."""
    nothing: Any = pc.scalar(pa.scalar(None, type_))
    return pc.if_else(rows > 0, value, nothing)


def said(value: Any) -> str:
    """The column's name, as Spark has it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)

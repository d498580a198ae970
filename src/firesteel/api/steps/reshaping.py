"""Rows made of rows: elements of lists and maps, and columns that become rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import plain_names
from firesteel.compile.relations import groups
from firesteel.compile.stream_graph import ChainedStep
from firesteel.engine.convert import opaque
from firesteel.errors import UsageError
from firesteel.humanize import check_once, first_of
from firesteel.plan.expr import Expr
from firesteel.plan.relation import Generate
from firesteel.plan.types import handed_on
from firesteel.task.operators.fragments import RowsOfRow
from firesteel.task.operators.relational import Expand, check_columns


def explode(pipeline: Pipeline, column: Any, into: Any, *, position: bool, outer: bool) -> Pipeline:
    """``into``: the name of the element (None: the column's), or of a map's key and value (None: ``key``, ``value``)."""
    step = f"{'pos' * position}explode{'_outer' * outer}"
    with step_at(step) as place:
        pipeline.refuse_sides(step)
        (name,) = plain_names([column], step)
        schema = pipeline.schema
        check_columns(schema, [name], step)
        types = element_types(schema.field(name).type)
        if types is None:
            raise UsageError(
                f"{step} wants a list or a map, and '{name}' is {schema.field(name).type}.",
                hint="Text is split by pc.split_pattern(col(...), pattern=...), a struct's fields are col(name, field).",
            )
        names = _element_names(step, name, into, len(types))
        fields = [field for field in schema if field.name != name]
        fields += [pa.field("pos", pa.int32())] * position
        fields += [pa.field(n, type_) for n, type_ in zip(names, types, strict=True)]
        made = _schema_of(step, fields)
        stream = groups.stream_of(pipeline.node, schema.names, step, opaque)
        columns = groups.columns_of(stream, schema.names)
        inner = [handed_on(opaque(type_)) for type_ in types]
        of = {"type": "array", "elementType": inner[0]}
        if len(inner) == 2:
            of = {"type": "map", "keyType": inner[0], "valueType": inner[1]}
        passed = {n: n for n in schema.names if n != name}
        output = {f"o{place}": kind for place, kind in enumerate([*["integer"] * position, *inner])}
        generator = Expr("PosExplode" if position else "Explode", {"child": replace(columns[name], type=of)})
        relation = Generate(stream, generator, tuple(columns[n].id for n in passed), output, outer)
        kind, text = f"{step}({name})", groups.text_of(relation)
        operator = RowsOfRow(kind, text, schema, made, (), passed, selective=False, raises=False, computes=False)
        return pipeline.then(kind, ChainedStep(operator, passed), made, place)


def element_types(type_: pa.DataType) -> tuple[pa.DataType, ...] | None:
    """The types of a list's elements, or of a map's keys and values; None for another type."""
    types = pa.types
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return element_types(type_.value_type)
    if types.is_map(type_):
        return type_.key_type, type_.item_type
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return (type_.value_type,) if any(is_such(type_) for is_such in lists) else None


def _element_names(step: str, column: str, into: Any, many: int) -> list[str]:
    if into is None:
        return [column] if many == 1 else ["key", "value"]
    names = list(cast(Sequence[Any], into)) if isinstance(into, list | tuple) else [into]
    if len(names) != many or not all(isinstance(name, str) for name in names):
        wanted = 'one name: into="x"' if many == 1 else 'two names: into=("key", "value")'
        raise UsageError(f"{step} of '{column}' wants {wanted}, not {into!r}.")
    return names


def unpivot(pipeline: Pipeline, ids: Any, values: Any, variable: str, value: str) -> Pipeline:
    with step_at("unpivot") as place:
        pipeline.refuse_sides("unpivot")
        schema = pipeline.schema
        kept = _names(schema, ids)
        named = [name for name in schema.names if name not in kept] if values is None else _names(schema, values)
        if not named:
            raise UsageError("unpivot has no columns of values.", hint='Write unpivot("id", ["a", "b"]).')
        types = {schema.field(name).type for name in named}
        if len(types) > 1:
            told = first_of([f"{name} {schema.field(name).type}" for name in named])
            raise UsageError(
                f"unpivot puts columns of one type under each other, and these differ: {told}.",
                hint=f'Cast them: with_columns({named[0]}=col("{named[0]}").cast("double")).',
            )
        fields = [schema.field(name) for name in kept]
        fields += [pa.field(variable, pa.string(), nullable=False), pa.field(value, types.pop())]
        made = _schema_of("unpivot", fields)
        kind = f"unpivot({first_of(named, 4)})"
        expand = Expand(kind, tuple((*kept, (name,), name) for name in named), made)
        return pipeline.then(kind, ChainedStep(expand, {name: name for name in kept}), made, place)


def _names(schema: pa.Schema, given: Any) -> list[str]:
    columns = list(cast(Sequence[Any], given)) if isinstance(given, list | tuple) else [given]
    names = plain_names(columns, "unpivot")
    check_columns(schema, names, "unpivot")
    check_once(names, lambda twice: f"unpivot names the column '{twice}' twice.")
    return names


def _schema_of(step: str, fields: list[pa.Field]) -> pa.Schema:
    check_once(
        (field.name for field in fields),
        lambda twice: f"{step} makes the column '{twice}', and there is one of that name.",
        "Rename one before, or give the new one another name.",
    )
    return pa.schema(fields)

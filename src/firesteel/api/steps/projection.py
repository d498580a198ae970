"""Projections: columns are chosen, computed, renamed and dropped, and nulls dropped or replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.column import Column
from firesteel.api.column import column as as_column
from firesteel.api.resolved import Resolved
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.common import step_at, unused_name
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import NotTranslated, by_name, is_spark_column, plain_names, translated
from firesteel.api.steps.window import NUMBERS, WindowFunction, WindowSpec, frame_of, spec_of, windowed, with_names
from firesteel.compile.stream_graph import ChainedStep, Selection
from firesteel.errors import UsageError
from firesteel.humanize import first_of
from firesteel.plan.analysis import attribute
from firesteel.plan.expr import Expr, replaced, walk
from firesteel.task.expressions import all_of, any_of, column, plain_column, referenced_columns
from firesteel.task.functions.rows import fits
from firesteel.task.operators.relational import (
    DropNulls,
    Filter,
    Project,
    as_expression,
    check_columns,
    check_filter,
    project_schema,
)

Computed = pc.Expression | Column
_MOST_IN_A_FILTER = 64
"""Columns that ``drop_nulls`` looks at as one expression, which a source can apply. Arrow takes time that grows with the
square of an expression's terms."""


def select(pipeline: Pipeline, columns: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
    with step_at("select") as place:
        schema = pipeline.schema
        flat = [c for given in columns for c in _spread(schema, given)]
        check_columns(schema, [c for c in flat if isinstance(c, str)], "select")
        pairs = [named_expression_of(schema, None, c, "select") for c in flat]
        pairs += [named_expression_of(schema, name, e, "select") for name, e in named.items()]
        if not pairs:
            raise UsageError("Nothing is selected.", hint="Name at least one column.")
        return project(pipeline, "select", pairs, place)


def _spread(schema: pa.Schema, given: Any) -> list[Any]:
    if isinstance(given, list | tuple):
        return list(cast(Sequence[Any], given))
    return list(schema.names) if isinstance(given, str) and given == "*" else [given]


def named_expression_of(schema: pa.Schema, name: str | None, given: Any, step: str) -> tuple[str, Computed]:
    """A column's name and expression, as a user wrote them. ``name`` None: its own. Raises UsageError."""
    return _named_column(schema, given) if name is None else (name, expression_of(schema, given, step))


def _named_column(schema: pa.Schema, given: Any) -> tuple[str, Computed]:
    if isinstance(given, str):
        return given, as_expression(given)
    expression = expression_of(schema, given, "select")
    if isinstance(expression, Column):
        named = expression.tree.cls in ("UnresolvedAttribute", "Alias")
        if is_spark_column(given) and not named:
            raise NotTranslated(f"Spark names the column {expression}.", hint="Add alias(name).")
        return Resolved.of(schema).name(with_names(expression, schema)), expression
    name = plain_column(expression, schema)
    if name is None:
        project_schema(schema, [("x", expression)])
        raise UsageError(f"The expression {expression} has no name.", hint=f"Write select(name={expression}).")
    return name, expression


def expression_of(schema: pa.Schema, value: Any, step: str) -> Computed:
    """The expression that a user wrote: of Arrow, or a Column, which may be one of PySpark translated. Raises UsageError."""
    if is_spark_column(value):
        value = translated(value, step, schema)
    if not isinstance(value, Column):
        return as_expression(value)
    plain = value.plain_name
    return column(plain) if plain is not None and schema.get_field_index(plain) >= 0 else value


def with_columns(pipeline: Pipeline, columns: Any, named: Mapping[str, Any], *, step: str = "with_columns") -> Pipeline:
    with step_at(step) as place:
        if columns is not None and not isinstance(columns, Mapping):
            raise UsageError(f"{step} wants a mapping of names to expressions, not {columns!r}.")
        new = {**cast(Mapping[str, Any], columns or {}), **named}
        if not new:
            raise UsageError(f"{step} has no column to add.", hint='Write with_columns(m=col("n") + 1).')
        return _with(pipeline, step, f"{step}({first_of(list(map(str, new)), 4)})", new, place)


def _with(pipeline: Pipeline, step: str, kind: str, new: Mapping[str, Any], place: str) -> Pipeline:
    for name, expression in new.items():
        check_name(name)
        if isinstance(expression, str):
            raise UsageError(
                f"{step} wants an expression, not the string {expression!r}.",
                hint=f"Write col({expression!r}) for the column, lit({expression!r}) for the text.",
            )
    columns: dict[str, Computed] = {n: column(n) for n in pipeline.names}
    columns |= {name: expression_of(pipeline.schema, expression, step) for name, expression in new.items()}
    return project(pipeline, kind, list(columns.items()), place)


def rename(pipeline: Pipeline, names: Any) -> Pipeline:
    with step_at("rename") as place:
        if not isinstance(names, Mapping):
            raise UsageError(f"rename wants a mapping, not {names!r}.", hint='Write rename({"old": "new"}).')
        return _renamed(pipeline, "rename", cast(Mapping[str, str], names), place)


def with_column_renamed(pipeline: Pipeline, existing: str, new: str) -> Pipeline:
    with step_at("with_column_renamed") as place:
        (existing,) = plain_names([existing], "with_column_renamed")
        check_columns(pipeline.schema, [existing], "with_column_renamed")
        return _renamed(pipeline, f"rename({existing} to {new})", {existing: new}, place)


def _renamed(pipeline: Pipeline, kind: str, names: Mapping[str, str], place: str) -> Pipeline:
    check_columns(pipeline.schema, list(names), "rename")
    for name in names.values():
        check_name(name)
    return project(pipeline, kind, [(names.get(n, n), column(n)) for n in pipeline.names], place)


def drop(pipeline: Pipeline, columns: Sequence[Any]) -> Pipeline:
    with step_at("drop") as place:
        names = plain_names(columns, "drop")
        check_columns(pipeline.schema, names, "drop")
        dropped = set(names)
        rest = [(n, column(n)) for n in pipeline.names if n not in dropped]
        if not rest:
            raise UsageError("No column would be left.")
        return project(pipeline, "drop", rest, place)


def project(pipeline: Pipeline, kind: str, pairs: Sequence[tuple[str, Computed]], place: str) -> Pipeline:
    """These columns of the rows: by Arrow, or, where one is a Column, by the engine."""
    pipeline.refuse_sides(kind)
    if any(isinstance(one, Column) for _, one in pairs):
        pipeline, pairs = _without_windows(pipeline, pairs, place)
        pipeline, pairs = _without_arrow(pipeline, kind, pairs, place)
        return _selected(pipeline, Resolved.of(pipeline.schema).selection(kind, pairs), place)
    columns = cast(tuple[tuple[str, pc.Expression], ...], tuple(pairs))
    schema, passed = project_schema(pipeline.schema, columns)
    work = ChainedStep(Project(kind, columns, schema), passed, columns)
    return pipeline.then(kind, work, schema, place)


def projected(schema: pa.Schema, pairs: Sequence[tuple[str, Computed]]) -> pa.Schema:
    """The schema of these columns. Raises UsageError."""
    fields: list[pa.Field] = []
    resolved = Resolved.of(schema)
    for name, one in pairs:
        if isinstance(one, Column):
            fields.append(pa.field(name, resolved.type_of(one)))
        else:
            fields += project_schema(schema, [(name, one)])[0]
    return pa.schema(fields)


def read_by(schema: pa.Schema, expressions: Sequence[Computed]) -> set[str]:
    """The columns of ``schema`` that these read."""
    found: set[str] = set()
    for one in expressions:
        nodes = walk(one.tree) if isinstance(one, Column) else [Expr("Arrow", {"expression": one})]
        found |= referenced_columns([node["expression"] for node in nodes if node.cls == "Arrow"], schema)
        names = [node["name"] for node in nodes if node.cls == "UnresolvedAttribute"]
        found |= {name if name in schema.names else name.partition(".")[0] for name in names}
    return found


def where(pipeline: Pipeline, condition: Column, place: str) -> Pipeline:
    """The rows for which the condition is true."""
    pipeline.refuse_sides("filter")
    names = pipeline.names
    rows, pairs = _without_arrow(pipeline, "filter", [("filter", condition)], place)
    kept = _selected(rows, Resolved.of(rows.schema).chosen("filter", cast(Column, pairs[0][1])), place)
    return kept if kept.names == names else chosen(kept, "filter", names, place)


def chosen(pipeline: Pipeline, kind: str, names: Sequence[str], place: str) -> Pipeline:
    """These columns of the rows."""
    return project(pipeline, kind, [(name, column(name)) for name in names], place)


def with_expressions(
    pipeline: Pipeline, columns: Sequence[Any], kind: str, place: str, *, spoken: bool = False
) -> tuple[Pipeline, list[Any]]:
    """The rows with a column for each Column that is an expression, and ``columns`` with its name in the place of it: Spark's if ``spoken``, else a
    name of no column. Raises UsageError."""
    schema, made = pipeline.schema, dict[str, Computed]()

    def name_of(one: Column) -> str:
        if one.plain_name in schema.names:
            return str(one.plain_name)
        if one.tree.cls == "Literal":
            raise UsageError(f"{kind} by the constant {one} has no effect here; in Spark it may mean a place.")
        name = Resolved.of(schema).name(one) if spoken else unused_name(f"__computed{len(made)}", schema.names)
        if name in schema.names:
            raise UsageError(f"There is a column '{name}' already.", hint="Add alias(name) with another one.")
        made[name] = one
        return name

    found = [by_name(one, name_of) for one in columns]
    if made:
        pipeline = project(pipeline, kind, [*((n, column(n)) for n in schema.names), *made.items()], place)
    return pipeline, found


def _selected(pipeline: Pipeline, selection: Selection, place: str) -> Pipeline:
    return pipeline.then(selection.kind, selection.step(), selection.schema, place)


def _without_arrow(
    pipeline: Pipeline, kind: str, pairs: Sequence[tuple[str, Computed]], place: str
) -> tuple[Pipeline, list[tuple[str, Computed]]]:
    """The same columns over rows in which those of Arrow's expressions that are more than a column are computed already."""
    schema, made = pipeline.schema, dict[str, pc.Expression]()

    def name_of(expression: pc.Expression) -> str:
        plain = plain_column(expression, schema)
        if plain is not None:
            return plain
        name = unused_name(f"__arrow{len(made)}", schema.names)
        made[name] = expression
        return name

    def named(node: Expr) -> Expr | None:
        return attribute(name_of(node["expression"])) if node.cls == "Arrow" else None

    found = [(n, Column(replaced(e.tree, named)) if isinstance(e, Column) else column(name_of(e))) for n, e in pairs]
    if made:
        pipeline = project(pipeline, kind, [*((n, column(n)) for n in schema.names), *made.items()], place)
    return pipeline, found


def _without_windows(
    pipeline: Pipeline, pairs: Sequence[tuple[str, Computed]], place: str
) -> tuple[Pipeline, list[tuple[str, Computed]]]:
    """The same columns over rows that have a column for each function over a window."""
    specs: dict[int, WindowSpec] = {}
    functions: dict[int, dict[str, WindowFunction | Aggregation]] = {}
    computed: dict[str, Computed] = {}
    schema = pipeline.schema

    def name_of(argument: Any, function: str) -> str:
        made = expression_of(schema, argument, "over")
        if function.startswith(("stddev", "var")):
            made = as_column(made).cast("double")
        plain = made.plain_name if isinstance(made, Column) else plain_column(made, schema)
        if plain is not None and plain in schema.names:
            return plain
        name = unused_name(f"__computed{len(computed)}", schema.names)
        computed[name] = made
        return name

    def named(node: Expr) -> Expr | None:
        if node.cls != "WindowOf":
            return None
        function, spec = node["function"], spec_of(node["spec"])
        if isinstance(function, AggregateCall):
            arguments = tuple(name_of(one, function.function) for one in function.arguments)
            function = Aggregation(function.function, arguments, "", given=function.given, sparks=True)
        elif function.column is not None:
            function = replace(function, column=name_of(function.column, function.kind))
        name = unused_name(f"__window{sum(map(len, functions.values()))}", schema.names)
        specs[id(spec)] = spec
        functions.setdefault(id(spec), {})[name] = function
        place = attribute(name)
        return Expr("UnresolvedCast", {"child": place}, "integer") if function.kind in NUMBERS else place

    found = [(n, Column(replaced(e.tree, named)) if isinstance(e, Column) else e) for n, e in pairs]
    for key, spec in specs.items():
        specs[key] = spec.named(lambda one: name_of(one, "over"))
    if computed:
        every = [*((n, column(n)) for n in schema.names), *computed.items()]
        pipeline = project(pipeline, "columns of windows", every, place)
    for key, spec in specs.items():
        keys = tuple(plain_names(spec.partition, "over"))
        check_columns(pipeline.schema, keys, "over")
        pipeline = windowed(pipeline, keys, functions[key], list(spec.order), place, frame_of(spec))
    return pipeline, found


# --- nulls ----------------------------------------------------------------------------------------------------------


def drop_nulls(pipeline: Pipeline, columns: Sequence[Any], how: str) -> Pipeline:
    with step_at("drop_nulls") as place:
        pipeline.refuse_sides("drop_nulls")
        if how not in ("any", "all"):
            raise UsageError(f"how={how!r} is not known.", hint='There are "any" and "all".')
        schema = pipeline.schema
        names = _named(schema, columns, "drop_nulls")
        kind = f"drop_nulls({first_of(names if columns else (), 4)})"
        if len(names) > _MOST_IN_A_FILTER:
            work = ChainedStep(DropNulls(kind, tuple(names), how), pipeline.unchanged)
            return pipeline.then(kind, work, schema, place)
        valid = [~pc.field(n).is_null(nan_is_null=_has_nan(schema.field(n).type)) for n in names]
        expression = all_of(valid) if how == "any" else any_of(valid)
        check_filter(schema, expression)
        work = ChainedStep(Filter(kind, expression), pipeline.unchanged, None, expression)
        return pipeline.then(kind, work, schema, place)


def fill_nulls(pipeline: Pipeline, value: Any, columns: Sequence[Any]) -> Pipeline:
    with step_at("fill_nulls") as place:
        schema = pipeline.schema
        values = _fillings(schema, value, columns)
        unfit = next((n for n, v in values.items() if not fits(v, schema.field(n).type)), None)
        if unfit is not None:
            raise UsageError(
                f"{values[unfit]!r} is not a value for column '{unfit}', which is {schema.field(unfit).type}.",
                hint="Give a value of its type, or name the columns to fill.",
            )
        filled = [(n, _filled(schema.field(n), values[n]) if n in values else column(n)) for n in schema.names]
        return project(pipeline, f"fill_nulls({first_of(list(values), 4)})", filled, place)


def subset_names(subset: Any) -> tuple[Any, ...]:
    """The columns that PySpark's ``subset=`` names: one, several or none."""
    return (subset,) if isinstance(subset, str) or is_spark_column(subset) else tuple(subset or ())


def _fillings(schema: pa.Schema, value: Any, columns: Sequence[Any]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        values = {str(n): v for n, v in cast(Mapping[Any, Any], value).items()}
        check_columns(schema, list(values), "fill_nulls")
    elif columns:
        values = dict.fromkeys(_named(schema, columns, "fill_nulls"), value)
    else:
        values = {field.name: value for field in schema if _of_its_kind(value, field.type)}
    if not values or any(v is None for v in values.values()):
        raise UsageError(
            f"fill_nulls has nothing to do: {'no column takes ' + repr(value) if value is not None else 'None is a null'}.",
            hint="Name the columns, or give a dict of a value per column.",
        )
    return values


def _filled(field: pa.Field, value: Any) -> pc.Expression:
    scalar = pc.scalar(pa.array([value], field.type)[0])
    if _has_nan(field.type):
        return pc.if_else(pc.field(field.name).is_null(nan_is_null=True), scalar, pc.field(field.name))
    return pc.coalesce(pc.field(field.name), scalar)


def _named(schema: pa.Schema, columns: Sequence[Any], step: str) -> list[str]:
    names = plain_names(columns, step)
    check_columns(schema, names, step)
    return list(names) or list(schema.names)


def check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise UsageError(f"The name of a column is a string, not {name!r}.")


def _has_nan(type_: pa.DataType) -> bool:
    return pa.types.is_floating(type_)


def _of_its_kind(value: Any, type_: pa.DataType) -> bool:
    types = pa.types
    if isinstance(value, bool):
        return types.is_boolean(type_)
    if isinstance(value, int | float):
        return types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
    if isinstance(value, str):
        return types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    try:
        return pa.scalar(value).type == type_
    except (pa.ArrowException, TypeError, ValueError):
        return False

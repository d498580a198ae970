"""Steps on columns: chosen, computed, renamed, dropped, and what stands in the place of nulls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.steps import step_at
from firesteel.api.stream_base import StreamBase
from firesteel.errors import UsageError
from firesteel.expressions import passed_columns, plain_column
from firesteel.graph.stream_graph import ChainedStep
from firesteel.operators.relational import (
    Filter,
    Project,
    as_expression,
    check_columns,
    check_filter,
    project_schema,
)
from firesteel.operators.rows import fits

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream


class Columns(StreamBase):
    """Steps on columns."""

    def select(self, *columns: Any, **named: Any) -> DataStream:
        """Only these columns: names (``"*"``: all), expressions that merely name one, or ``new_name=expression``."""
        with step_at("select") as place:
            flat = [c for column in columns for c in self._spread(column)]
            pairs = [(self._column_name(c), as_expression(c)) for c in flat]
            pairs += [(name, as_expression(e)) for name, e in named.items()]
            if not pairs:
                raise UsageError("Nothing is selected.", hint="Name at least one column.")
            return self._project("select", pairs, place)

    def _spread(self, column: Any) -> list[Any]:
        if isinstance(column, list | tuple):
            return list(cast(Sequence[Any], column))
        return list(self.schema.names) if isinstance(column, str) and column == "*" else [column]

    def _column_name(self, column: Any) -> str:
        if isinstance(column, str):
            check_columns(self.schema, [column], "select")
            return column
        expression = as_expression(column)
        name = plain_column(expression, self.schema)
        if name is None:
            project_schema(self.schema, [("x", expression)])
            raise UsageError(f"The expression {expression} has no name.", hint=f"Write select(name={expression}).")
        return name

    def with_column(self, name: str, expression: Any) -> DataStream:
        """All columns and one more (or another one of that name)."""
        with step_at("with_column") as place:
            return self._with(f"with_column({name})", {name: expression}, place)

    def with_columns(self, columns: Mapping[str, Any] | None = None, /, **named: Any) -> DataStream:
        """As :meth:`with_column` of several: ``with_columns({"m": col("n") + 1})`` or ``with_columns(m=col("n") + 1)``.

        All are computed of the columns as they were before.
        """
        with step_at("with_columns") as place:
            if columns is not None and not isinstance(columns, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"with_columns wants a mapping of names to expressions, not {columns!r}.")
            new = {**(columns or {}), **named}
            if not new:
                raise UsageError("with_columns has no column to add.", hint='Write with_columns(m=col("n") + 1).')
            return self._with(f"with_columns({', '.join(map(str, new))})", new, place)

    withColumn = with_column  # noqa: N815
    withColumns = with_columns  # noqa: N815

    def _with(self, kind: str, new: Mapping[str, Any], place: str) -> DataStream:
        for name, expression in new.items():
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"The name of a column is a string, not {name!r}.")
            if isinstance(expression, str):
                raise UsageError(
                    f"{kind.partition('(')[0]} wants an expression, not the string {expression!r}.",
                    hint=f"Write col({expression!r}) for the column, lit({expression!r}) for the text.",
                )
        columns = {n: pc.field(n) for n in self.schema.names}
        columns |= {name: as_expression(expression) for name, expression in new.items()}
        return self._project(kind, list(columns.items()), place)

    def rename(self, names: Mapping[str, str]) -> DataStream:
        """The same columns, some under other names: ``rename({"old": "new"})``."""
        with step_at("rename") as place:
            if not isinstance(names, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"rename wants a mapping, not {names!r}.", hint='Write rename({"old": "new"}).')
            return self._renamed("rename", names, place)

    def with_column_renamed(self, existing: str, new: str) -> DataStream:
        """PySpark's ``withColumnRenamed``; a column that is not there is an error here. See :meth:`rename`."""
        with step_at("with_column_renamed") as place:
            return self._renamed(f"rename({existing} to {new})", {existing: new}, place)

    withColumnRenamed = with_column_renamed  # noqa: N815
    withColumnsRenamed = rename  # noqa: N815

    def _renamed(self, kind: str, names: Mapping[str, str], place: str) -> DataStream:
        check_columns(self.schema, list(names), "rename")
        odd = next((name for name in names.values() if not isinstance(name, str)), None)  # pyright: ignore[reportUnnecessaryIsInstance]
        if odd is not None:
            raise UsageError(f"The name of a column is a string, not {odd!r}.")
        return self._project(kind, [(names.get(n, n), pc.field(n)) for n in self.schema.names], place)

    def drop(self, *columns: str) -> DataStream:
        """All columns but these."""
        with step_at("drop") as place:
            check_columns(self.schema, columns, "drop")
            rest = [(n, pc.field(n)) for n in self.schema.names if n not in columns]
            if not rest:
                raise UsageError("No column would be left.")
            return self._project("drop", rest, place)

    def _project(self, kind: str, pairs: list[tuple[str, pc.Expression]], place: str) -> DataStream:
        self._refuse_sides(kind)
        schema = project_schema(self.schema, pairs)
        columns = tuple(pairs)
        work = ChainedStep(Project(kind, columns, schema), passed_columns(columns, self.schema), columns)
        return self._then(kind, work, schema, place)

    # --- nulls ---

    def drop_nulls(self, *columns: str, how: str = "any") -> DataStream:
        """Without the rows that have a null (``how="all"``: nothing but nulls) in these columns (none: in all of them).

        NaN counts as null, as in PySpark's ``dropna``.
        """
        with step_at("drop_nulls") as place:
            self._refuse_sides("drop_nulls")
            if how not in ("any", "all"):
                raise UsageError(f"how={how!r} is not known.", hint='There are "any" and "all".')
            names = self._named(columns, "drop_nulls")
            valid = [~pc.field(n).is_null(nan_is_null=_has_nan(self.schema.field(n).type)) for n in names]
            expression = reduce(and_ if how == "any" else or_, valid)
            check_filter(self.schema, expression)
            passed = {name: name for name in self.schema.names}
            kind = f"drop_nulls({', '.join(columns)})"
            return self._then(kind, ChainedStep(Filter(kind, expression), passed, None, expression), self.schema, place)

    def dropna(self, how: str = "any", subset: Any = None) -> DataStream:
        """PySpark's name and arguments of :meth:`drop_nulls` (there is no ``thresh``)."""
        return self.drop_nulls(*_subset(subset), how=how)

    def fill_nulls(self, value: Any, *columns: str) -> DataStream:
        """``value`` in the place of nulls (of floats also of NaN, as in PySpark's ``fillna``).

        ``value``: one for these columns (none: for all that are of its kind: numbers, strings, booleans, or its very type),
        or a dict of a value per column.
        """
        with step_at("fill_nulls") as place:
            values = self._fillings(value, columns)
            unfit = next((n for n, v in values.items() if not fits(v, self.schema.field(n).type)), None)
            if unfit is not None:
                raise UsageError(
                    f"{values[unfit]!r} is no value for column '{unfit}', which is {self.schema.field(unfit).type}.",
                    hint="Give a value of its type, or name the columns to fill.",
                )
            columns_after = [(n, self._filled(n, values[n]) if n in values else pc.field(n)) for n in self.schema.names]
            return self._project(f"fill_nulls({', '.join(values)})", columns_after, place)

    def fillna(self, value: Any, subset: Any = None) -> DataStream:
        """PySpark's name and arguments of :meth:`fill_nulls`."""
        return self.fill_nulls(value, *_subset(subset))

    def _fillings(self, value: Any, columns: Sequence[str]) -> dict[str, Any]:
        if isinstance(value, Mapping):
            values = {str(n): v for n, v in cast(Mapping[Any, Any], value).items()}
            check_columns(self.schema, list(values), "fill_nulls")
        elif columns:
            values = dict.fromkeys(self._named(columns, "fill_nulls"), value)
        else:
            values = {field.name: value for field in self.schema if _of_its_kind(value, field.type)}
        if not values or any(v is None for v in values.values()):
            raise UsageError(
                f"fill_nulls has nothing to do: {'no column takes ' + repr(value) if value is not None else 'None is a null'}.",
                hint="Name the columns, or give a dict of a value per column.",
            )
        return values

    def _filled(self, name: str, value: Any) -> pc.Expression:
        type_ = self.schema.field(name).type
        scalar = pc.scalar(pa.array([value], type_)[0])
        if _has_nan(type_):
            return pc.if_else(pc.field(name).is_null(nan_is_null=True), scalar, pc.field(name))
        return pc.coalesce(pc.field(name), scalar)

    def _named(self, columns: Sequence[str], what: str) -> list[str]:
        check_columns(self.schema, columns, what)
        return list(columns) or list(self.schema.names)


def _subset(subset: Any) -> tuple[str, ...]:
    return (subset,) if isinstance(subset, str) else tuple(subset or ())


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

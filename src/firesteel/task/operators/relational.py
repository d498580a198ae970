"""Row-wise relational steps on ``pyarrow.compute`` expressions, and limits.

An expression is evaluated by one Acero declaration per batch (30 us, measured; small batches are merged before).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from firesteel.errors import UsageError
from firesteel.humanize import check_once, first_of, plural
from firesteel.results.plain import one_chunk
from firesteel.task.batches import coalesce, filter_rows, take_rows
from firesteel.task.expressions import cannot_compute, column, passed_columns, referenced_columns
from firesteel.task.functions.user_code import complaint
from firesteel.task.program import Batches, TaskContext

Columns = Sequence[tuple[str, pc.Expression]]
"""New columns: name and expression."""
_EXPRESSION_ERRORS = (pa.ArrowException, KeyError, ValueError, TypeError)


def as_expression(value: Any) -> pc.Expression:
    """The expression of a column name or a ``pyarrow.compute`` expression. Raises UsageError for anything else."""
    if isinstance(value, pc.Expression):
        return value
    if isinstance(value, str):
        return column(value)
    raise UsageError(
        f"An expression or a column name is needed, not {value!r} ({type(value).__name__}).",
        hint="Write firesteel.col('name') for a column and firesteel.lit(value) for a constant.",
    )


def project_schema(schema: pa.Schema, columns: Columns) -> tuple[pa.Schema, dict[str, str]]:
    """Schema of these expressions over rows of ``schema``, found by evaluating them on no rows, and which of them merely
    pass a column (output name to input name).

    Raises UsageError for an unknown column (with "did you mean"), a name given twice, or types that do not fit.
    """
    if not columns:
        raise UsageError("A selection of no columns would lose the rows.", hint="Select at least one column.")
    check_once(
        (name for name, _ in columns),
        lambda twice: f"The column name '{twice}' is given twice.",
        "Give one of them another name.",
    )
    given: dict[str, pa.Field] = {field.name: field for field in schema}
    passed = passed_columns(columns, schema)
    fields = {
        name: given[source] if name == source else given[source].with_name(name) for name, source in passed.items()
    }
    fields |= _computed_fields(schema, [column for column in columns if column[0] not in passed])
    return pa.schema([fields[name] for name, _ in columns]), passed


def _computed_fields(schema: pa.Schema, columns: Columns) -> dict[str, pa.Field]:
    """The fields of expressions that are more than columns. All are evaluated at once; where that fails, one by one."""
    if not columns:
        return {}
    try:
        return {field.name: field for field in _tried(schema, columns, strict=True).schema}
    except _EXPRESSION_ERRORS:
        fields: dict[str, pa.Field] = {}
        for column in columns:
            try:
                fields[column[0]] = _tried(schema, [column]).schema.field(0)
            except _EXPRESSION_ERRORS as error:
                raise _expression_error(schema, column[1], error, f"column '{column[0]}'") from None
        return fields


def check_filter(schema: pa.Schema, expression: pc.Expression) -> None:
    """Raises UsageError when the expression cannot be a filter over rows of ``schema``."""
    try:
        type_ = _tried(schema, [("filter", expression)]).schema.field(0).type
    except _EXPRESSION_ERRORS as error:
        raise _expression_error(schema, expression, error, "a filter") from None
    if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
        raise UsageError(
            f"A filter must be true or false, but '{expression}' is {type_}.", hint="Compare it with something."
        )


def check_columns(schema: pa.Schema, names: Sequence[str], what: str) -> None:
    """Raises UsageError, with "did you mean", when a name is not a column of ``schema``."""
    known: set[str] = set(schema.names)
    for name in names:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{what} wants the name of a column, not {name!r}.")
        if name not in known:
            raise unknown_column(schema, name, what)


def unknown_column(schema: pa.Schema, name: str, what: str) -> UsageError:
    close = difflib.get_close_matches(name, schema.names, n=1, cutoff=0.6)
    close = close or [known for known in schema.names if known.lower() == name.lower()]
    guess = f"Did you mean '{close[0]}'? " if close else ""
    return UsageError(
        f"There is no column '{name}' for {what}.", hint=f"{guess}Available: {first_of(schema.names) or '(none)'}."
    )


def order_type(type_: pa.DataType) -> pa.DataType | None:  # noqa: PLR0911 - one line per kind
    """A type of the same order that pyarrow's kernels sort and compare; None for values that have no order."""
    types = pa.types
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return order_type(type_.value_type)
    if types.is_nested(type_) or types.is_interval(type_) or isinstance(type_, pa.BaseExtensionType):
        return None
    if types.is_string_view(type_):
        return pa.string()
    if types.is_binary_view(type_):
        return pa.binary()
    if types.is_float16(type_):
        return pa.float32()
    if types.is_duration(type_):
        return pa.int64()
    if types.is_decimal32(type_) or types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return type_


def aggregate_type(function: str, column: str, schema: pa.Schema) -> pa.DataType:
    """The type of a sum, mean, min or max of a column. Raises UsageError where the function does not fit the column's type."""
    types, type_ = pa.types, schema.field(column).type
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        type_ = type_.value_type
    number = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_) or types.is_null(type_)
    if function == "mean" and number:
        return pa.float64()
    if function == "sum" and types.is_duration(type_):
        return type_
    if function == "sum" and types.is_decimal(type_):
        return pa.decimal256(76, type_.scale) if types.is_decimal256(type_) else pa.decimal128(38, type_.scale)
    if function == "sum" and number:
        unsigned = pa.uint64() if types.is_unsigned_integer(type_) else pa.int64()
        return pa.float64() if types.is_floating(type_) else unsigned
    if function in ("min", "max") and order_type(type_) is not None:
        return type_
    raise UsageError(
        f"{function} does not work on column '{column}' of type {type_}.",
        hint="Cast the column, or choose another function.",
    )


_HINTS = (
    ("with timezone to timestamp without", "Give the time a zone: datetime(2024, 1, 1, tzinfo=timezone.utc)."),
    ("Precision is not great enough", "A plain whole number has 19 digits there: write arrow.lit(Decimal('1'))."),
)
"""Advice for errors whose own words give none."""


def _expression_error(schema: pa.Schema, expression: pc.Expression, error: BaseException, what: str) -> UsageError:
    missing = re.search(r"FieldRef\.Name\((.*?)\)", str(error))
    if missing is not None and "No match" in str(error):
        return unknown_column(schema, missing[1], what)
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UsageError(
        f"The expression '{expression}' for {what} cannot be computed: {first_line.rstrip('.')}.",
        hint=next((hint for said, hint in _HINTS if said in first_line), f"The columns are {_typed(schema)}."),
    )


def _typed(schema: pa.Schema) -> str:
    return first_of([f"{field.name} {field.type}" for field in schema])


def _tried(schema: pa.Schema, columns: Columns, strict: bool = False) -> pa.Table:
    """The columns, over no rows. Times with and without a zone are told apart only where there is a row: of nulls, about
    which errors of another kind say nothing of the user's rows (``strict``: are raised all the same)."""
    reads = referenced_columns((expression for _, expression in columns), schema)
    places = sorted(map(schema.get_field_index, reads)) or range(min(1, len(schema)))
    schema = pa.schema([schema.field(place) for place in places])
    found = _project(schema.empty_table(), columns)
    try:
        _project(pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema), columns)
    except _EXPRESSION_ERRORS as error:
        if strict or "timezone" in str(error):
            raise
    return found


def _project(table: pa.Table, columns: Columns) -> pa.Table:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.ProjectNodeOptions([expression for _, expression in columns], [name for name, _ in columns])
    return acero.Declaration.from_sequence([source, acero.Declaration("project", project)]).to_table(use_threads=False)


def _of_rows(columns: Columns, rows: pa.RecordBatch) -> pa.Table:
    return _project(pa.Table.from_batches([rows]), columns)


@dataclass(frozen=True, slots=True)
class Project:
    """Computes columns. Plain columns are passed by reference, the rest is evaluated by Acero."""

    name: str
    columns: tuple[tuple[str, pc.Expression], ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def chosen(self, schema: pa.Schema) -> dict[str, str] | None:
        """Returns the column of ``schema`` that each of its own is, by name and in its order; None where it computes any."""
        passed = passed_columns(self.columns, schema)
        return {name: passed[name] for name, _ in self.columns} if len(passed) == len(self.columns) else None

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        merged = coalesce(batches)
        first = next(merged, None)
        if first is None:
            return
        passed = passed_columns(self.columns, first.schema)
        computed = [column for column in self.columns if column[0] not in passed]
        reads = referenced_columns((expression for _, expression in computed), first.schema)
        names = [name for name in first.schema.names if name in reads] or first.schema.names[:1]
        for batch in _chain(first, merged):
            columns = {name: batch.column(source) for name, source in passed.items()}
            if computed:
                columns |= self._computed(batch.select(names), computed, ctx)
            yield pa.RecordBatch.from_arrays([columns[name] for name, _ in self.columns], schema=self.schema)

    def _computed(self, batch: pa.RecordBatch, columns: Columns, ctx: TaskContext) -> dict[str, pa.Array]:
        try:
            result = _of_rows(columns, batch)
        except pa.ArrowException as error:
            raise self._error(batch, columns, error, ctx) from None
        for name, values in zip(result.column_names, result.columns, strict=True):
            if len(values) != batch.num_rows:  # a function of Arrow that does not go value by value
                raise complaint(
                    self.name, f"computes {len(values)} values of '{name}' for {plural(batch.num_rows, 'row')}", ctx
                )
        return dict(zip(result.column_names, map(one_chunk, result.columns), strict=True))

    def _error(self, batch: pa.RecordBatch, columns: Columns, error: Exception, ctx: TaskContext) -> Exception:
        for output, expression in columns:
            what = f"compute the column '{output}'" if not output.startswith("__") else f"compute '{expression}'"
            own = [(output, expression)]
            told = cannot_compute(
                *(self.name, what, batch, expression),
                partial(_of_rows, own),
                ctx,
            )
            if told is not None:
                return told
        return complaint(self.name, f"cannot compute its columns: {error}", ctx)


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps rows for which the expression is true (null is not true)."""

    name: str
    expression: pc.Expression
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in coalesce(batches):
            kept = self._kept(batch, ctx)
            if kept.num_rows:
                yield kept

    def _kept(self, batch: pa.RecordBatch, ctx: TaskContext) -> pa.RecordBatch:
        try:
            return self._filtered(batch)
        except pa.ArrowException as error:
            what = f"evaluate '{self.expression}'"
            told = cannot_compute(*(self.name, what, batch, self.expression), self._mask, ctx)
            raise told or complaint(self.name, f"cannot {what}: {error}", ctx) from None

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return batch.filter(self.expression)
        except pa.ArrowNotImplementedError:  # a column that pyarrow cannot filter (views, run ends)
            return filter_rows(batch, one_chunk(self._mask(batch)))

    def _mask(self, batch: pa.RecordBatch) -> pa.ChunkedArray:
        return _of_rows([("", self.expression)], batch).column(0)


@dataclass(frozen=True, slots=True)
class DropNulls:
    """Keeps rows without a null (``how`` any) or with a value (all) in ``columns``. NaN counts as null."""

    name: str
    columns: tuple[str, ...]
    how: str
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in coalesce(batches):
            valid = (np.asarray(pc.invert(batch.column(name).is_null(nan_is_null=True))) for name in self.columns)
            kept = filter_rows(batch, pa.array(reduce(np.logical_and if self.how == "any" else np.logical_or, valid)))
            if kept.num_rows:
                yield kept


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``n`` rows of this subtask; what lies before is not read further."""

    name: str
    n: int
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        left = self.n
        if left <= 0:
            return
        for batch in batches:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


@dataclass(frozen=True, slots=True)
class Expand:
    """Every row once in each of these ways, as columns of the row (by name) and constants (a tuple of one value). No value is copied."""

    name: str
    ways: tuple[tuple[str | tuple[Any], ...], ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in coalesce(batches):
            for way in self.ways:
                columns = [
                    batch.column(one) if isinstance(one, str) else _constant(one[0], field.type, batch.num_rows)
                    for one, field in zip(way, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _chain(first: pa.RecordBatch, rest: Any) -> Batches:
    yield first
    yield from rest


@dataclass(frozen=True, slots=True)
class Sample:
    """Each row with probability ``fraction``; ``replacement``: as often as Poisson's distribution with that mean says.

    One draw a row, in the order of the rows, so that it does not matter how they are cut into batches. Subtasks draw
    from streams of their own of ``seed``.
    """

    name: str
    fraction: float
    seed: int
    replacement: bool
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, ctx.subtask])))
        for batch in batches:
            drawn = self._drawn(batch, random)
            if drawn.num_rows:
                yield drawn

    def _drawn(self, batch: pa.RecordBatch, random: np.random.Generator) -> pa.RecordBatch:
        if not self.replacement:
            return filter_rows(batch, pa.array(random.random(batch.num_rows) < self.fraction))
        times = random.poisson(self.fraction, batch.num_rows)
        rows = np.repeat(np.arange(batch.num_rows), times)
        if not len(rows):
            return batch.slice(0, 0)
        return take_rows(pa.Table.from_batches([batch]), rows).to_batches()[0]


STATISTICS = ("count", "mean", "stddev", "min", "max")


def output_schema(columns: tuple[str, ...]) -> pa.Schema:
    """PySpark's: ``summary``, then a string for each column."""
    return pa.schema([pa.field(name, pa.string()) for name in ("summary", *columns)])


@dataclass(frozen=True, slots=True)
class Describe:
    """One row per statistic. Reads one row, with the column ``0_count`` for the number of values of the first column, and so on."""

    name: str
    columns: tuple[str, ...]
    statistics: tuple[str, ...]
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                places = range(len(self.columns))
                columns = [[_text(row.get(f"{place}_{what}")) for what in self.statistics] for place in places]
                arrays = [pa.array(values, pa.string()) for values in (list(self.statistics), *columns)]
                yield pa.RecordBatch.from_arrays(arrays, schema=output_schema(self.columns))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

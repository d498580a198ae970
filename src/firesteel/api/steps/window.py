"""Window functions for ``KeyedStream.window``: ``from firesteel import window``, then ``window.lag("n")``, ...

Frames are of rows, as SQL's ``ROWS BETWEEN``, never of equal values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from firesteel.api.expressions.column import Column
from firesteel.api.steps.aggregates.functions import Aggregation, call_of, output_type
from firesteel.api.steps.common import require_count
from firesteel.api.steps.ordering import check_order
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import is_spark_column, ordering
from firesteel.compile.relations import groups
from firesteel.engine.convert import conformed, opaque
from firesteel.errors import UsageError
from firesteel.plan.expr import Expr, Unsupported, integer
from firesteel.plan.relation import Window
from firesteel.plan.types import type_of
from firesteel.task.functions.rows import fits
from firesteel.task.operators.relational import check_columns

__all__ = [
    "cumulative_count", "cumulative_max", "cumulative_mean", "cumulative_min", "cumulative_sum", "dense_rank", "first",
    "lag", "last", "lead", "ntile", "orderBy", "partitionBy", "rank", "rolling_count", "rolling_max", "rolling_mean", "rolling_min", "rolling_sum",
    "row_number",
]  # fmt: skip

_NUMBERS = {"row_number": "RowNumber", "rank": "Rank", "dense_rank": "DenseRank", "ntile": "NTile"}
_NEIGHBOURS = {"lag": "Lag", "lead": "Lead"}
_ENDS = {"first": "First", "last": "Last"}
"""By kind the class of the expression. All others are aggregates."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowSpec:
    """Groups of rows and their order: PySpark's ``WindowSpec``, with the frames that each function has."""

    partition: tuple[Any, ...] = ()
    order: tuple[Any, ...] = ()

    def partitionBy(self, *cols: Any) -> WindowSpec:  # noqa: N802
        return WindowSpec(cols, self.order)

    def orderBy(self, *cols: Any) -> WindowSpec:  # noqa: N802
        return WindowSpec(self.partition, cols)


def partitionBy(*cols: Any) -> WindowSpec:  # noqa: N802
    """PySpark's ``Window.partitionBy``: ``partitionBy("k").orderBy(F.desc("t"))``."""
    return WindowSpec(cols)


def orderBy(*cols: Any) -> WindowSpec:  # noqa: N802
    """PySpark's ``Window.orderBy``, which :meth:`WindowSpec.partitionBy` has to follow."""
    return WindowSpec(order=cols)


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """``n``: tiles, or the distance of a neighbour, or the rows of a rolling frame (None: all from the group's first row on)."""

    kind: str
    column: str | None = None
    n: int | None = None
    default: Any = None

    def over(self, window: WindowSpec) -> Column:
        """As a Column for ``select`` and ``withColumn``, with the type that Spark gives it."""
        if self.kind not in _NUMBERS and self.kind not in _NEIGHBOURS:
            raise UsageError(
                f"{self.kind} is of another frame in PySpark: over() is for row_number, rank, dense_rank, ntile, lag and lead.",
                hint='Write key_by("k").window(order_by="t", ...).',
            )
        if not window.partition or not window.order:
            raise UsageError(
                "over() wants groups and an order.", hint='Write over(window.partitionBy("k").orderBy("t")).'
            )
        made = Column(Expr("WindowOf", {"function": self, "spec": window}))
        return made.cast("int") if self.kind in _NUMBERS else made


def row_number() -> WindowFunction:
    """1, 2, 3, ... in the order of the group. The other columns order rows that are equal in it."""
    return WindowFunction("row_number")


def rank() -> WindowFunction:
    """As :func:`row_number`, but equal rows have the number of the first of them: 1, 1, 3."""
    return WindowFunction("rank")


def dense_rank() -> WindowFunction:
    """As :func:`rank`, without gaps: 1, 1, 2."""
    return WindowFunction("dense_rank")


def ntile(n: int) -> WindowFunction:
    """The group cut into ``n`` parts of equal length, the first ones being longer by one where it does not come out even: 1 to ``n``."""
    return WindowFunction("ntile", n=require_count(n, "ntile()", 1))


def lag(column: str, offset: int = 1, default: Any = None) -> WindowFunction:
    """The value ``offset`` rows before; ``default`` where there is none."""
    return WindowFunction("lag", column, require_count(offset, "lag's offset", 0), default)


def lead(column: str, offset: int = 1, default: Any = None) -> WindowFunction:
    """The value ``offset`` rows later; ``default`` where the group has no such row."""
    return WindowFunction("lead", column, require_count(offset, "lead's offset", 0), default)


def first(column: str) -> WindowFunction:
    """The value in the first row of the group, for each of its rows; null if it is null there."""
    return WindowFunction("first", column)


def last(column: str) -> WindowFunction:
    """The value in the last row of the group, for each of its rows."""
    return WindowFunction("last", column)


def cumulative_sum(column: str) -> WindowFunction:
    """Sum from the group's first row to this one. Nulls do not count; null as long as there were only nulls."""
    return WindowFunction("sum", column)


def cumulative_min(column: str) -> WindowFunction:
    """Smallest value from the group's first row to this one."""
    return WindowFunction("min", column)


def cumulative_max(column: str) -> WindowFunction:
    """Largest value from the group's first row to this one; NaN is the largest number."""
    return WindowFunction("max", column)


def cumulative_mean(column: str) -> WindowFunction:
    """Mean (float64) from the group's first row to this one."""
    return WindowFunction("mean", column)


def cumulative_count(column: str) -> WindowFunction:
    """Number of values that are not null from the group's first row to this one."""
    return WindowFunction("count", column)


def rolling_sum(column: str, rows: int) -> WindowFunction:
    """Sum over this row and the ``rows - 1`` before it, as far as the group has them. Nulls do not count."""
    return _rolling("sum", column, rows)


def rolling_min(column: str, rows: int) -> WindowFunction:
    """Smallest value of the last ``rows`` rows."""
    return _rolling("min", column, rows)


def rolling_max(column: str, rows: int) -> WindowFunction:
    """Largest value of the last ``rows`` rows; NaN is the largest number."""
    return _rolling("max", column, rows)


def rolling_mean(column: str, rows: int) -> WindowFunction:
    """Mean (float64) of the last ``rows`` rows."""
    return _rolling("mean", column, rows)


def rolling_count(column: str, rows: int) -> WindowFunction:
    """Number of values that are not null in the last ``rows`` rows."""
    return _rolling("count", column, rows)


def _rolling(kind: str, column: str, rows: int) -> WindowFunction:
    return WindowFunction(kind, column, require_count(rows, f"the rows of rolling_{kind}", 1))


# --- for KeyedStream.window -----------------------------------------------------------------------------------------


def windowed(
    pipeline: Pipeline, keys: tuple[str, ...], functions: Mapping[str, Any], order_by: Any, place: str
) -> Pipeline:
    """The rows with a column more for each function. Raises UsageError for whatever does not fit."""
    if not functions:
        raise UsageError("window has no column to make.", hint="Write window(order_by=..., n=window.row_number()).")
    schema = pipeline.schema
    kinds = {output: _type(function, output, schema) for output, function in functions.items()}
    order = _order(schema, order_by)
    compared = [one.column for one in functions.values() if one.kind in ("sum", "mean", "min", "max")]
    groups.check_types(groups.narrowed(schema, compared), "window")
    stream = groups.stream_of(pipeline.node, schema.names, "window", opaque)
    columns = groups.columns_of(stream, schema.names)
    by = [groups.sort_order(columns[name], ascending, nulls_first=ascending) for name, ascending in order]
    items = {
        f"w{n}": _expression(function, schema, columns, by, kind)
        for n, (function, kind) in enumerate(zip(functions.values(), kinds.values(), strict=True))
    }
    relation = Window(stream, tuple(columns[key] for key in keys), items)
    out = pa.schema([*schema, *(pa.field(output, kind) for output, kind in kinds.items())])
    made = {output: () if one.column is None else (one.column,) for output, one in functions.items()}
    name, ordered_by = f"window({', '.join(functions)})", tuple(column for column, _ in order)
    alone = any(one.kind == "sum" or one.default is not None for one in functions.values())
    try:
        return pipeline.at(groups.window(pipeline.node, relation, keys, out, name, alone, made, ordered_by, place))
    except Unsupported as error:
        raise UsageError(f"window cannot be computed: {error}.") from None


def _type(function: Any, output: str, schema: pa.Schema) -> pa.DataType:
    if not isinstance(function, WindowFunction):
        raise UsageError(
            f"{output}={function!r} is not a window function.",
            hint='Write, for example, window.row_number() or window.lag("n"), after from firesteel import window.',
        )
    if output in schema.names:
        raise UsageError(f"There is a column '{output}' already.", hint="Give the result another name.")
    if function.kind in _NUMBERS:
        return pa.int64()
    check_columns(schema, [str(function.column)], function.kind)
    type_ = schema.field(function.column).type
    if function.kind not in _NEIGHBOURS and function.kind not in _ENDS:
        return output_type(_aggregation(function), schema)
    if function.default is not None and not fits(function.default, type_):
        raise UsageError(
            f"The default {function.default!r} of {function.kind} is not of type {type_}, the type of column '{function.column}'."
        )
    return type_


def _aggregation(function: WindowFunction) -> Aggregation:
    return Aggregation(function.kind, (str(function.column),), "")


# --- as expressions of a plan ---------------------------------------------------------------------------------------


def _expression(
    function: WindowFunction, schema: pa.Schema, columns: Mapping[str, Expr], order: list[Expr], type_: pa.DataType
) -> Expr:
    kind, n, of = function.kind, integer(function.n), columns.get(str(function.column))
    first, last = Expr("UnboundedPreceding", {}), Expr("CurrentRow", {})
    if kind in _NUMBERS:
        made = Expr(_NUMBERS[kind], {"buckets": n})
    elif kind in _NEIGHBOURS:
        default = Expr("Literal", {"value": _written(function.default, type_)}, of and of.type)
        made = Expr(
            _NEIGHBOURS[kind], {"input": of, "inputOffset": n, "offset": n, "default": default, "ignoreNulls": False}
        )
    elif kind in _ENDS:
        end = Expr(_ENDS[kind], {"child": of, "ignoreNulls": False})
        made = Expr("AggregateExpression", {"aggregateFunction": end, "filter": None, "isDistinct": False})
        last = Expr("UnboundedFollowing", {})
    else:
        made = call_of(_aggregation(function), schema, columns)
        if function.n is not None:
            first = integer(1 - function.n) if function.n > 1 else last
    frame = Expr("SpecifiedWindowFrame", {"frameType": Expr("RowFrame", {}), "lower": first, "upper": last})
    by = order if kind in ("rank", "dense_rank") else [*order, groups.ties(columns.values())]
    spec = Expr("WindowSpecDefinition", {"orderSpec": by, "frameSpecification": frame})
    return Expr("WindowExpression", {"windowFunction": made, "windowSpec": spec}, type_of(opaque(type_)))


def _written(value: Any, type_: pa.DataType) -> Any:
    """A value as a literal of a plan has it."""
    if value is None:
        return None
    kind = opaque(type_)
    (one,) = conformed(pa.table([pa.array([value], type_)], ["c"]), pa.schema([("c", kind)])).column(0)
    if pa.types.is_binary(kind):
        return one.as_py().hex()
    return one.as_py() if pa.types.is_boolean(kind) or pa.types.is_nested(kind) else one.cast(pa.string()).as_py()


def _order(schema: pa.Schema, order_by: Any) -> tuple[tuple[str, bool], ...]:
    """``"t"``, ``("t", False)``, PySpark's Column of such, or a list of them."""
    single = (isinstance(order_by, str | Column) or is_spark_column(order_by)) or (
        isinstance(order_by, tuple) and len(cast(tuple[Any, ...], order_by)) == 2 and isinstance(order_by[1], bool)
    )
    columns: Sequence[Any] = [order_by] if single else list(order_by or ())
    columns = [ordering(column, "window") for column in columns]
    order = [(column, True) if isinstance(column, str) else column for column in columns]
    for column in order:
        if not (isinstance(column, tuple) and len(column) == 2 and isinstance(column[1], bool)):
            raise UsageError(
                f"window cannot order by {column!r}.",
                hint='Write order_by="t", or order_by=[("t", False), "n"] (False: descending).',
            )
    if not order:
        raise UsageError("window wants the columns to order by.", hint='Write window(order_by="t", ...).')
    check_order(schema, [name for name, _ in order], "window")
    return tuple(order)

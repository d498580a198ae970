"""Window functions for ``KeyedStream.window``: ``from firesteel import window``, then ``window.lag("n")``, ...

Their frames count rows, as SQL's ``ROWS BETWEEN`` does. Aggregates of ``firesteel.functions`` over a window have Spark's frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from firesteel.api.column import Column, column, named
from firesteel.api.resolved import Resolved
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.aggregates.functions import Aggregation, call_of, output_type
from firesteel.api.steps.common import check_order, flat, require_count
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import by_name, is_spark_column, ordering, plain_names
from firesteel.compile.relations import groups
from firesteel.engine.convert import conformed, opaque
from firesteel.errors import UsageError
from firesteel.plan.analysis import attribute, literal, text_of
from firesteel.plan.expr import Expr, Unsupported, integer, replaced
from firesteel.plan.relation import Window
from firesteel.plan.types import sparks_type, type_of
from firesteel.task.functions.rows import fits
from firesteel.task.operators.relational import check_columns

__all__ = [
    "cume_dist", "cumulative_count", "cumulative_max", "cumulative_mean", "cumulative_min", "cumulative_sum",
    "dense_rank", "first", "lag", "last", "lead", "nth_value", "ntile", "orderBy", "partitionBy", "percent_rank", "rangeBetween",
    "rank", "rolling_count", "rolling_max", "rolling_mean", "rolling_min", "rolling_sum", "row_number",
    "rowsBetween",
]  # fmt: skip

NUMBERS = {"row_number": "RowNumber", "rank": "Rank", "dense_rank": "DenseRank", "ntile": "NTile"}
_SHARES = {"percent_rank": "PercentRank", "cume_dist": "CumeDist"}
_NEIGHBOURS = {"lag": "Lag", "lead": "Lead"}
_PICKED = {"first": "First", "last": "Last", "nth_value": "NthValue"}
"""By kind the class of the expression. All others are aggregates."""
OF_GROUPS = ("first", "last")
"""Kinds that ``agg`` takes, too."""
_BY_PEERS = ("rank", "dense_rank", *_SHARES)
"""Rows that are equal in the order have the same value."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowSpec:
    """Groups of rows and their order: PySpark's ``WindowSpec``, with the frames that each function has."""

    partition: tuple[Any, ...] = ()
    order: tuple[Any, ...] = ()
    frame: tuple[str, int, int] | None = None

    def partitionBy(self, *cols: Any) -> WindowSpec:  # noqa: N802
        return replace(self, partition=tuple(flat(cols)))

    def orderBy(self, *cols: Any) -> WindowSpec:  # noqa: N802
        return replace(self, order=tuple(flat(cols)))

    def rowsBetween(self, start: int, end: int) -> WindowSpec:  # noqa: N802
        """Aggregates are of rows from ``start`` to ``end`` places after each row: ``rowsBetween(-2, 0)``."""
        return replace(self, frame=_frame("ROWS", start, end))

    def rangeBetween(self, start: int, end: int) -> WindowSpec:  # noqa: N802
        """Aggregates are of rows whose order, an integer, is from ``start`` to ``end`` more than that of each row."""
        return replace(self, frame=_frame("RANGE", start, end))

    def named(self, name_of: Callable[[Column], str]) -> WindowSpec:
        """With names in the place of expressions."""
        partition, order = (tuple(by_name(one, name_of) for one in given) for given in (self.partition, self.order))
        return replace(self, partition=partition, order=order)


unboundedPreceding, currentRow, unboundedFollowing = -(1 << 63), 0, (1 << 63) - 1  # noqa: N816
"""Ends of frames, as in PySpark."""


def _frame(kind: str, start: Any, end: Any) -> tuple[str, int, int]:
    if not (type(start) is int and type(end) is int and start <= end):
        raise UsageError(
            f"A window's frame is from one whole number to another that is not smaller, not from {start!r} to {end!r}."
        )
    return kind, max(start, unboundedPreceding), min(end, unboundedFollowing)


def partitionBy(*cols: Any) -> WindowSpec:  # noqa: N802
    """PySpark's ``Window.partitionBy``: ``partitionBy("k").orderBy(F.desc("t"))``."""
    return WindowSpec().partitionBy(*cols)


def orderBy(*cols: Any) -> WindowSpec:  # noqa: N802
    """PySpark's ``Window.orderBy``: without ``partitionBy`` the window is of all rows, in one task."""
    return WindowSpec().orderBy(*cols)


def rowsBetween(start: int, end: int) -> WindowSpec:  # noqa: N802
    """PySpark's ``Window.rowsBetween``."""
    return WindowSpec().rowsBetween(start, end)


def rangeBetween(start: int, end: int) -> WindowSpec:  # noqa: N802
    """PySpark's ``Window.rangeBetween``."""
    return WindowSpec().rangeBetween(start, end)


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """``n``: tiles, or the distance of a neighbour, or a place, or the rows of a rolling frame (None: all from the group's first row on)."""

    kind: str
    column: Any = None
    """A name; with ``over`` also an expression."""
    n: int | None = None
    default: Any = None
    ignores_nulls: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def alias(self, name: str) -> AggregateCall:
        """As an aggregate for ``agg``, under this name."""
        return self.of_groups().alias(name)

    def of_groups(self) -> AggregateCall:
        """As an aggregate for ``agg``. Raises UsageError."""
        if self.kind not in OF_GROUPS:
            raise UsageError(
                f"{self.kind} is not an aggregate: it is of rows in an order.",
                hint='Write over(window.partitionBy("k").orderBy("t")).',
            )
        given = {"ascending": (), "known": (0,) if self.ignores_nulls else (), "only": True}
        return AggregateCall(self.kind, (self.column,), given, said=(f"{self.kind}({{}})", (self.column,)))

    def over(self, window: WindowSpec) -> Column:
        """As a Column for ``select`` and ``withColumn``, with the type that Spark gives it."""
        if self.kind not in {**NUMBERS, **_SHARES, **_NEIGHBOURS, **_PICKED}:
            raise UsageError(
                f"{self.kind} is of another frame in PySpark: over() is for firesteel.functions.",
                hint='Write F.sum("n").over(...), or key_by("k").window(order_by="t", ...).',
            )
        framed, window = self.kind in _PICKED, spec_of(window)
        if not window.order or (window.frame is not None and not framed):
            raise UsageError(
                f"{self.kind} wants an order{'' if framed else ' and no frame'}.",
                hint='Write over(window.partitionBy("k").orderBy("t")).',
            )
        return Column(Expr("WindowOf", {"function": self, "spec": window}))


def spec_of(window: object) -> WindowSpec:
    """Returns it. Raises UsageError for what is not a window."""
    if not isinstance(window, WindowSpec):
        raise UsageError(f"over() wants a window, not {window!r}.", hint='Write over(window.partitionBy("k")).')
    return window


def row_number() -> WindowFunction:
    """1, 2, 3, ... in the order of the group. The other columns order rows that are equal in it."""
    return WindowFunction("row_number")


def rank() -> WindowFunction:
    """As :func:`row_number`, but equal rows have the number of the first of them: 1, 1, 3."""
    return WindowFunction("rank")


def dense_rank() -> WindowFunction:
    """As :func:`rank`, without gaps: 1, 1, 2."""
    return WindowFunction("dense_rank")


def percent_rank() -> WindowFunction:
    """``(rank - 1) / (rows of the group - 1)``; 0 in a group of one row."""
    return WindowFunction("percent_rank")


def cume_dist() -> WindowFunction:
    """The share of the group's rows that are not after this one; equal rows count."""
    return WindowFunction("cume_dist")


def ntile(n: int) -> WindowFunction:
    """The group cut into ``n`` parts of equal length, the first ones being longer by one where it does not come out even: 1 to ``n``."""
    return WindowFunction("ntile", n=require_count(n, "ntile()", 1))


def lag(column: Any, offset: int = 1, default: Any = None) -> WindowFunction:
    """The value ``offset`` rows before; ``default`` where there is none."""
    return WindowFunction("lag", column, require_count(offset, "lag's offset", 0), default)


def lead(column: Any, offset: int = 1, default: Any = None) -> WindowFunction:
    """The value ``offset`` rows later; ``default`` where the group has no such row."""
    return WindowFunction("lead", column, require_count(offset, "lead's offset", 0), default)


def first(column: Any, ignorenulls: bool = False) -> WindowFunction:
    """The value in the first row of the frame, or in the first row with a value. With ``KeyedStream.window`` the frame is the group.

    In ``agg`` rows have no order: the value that all rows of the group have, or all rows with a value. Groups with several values are an error.
    """
    return WindowFunction("first", column, ignores_nulls=ignorenulls)


def last(column: Any, ignorenulls: bool = False) -> WindowFunction:
    """As :func:`first`, in the last row. In PySpark the frame of an order ends with the rows that are equal to each row in it."""
    return WindowFunction("last", column, ignores_nulls=ignorenulls)


def nth_value(column: Any, offset: int, ignoreNulls: bool = False) -> WindowFunction:  # noqa: N803
    """As :func:`first`, in the row of this place, from 1; null where the frame has fewer rows."""
    return WindowFunction(
        "nth_value", column, require_count(offset, "nth_value's offset", 1), ignores_nulls=ignoreNulls
    )


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


def windowed(  # noqa: PLR0917
    pipeline: Pipeline,
    keys: tuple[str, ...],
    functions: Mapping[str, Any],
    order_by: Any,
    place: str,
    frame: tuple[str, int, int] | None = None,
) -> Pipeline:
    """The rows with a column more for each function. Raises UsageError for whatever does not fit."""
    if not functions:
        raise UsageError("window has no column to make.", hint="Write window(order_by=..., n=window.row_number()).")
    schema = pipeline.schema
    kinds = {output: _type(function, output, schema) for output, function in functions.items()}
    all_aggregates = all(isinstance(one, Aggregation) for one in functions.values())
    is_unordered = isinstance(order_by, (tuple, list)) and not order_by
    order = () if all_aggregates and is_unordered else _order(schema, order_by)
    if not order and any(one.kind == "collect_list" for one in functions.values()):
        raise UsageError(
            "collect_list over a window wants an order.", hint='Write window.partitionBy("k").orderBy("t").'
        )
    if frame is not None and frame[0] == "RANGE" and not set(frame[1:]) <= set(_END):
        kinds_of_order = [schema.field(name).type for name, _ in order]
        if not (len(order) == 1 and pa.types.is_signed_integer(kinds_of_order[0])):
            found = ", ".join(map(str, kinds_of_order))
            raise UsageError(f"A range of a window by numbers wants one order by an integer, not by {found}.")
    compared = [name for one in functions.values() if one.kind in _COMPUTED for name in one.columns]
    groups.check_types(groups.narrowed(schema, compared), "window")
    stream = groups.stream_of(pipeline.node, schema.names, "window", opaque)
    columns = groups.columns_of(stream, schema.names)
    by = [groups.sort_order(columns[name], ascending, nulls_first=ascending) for name, ascending in order]
    items = {
        f"w{n}": _aggregate(function, schema, columns, by, frame or _ALL)
        if isinstance(function, Aggregation)
        else _expression(function, schema, columns, by, frame, kind)
        for n, (function, kind) in enumerate(zip(functions.values(), kinds.values(), strict=True))
    }
    relation = Window(stream, tuple(columns[key] for key in keys), items)
    out = pa.schema([*schema, *(pa.field(output, kind) for output, kind in kinds.items())])
    made = {output: one.columns for output, one in functions.items()}
    name, ordered_by = f"window({', '.join(functions)})", tuple(column for column, _ in order)
    alone = any(
        isinstance(one, Aggregation) or one.kind == "sum" or one.default is not None for one in functions.values()
    )
    try:
        return pipeline.at(groups.window(pipeline.node, relation, keys, out, name, alone, made, ordered_by, place))
    except Unsupported as error:
        raise UsageError(f"window cannot be computed: {error}.") from None


_COMPUTED = ("sum", "mean", "min", "max", "collect_set")


def _type(function: Any, output: str, schema: pa.Schema) -> pa.DataType:
    if isinstance(function, Aggregation):
        return _type_over(function, schema)
    if not isinstance(function, WindowFunction):
        raise UsageError(
            f"{output}={function!r} is not a window function.",
            hint='Write, for example, window.row_number() or window.lag("n"), after from firesteel import window.',
        )
    if output in schema.names:
        raise UsageError(f"There is a column '{output}' already.", hint="Give the result another name.")
    if function.kind in NUMBERS:
        return pa.int64()
    if function.kind in _SHARES:
        return pa.float64()
    check_columns(schema, [str(function.column)], function.kind)
    type_ = schema.field(function.column).type
    if function.kind not in _NEIGHBOURS and function.kind not in _PICKED:
        return output_type(_aggregation(function), schema)
    if function.default is not None and not fits(function.default, type_):
        raise UsageError(
            f"The default {function.default!r} of {function.kind} is not of type {type_}, the type of column '{function.column}'."
        )
    return type_


def _aggregation(function: WindowFunction) -> Aggregation:
    return Aggregation(function.kind, (str(function.column),), "")


_OVER = {
    "sum": "Sum", "mean": "Average", "min": "Min", "max": "Max", "count": "Count", "bool_and": "Min", "bool_or": "Max",
    "stddev_samp": "StddevSamp", "stddev_pop": "StddevPop", "var_samp": "VarianceSamp", "var_pop": "VariancePop",
    "collect_list": "CollectList", "collect_set": "CollectSet",
}  # fmt: skip


def _type_over(function: Aggregation, schema: pa.Schema) -> pa.DataType:
    if function.function not in _OVER:
        raise UsageError(f"{function.function} is not taken over a window.", hint=f"There are {', '.join(_OVER)}.")
    check_columns(schema, function.columns, "over")
    of = schema.field(function.columns[0]).type if function.columns else None
    if function.function in ("sum", "mean") and not (
        pa.types.is_signed_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal128(of)
    ):
        raise UsageError(f"{function.function} over a window is of numbers, and not of {of}.", hint="Cast the column.")
    return output_type(function, schema)


def with_names(written: Column, schema: pa.Schema) -> Column:
    """The same, with Spark's names in the place of functions over windows."""

    def spoken(node: Expr) -> Expr | None:
        if node.cls != "WindowOf":
            return None
        spec = spec_of(node["spec"]).named(Resolved.of(schema).part_name)
        text, made, frame = _in_sparks_words(node["function"], schema)
        by = [f"PARTITION BY {', '.join(plain_names(spec.partition, 'over'))}"] if spec.partition else []
        if spec.order:
            order = _directed(list(spec.order))
            sorts = (Expr("SortOrder", {"child": attribute(name), "ascending": up}) for name, up in order)
            by.append(f"ORDER BY {', '.join(map(text_of, sorts))}")
        kind, *ends = frame or frame_of(spec)
        words = {unboundedPreceding: "UNBOUNDED PRECEDING", 0: "CURRENT ROW", unboundedFollowing: "UNBOUNDED FOLLOWING"}
        by.append(f"{kind} BETWEEN {' AND '.join(words.get(end, f'{end} FOLLOWING') for end in ends)}")
        return Expr("Windowed", {"text": f"{text} OVER ({' '.join(by)})"}, made)

    return Column(replaced(written.tree, spoken))


def _in_sparks_words(
    function: WindowFunction | AggregateCall, schema: pa.Schema
) -> tuple[str, Any, tuple[str, int, int] | None]:
    """The function, its type, and the frame that it has whatever the window says."""
    if isinstance(function, AggregateCall):
        rows = Resolved.of(schema)
        return function.spoken(rows), sparks_type(_type_over(*_of_arguments(function, rows))), None
    kind, n, default = function.kind, function.n or 0, text_of(literal(function.default))
    up_to_row, up_to_peers = ((by, unboundedPreceding, currentRow) for by in ("ROWS", "RANGE"))
    if kind in NUMBERS or kind in _SHARES:
        text = kind.upper() if kind in ("rank", "dense_rank", "percent_rank") else kind
        made = "double" if kind in _SHARES else "integer"
        return f"{text}({n or ''})", made, up_to_peers if kind == "cume_dist" else up_to_row
    rows, of = Resolved.of(schema), _given(function.column)
    name, plain = rows.part_name(of), of.plain_name
    made = sparks_type(schema.field(plain).type if plain in schema.names else rows.type_of(of))
    if kind in _NEIGHBOURS:
        at = n if kind == "lead" else -n
        return f"{kind}({name}, {n}, {default})", made, ("ROWS", at, at)
    place = f", {n}" if kind == "nth_value" else ""
    return f"{kind}({name}{place}){' ignore nulls' if place and function.ignores_nulls else ''}", made, None


def _given(argument: Any) -> Column:
    return column(named(argument) if isinstance(argument, str) else argument)


def _of_arguments(call: AggregateCall, rows: Resolved) -> tuple[Aggregation, pa.Schema]:
    """The aggregate of columns that have the types of its arguments, and these columns."""
    fields = [(f"a{place}", rows.type_of(_given(one))) for place, one in enumerate(call.arguments)]
    names = tuple(name for name, _ in fields)
    return Aggregation(call.function, names, "", given=call.given, sparks=True), pa.schema(fields)


def frame_of(spec: WindowSpec) -> tuple[str, int, int]:
    """Spark's, where it has none: all rows, or those up to the last one that is equal in the order. Raises UsageError."""
    if spec.frame is not None and spec.frame[0] == "RANGE" and not spec.order:
        raise UsageError("rangeBetween wants an order.", hint='Write window.orderBy("n").rangeBetween(-1, 1).')
    whole = (
        ("RANGE", unboundedPreceding, currentRow) if spec.order else ("ROWS", unboundedPreceding, unboundedFollowing)
    )
    return spec.frame or whole


# --- as expressions of a plan ---------------------------------------------------------------------------------------


def _expression(  # noqa: PLR0917
    function: WindowFunction,
    schema: pa.Schema,
    columns: Mapping[str, Expr],
    order: list[Expr],
    frame: tuple[str, int, int] | None,
    type_: pa.DataType,
) -> Expr:
    """``frame``: of functions that pick a row; None: the group."""
    kind, n, of = function.kind, integer(function.n), columns.get(str(function.column))
    by = order if kind in _BY_PEERS else [*order, groups.ties(columns.values())]
    if kind in NUMBERS or kind in _SHARES:
        made = Expr({**NUMBERS, **_SHARES}[kind], {"buckets": n})
    elif kind in _NEIGHBOURS:
        default = Expr("Literal", {"value": _written(function.default, type_)}, of and of.type)
        made = Expr(
            _NEIGHBOURS[kind], {"input": of, "inputOffset": n, "offset": n, "default": default, "ignoreNulls": False}
        )
    elif kind in _PICKED:
        fields = {"child": of, "input": of, "offset": n, "ignoreNulls": function.ignores_nulls}
        made, by = _ordered(Expr(_PICKED[kind], fields), by, order, frame)
        if kind != "nth_value":
            made = Expr("AggregateExpression", {"aggregateFunction": made, "filter": None, "isDistinct": False})
        return _framed(made, by, frame or _ALL, type_of(opaque(type_)))
    else:
        made = call_of(_aggregation(function), schema, columns)
    first = unboundedPreceding if function.n is None else 1 - function.n
    return _framed(made, by, ("ROWS", first, currentRow), type_of(opaque(type_)))


def _ordered(
    function: Expr, by: list[Expr], order: list[Expr], frame: tuple[str, int, int] | None
) -> tuple[Expr, list[Expr]]:
    """Returns the function and its window's order. If a frame takes rows of equal order together, only the function orders these."""
    if frame is None or frame[0] == "ROWS":
        return function, by
    return replace(function, fields={**function.fields, "order": by}), order


def _framed(function: Expr, order: list[Expr], frame: tuple[str, int, int], kind: Any) -> Expr:
    rows = frame[0] == "ROWS"
    ends = [_END.get(end) or integer(end) for end in frame[1:]]
    if not rows and order:
        ends = [replace(end, type=order[0]["child"].type) if end.cls == "Literal" else end for end in ends]
    fields = {"frameType": Expr("RowFrame" if rows else "RangeFrame", {}), "lower": ends[0], "upper": ends[1]}
    spec = {"orderSpec": order, "frameSpecification": Expr("SpecifiedWindowFrame", fields)}
    fields = {"windowFunction": function, "windowSpec": Expr("WindowSpecDefinition", spec)}
    return Expr("WindowExpression", fields, kind)


def _aggregate(
    function: Aggregation,
    schema: pa.Schema,
    columns: Mapping[str, Expr],
    order: list[Expr],
    frame: tuple[str, int, int],
) -> Expr:
    """As Spark's plans have it."""
    of, kind = [columns[name] for name in function.columns], type_of(opaque(output_type(function, schema)))
    context = Expr("NumericEvalContext", {"evalMode": "ANSI"})
    fields: dict[str, Any] = {"children": of or [literal(1)], "child": of[0] if of else None, "evalContext": context}
    fields["unordered"] = function.function == "collect_set"
    made, by = Expr(_OVER[function.function], fields, kind), [*order, groups.ties(columns.values())]
    if function.function == "collect_list":
        made, by = _ordered(made, by, order, frame)
    elif frame == _ALL or frame[0] == "RANGE":
        by = order
    call = {"aggregateFunction": made, "mode": Expr("Complete", {}), "isDistinct": False, "filter": None}
    return _framed(Expr("AggregateExpression", call, kind), by, frame, kind)


_ALL = ("ROWS", unboundedPreceding, unboundedFollowing)
_END = {
    unboundedPreceding: Expr("UnboundedPreceding", {}),
    currentRow: Expr("CurrentRow", {}),
    unboundedFollowing: Expr("UnboundedFollowing", {}),
}


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
    order = _directed(order_by)
    if not order:
        raise UsageError("window wants the columns to order by.", hint='Write window(order_by="t", ...).')
    check_order(schema, [name for name, _ in order], "window")
    return order


def _directed(order_by: Any) -> tuple[tuple[str, bool], ...]:
    """``"t"``, ``("t", False)``, PySpark's Column of such, or a list of them."""
    single = (isinstance(order_by, str | Column) or is_spark_column(order_by)) or (
        isinstance(order_by, tuple) and len(cast(tuple[Any, ...], order_by)) == 2 and isinstance(order_by[1], bool)
    )
    columns: Sequence[Any] = [order_by] if single else list(order_by or ())
    columns = [ordering(one, "window") for one in columns]
    order = [(one, True) if isinstance(one, str) else one for one in columns]
    for one in order:
        if not (isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], bool)):
            raise UsageError(
                f"window cannot order by {one!r}.",
                hint='Write order_by="t", or order_by=[("t", False), "n"] (False: descending).',
            )
    return tuple(order)

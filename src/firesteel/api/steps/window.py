"""Window functions for ``KeyedStream.window``: ``from firesteel import window``, then ``window.lag("n")``, ...

Frames are of rows, as SQL's ``ROWS BETWEEN``, never of equal values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from firesteel.api.steps.common import require_count
from firesteel.api.steps.spark_columns import is_spark_column, ordering
from firesteel.errors import UsageError
from firesteel.task.operators.relational import check_columns, order_type
from firesteel.task.operators.window import WindowFunction, WindowFunctions

__all__ = [
    "cumulative_count", "cumulative_max", "cumulative_mean", "cumulative_min", "cumulative_sum", "dense_rank", "first",
    "lag", "last", "lead", "ntile", "rank", "rolling_count", "rolling_max", "rolling_mean", "rolling_min", "rolling_sum",
    "row_number",
]  # fmt: skip


def row_number() -> WindowFunction:
    """1, 2, 3, ... in the order of the group. Rows that are equal in it are told apart by their other columns."""
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
    """The value ``offset`` rows behind; ``default`` where there is none."""
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


def window_operator(
    schema: pa.Schema, keys: tuple[str, ...], functions: Mapping[str, Any], order_by: Any
) -> WindowFunctions:
    """The operator with its output schema. Raises UsageError for whatever does not fit."""
    if not functions:
        raise UsageError("window has no column to make.", hint="Write window(order_by=..., n=window.row_number()).")
    fields = list(schema)
    for output, function in functions.items():
        if not isinstance(function, WindowFunction):
            raise UsageError(
                f"{output}={function!r} is not a window function.",
                hint='Write, for example, window.row_number() or window.lag("n"), after from firesteel import window.',
            )
        if output in schema.names:
            raise UsageError(f"There is a column '{output}' already.", hint="Give the result another name.")
        fields.append(pa.field(output, function.output_type(schema, output)))
    order = _order(schema, order_by)
    name = f"window({', '.join(functions)})"
    return WindowFunctions(name, keys, order, tuple(functions.items()), pa.schema(fields))


def _order(schema: pa.Schema, order_by: Any) -> tuple[tuple[str, bool], ...]:
    """``"t"``, ``("t", False)``, PySpark's Column of such, or a list of them."""
    single = (isinstance(order_by, str) or is_spark_column(order_by)) or (
        isinstance(order_by, tuple) and len(cast(tuple[Any, ...], order_by)) == 2 and isinstance(order_by[1], bool)
    )
    columns: Sequence[Any] = [order_by] if single else list(order_by or ())
    columns = [ordering(column, "window") if is_spark_column(column) else column for column in columns]
    order = [(column, True) if isinstance(column, str) else column for column in columns]
    for column in order:
        if not (isinstance(column, tuple) and len(column) == 2 and isinstance(column[1], bool)):
            raise UsageError(
                f"window cannot order by {column!r}.",
                hint='Write order_by="t", or order_by=[("t", False), "n"] (False: descending).',
            )
    if not order:
        raise UsageError("window wants the columns to order by.", hint='Write window(order_by="t", ...).')
    check_columns(schema, [name for name, _ in order], "window")
    wrong = next((name for name, _ in order if order_type(schema.field(name).type) is None), None)
    if wrong is not None:
        raise UsageError(f"window cannot order by '{wrong}': it is {schema.field(wrong).type}.")
    return tuple(order)

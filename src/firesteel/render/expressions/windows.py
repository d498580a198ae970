"""Functions of windows."""

from __future__ import annotations

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import INTEGERS, checked, engine_type
from firesteel.render.expressions.aggregates import collected, decimal_sum, whole, whole_sum_of_decimals
from firesteel.render.expressions.texts import order_text
from firesteel.render.expressions.translator import Expressions

_RANKS = {
    "Rank": "rank()",
    "DenseRank": "dense_rank()",
    "RowNumber": "row_number()",
    "CumeDist": "cume_dist()",
    "PercentRank": "percent_rank()",
}
_ENDS_OF_FRAMES = {"First": "first_value", "Last": "last_value"}
_ENDS = {
    "UnboundedPreceding": "UNBOUNDED PRECEDING",
    "CurrentRow": "CURRENT ROW",
    "UnboundedFollowing": "UNBOUNDED FOLLOWING",
}

Keys = tuple[str, ...]


def function_text(node: Expr, keys: Keys) -> str | None:  # noqa: PLR0911 - one for each kind of function
    """The text of a window function over the rows of equal ``keys``; of a decimal's sum as a decimal."""
    x = Expressions()
    if node.cls == "MakeDecimal" and node["child"].cls == "WindowExpression":
        inner = decimal_sum(node)
        if inner is not None:
            return whole_sum_of_decimals(inner, x, checked(node.type), over_text(node["child"], keys))
    if node.cls != "WindowExpression":
        return None
    function = node["windowFunction"]
    if function.cls == "AggregateExpression":
        if function["aggregateFunction"].get("unordered"):
            return f"list_sort({collected(function, x, over_text(node, keys))[0]})"
        if function["aggregateFunction"].cls in (*_ENDS_OF_FRAMES, "CollectList"):
            return _of_order(node, x, keys)
        if function["aggregateFunction"].cls == "HyperLogLogPlusPlus" and node["windowSpec"]["orderSpec"]:
            # it would make a set for each row
            raise Unsupported(f"{said_function(function)} over rows in an order is not taken over")
        return whole(function, x, over_text(node, keys))
    if function.cls in _RANKS:
        return f"{_RANKS[function.cls]} {over_text(node, keys, framed=False)}"
    if function.cls in ("Lag", "Lead"):
        return _neighbour(node, x, keys)
    if function.cls == "NTile" and _is_positive(function["buckets"]):
        return f"ntile({function['buckets']['value']}) {over_text(node, keys, framed=False)}"
    if function.cls == "NthValue" and _is_positive(function["offset"]):
        place = f"{x.text(function['input'])}, {function['offset']['value']}"
        return f"nth_value({place}{_inside(function)}{_nulls(function)}) {over_text(node, keys)}"
    raise Unsupported(f"{said_function(function)} over a window is not taken over")


def _is_positive(node: Expr) -> bool:
    return node.cls == "Literal" and isinstance(node["value"], int) and node["value"] > 0


def _nulls(function: Expr) -> str:
    if not isinstance(function["ignoreNulls"], bool):
        raise Unsupported(f"{said_function(function)} with unknown nulls is not taken over")
    return " IGNORE NULLS" if function["ignoreNulls"] else ""


def _inside(function: Expr) -> str:
    """The order of rows inside of a frame, where equal rows have none."""
    order = function.get("order")
    return f" ORDER BY {order_text(order, Expressions())}" if order else ""


def _of_order(node: Expr, x: Expressions, keys: Keys) -> str:
    """The first or the last value of an order, or all in a list."""
    aggregate = node["windowFunction"]
    function = aggregate["aggregateFunction"]
    if aggregate["filter"] is not None or aggregate["isDistinct"] or not node["windowSpec"]["orderSpec"]:
        raise Unsupported(f"{said_function(function)} of rows without an order is not taken over")
    child, over = x.text(function["child"]), over_text(node, keys)
    if function.cls != "CollectList":
        return f"{_ENDS_OF_FRAMES[function.cls]}({child}{_inside(function)}{_nulls(function)}) {over}"
    if function.get("ignoreNulls") is False:
        raise Unsupported("collect_list with nulls is not taken over")
    return f"coalesce(list({child}{_inside(function)}) FILTER (WHERE {child} IS NOT NULL) {over}, [])"


def _neighbour(node: Expr, x: Expressions, keys: Keys) -> str:
    function = node["windowFunction"]
    lag = function.cls == "Lag"
    offset, other = function["inputOffset" if lag else "offset"], function["default"]
    if offset.cls != "Literal" or not isinstance(offset["value"], int):
        raise Unsupported(f"{said_function(function)} of a place that is no constant is not taken over")
    values = f"{x.text(function['input'])}, {offset['value']}"
    if other.cls != "Literal" or other["value"] is not None:
        values += f", CAST({x.text(other)} AS {engine_type(function['input'].type)})"
    return f"{'lag' if lag else 'lead'}({values}{_nulls(function)}) {over_text(node, keys, framed=False)}"


def over_text(node: Expr, keys: Keys, framed: bool = True) -> str:
    """``keys``: the columns of the partition, which is the same for all functions of a step."""
    spec = node["windowSpec"]
    parts: list[str] = []
    if keys:
        parts.append(f"PARTITION BY {', '.join(keys)}")
    if spec["orderSpec"]:
        parts.append(f"ORDER BY {order_text(spec['orderSpec'], Expressions())}")
    if framed:
        parts.append(_frame(spec["frameSpecification"], spec["orderSpec"]))
    return f"OVER ({' '.join(parts)})"


def _frame(frame: Expr, order: list[Expr]) -> str:
    if frame.cls != "SpecifiedWindowFrame":
        raise Unsupported("a window without a frame is not taken over")
    rows = frame["frameType"].cls == "RowFrame"
    ends = [_end(frame[side], order, rows) for side in ("lower", "upper")]
    if not order and not rows and ends[0] != _ENDS["UnboundedPreceding"]:
        raise Unsupported("a range without an order is not taken over")
    return f"{'ROWS' if rows else 'RANGE'} BETWEEN {ends[0]} AND {ends[1]}"


def _end(end: Expr, order: list[Expr], rows: bool) -> str:
    """A range by numbers: of an order by one integer, or by one date in days."""
    if end.cls in _ENDS:
        return _ENDS[end.cls]
    if end.cls != "Literal" or not isinstance(end["value"], int):
        raise Unsupported("this bound of a window's frame is not taken over")
    side, size = "PRECEDING" if end["value"] < 0 else "FOLLOWING", str(abs(end["value"]))
    if rows:
        return f"{size} {side}"
    kind = order[0]["child"].type if len(order) == 1 else None
    if kind in INTEGERS and end.type == kind:
        return f"CAST({size} AS {engine_type(kind)}) {side}"
    if kind == "date" and end.type == "integer":
        return f"INTERVAL {size} DAY {side}"
    raise Unsupported("this range of a window is not taken over")

"""Window functions: of all rows of a partition, by the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.sql.expressions.aggregates import decimal_sum, whole, whole_sum_of_decimals
from firesteel.sql.expressions.translator import Expressions
from firesteel.sql.expressions.types import FLOATS, checked, engine_type
from firesteel.sql.operators.relational import order_text
from firesteel.sql.operators.rows import Rows, by_keys
from firesteel.sql.plans.nodes import Node, Unsupported

if TYPE_CHECKING:
    from firesteel.sql.planner import Planner

_RANKS = {"Rank": "rank()", "DenseRank": "dense_rank()", "RowNumber": "row_number()"}
_ENDS = {
    "UnboundedPreceding": "UNBOUNDED PRECEDING",
    "CurrentRow": "CURRENT ROW",
    "UnboundedFollowing": "UNBOUNDED FOLLOWING",
}


def window(planner: Planner, node: Node) -> Rows:
    rows = planner.rows(node["child"])
    keys = tuple(part.id for part in node["partitionSpec"])
    if any(part.cls != "AttributeReference" for part in node["partitionSpec"]):
        raise Unsupported("a window by expressions is not taken over")
    if any(part.type in FLOATS for part in node["partitionSpec"]):
        raise Unsupported("a window by floating-point numbers is not taken over")
    columns, items = dict(rows.columns), ["*"]
    x = Expressions(_given)
    for item in node["windowExpressions"]:
        columns[item.id] = checked(item.type)
        items.append(f"CAST({x.text(item)} AS {engine_type(item.type)}) AS {item.id}")
    query = f"SELECT {', '.join(items)} FROM input0"
    return by_keys([rows.step()], [keys], query, columns, "sql(window)", keys)


def _given(node: Node) -> str | None:
    """The text of a window function; of a decimal's sum as a decimal."""
    x = Expressions()
    if node.cls == "MakeDecimal" and node["child"].cls == "WindowExpression":
        inner = decimal_sum(node)
        if inner is not None:
            return whole_sum_of_decimals(inner, x, checked(node.type), _over(node["child"], x))
    if node.cls != "WindowExpression":
        return None
    function = node["windowFunction"]
    if function.cls == "AggregateExpression":
        return whole(function, x, _over(node, x))
    if function.cls not in _RANKS:
        raise Unsupported(f"the window function {function.cls} is not taken over")
    return f"{_RANKS[function.cls]} {_over(node, x, framed=False)}"


def _over(node: Node, x: Expressions, framed: bool = True) -> str:
    spec = node["windowSpec"]
    parts: list[str] = []
    if spec["partitionSpec"]:
        parts.append(f"PARTITION BY {', '.join(x.texts(spec['partitionSpec']))}")
    if spec["orderSpec"]:
        parts.append(f"ORDER BY {order_text(spec['orderSpec'])}")
    if framed:
        parts.append(_frame(spec["frameSpecification"], bool(spec["orderSpec"])))
    return f"OVER ({' '.join(parts)})"


def _frame(frame: Node, ordered: bool) -> str:
    if frame.cls != "SpecifiedWindowFrame":
        raise Unsupported("a window without a frame is not taken over")
    rows = frame["frameType"].cls == "RowFrame"
    ends = [_end(frame[side], rows) for side in ("lower", "upper")]
    if not ordered and not rows and ends[0] != _ENDS["UnboundedPreceding"]:
        raise Unsupported("a range without an order is not taken over")
    return f"{'ROWS' if rows else 'RANGE'} BETWEEN {ends[0]} AND {ends[1]}"


def _end(end: Node, rows: bool) -> str:
    if end.cls in _ENDS:
        return _ENDS[end.cls]
    if rows and end.cls == "Literal" and isinstance(end["value"], int):
        return f"{abs(end['value'])} {'PRECEDING' if end['value'] < 0 else 'FOLLOWING'}"
    raise Unsupported("this bound of a window's frame is not taken over")

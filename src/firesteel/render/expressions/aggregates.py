"""Aggregate functions: partly before an exchange and finally behind it, or, where they cannot be parted, of whole groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firesteel.plan.expr import Expr, Unsupported, eval_mode
from firesteel.plan.functions import said_function
from firesteel.plan.types import (
    FLOATS,
    INTEGERS,
    carried,
    checked,
    checked_inside,
    decimal_of,
    element_of,
    engine_type,
    fields_of,
    grouped,
    is_interval,
    said,
)
from firesteel.render.expressions import statistics
from firesteel.render.expressions.arithmetic import decimal_quotient
from firesteel.render.expressions.statistics import and_known
from firesteel.render.expressions.texts import left_to_spark, unscaled
from firesteel.render.expressions.translator import Expressions

_SPREADS = {
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "VarianceSamp": "var_samp",
    "VariancePop": "var_pop",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """``partial``: (text over rows, type) of each column before the exchange; ``final``: text in which ``{0}``, ``{1}`` stand
    for these columns' names, aggregating them."""

    partial: tuple[tuple[str, Any], ...]
    final: str


def parts_of(node: Expr, x: Expressions) -> Parts | None:  # noqa: PLR0911 - one for each function
    """None: the aggregate needs whole groups."""
    if node["isDistinct"]:
        return None
    function, where = _checked(node), _where(node, x)
    if function.cls == "Count":
        return Parts(((f"count({_counted(function, x)}){where}", "long"),), "CAST(coalesce(sum({0}), 0) AS BIGINT)")
    if function.cls in ("Max", "Min"):
        kind = carried(function.type)
        return Parts(((extreme(function, x.text(function["child"]), where), kind),), extreme(function, "{0}", ""))
    if function.cls == "AnyRow":
        kind = carried(function.type)
        return Parts(((_any_row(x.text(function["child"]), where), kind),), _any_row("{0}", ""))
    if function.cls == "Sum":
        text, kind, digits = _summed(function, x)
        if digits is not None:
            return Parts(((f"sum({text}){where}", kind),), f"CAST({unscaled('sum({0})', digits)} AS BIGINT)")
        total = (_sum(text, kind, where), kind)
        if _is_judged(function):
            return Parts(
                (total, (_sum(f"abs({text})", kind, where), kind)), _within("sum({1})", kind, _sum("{0}", kind, ""))
            )
        return Parts((total,), _sum("{0}", kind, ""))
    if function.cls == "Average":
        text, kind, digits = _summed(function, x)
        total, counted = (_sum(text, kind, where), kind), (f"count({text}){where}", "long")
        if _is_judged(function):
            mean = _mean(_within("sum({2})", kind, "sum({0})"), "sum({1})", kind, digits, function)
            return Parts((total, counted, (_sum(f"abs({text})", kind, where), kind)), mean)
        return Parts((total, counted), _mean("sum({0})", "sum({1})", kind, digits, function))
    partial = statistics.partial_of(function, x, where)
    return None if partial is None else Parts(*partial)


def collected(node: Expr, x: Expressions, over: str = "") -> tuple[str, Parts]:
    """A list in which the order of the rows does not show, of whole groups (``over``: of a window) and in parts; see ``statistics.unordered_list``."""
    function = _checked(node)
    column, final = statistics.collected(function, x, _where(node, x), node["isDistinct"], over)
    return column, Parts(((column, function.type),), final)


def whole(node: Expr, x: Expressions, over: str = "") -> str:  # noqa: PLR0911 - one for each function
    """The aggregate of whole groups, or, with ``over``, of a window."""
    function, where = _checked(node), _where(node, x)
    distinct = "DISTINCT " if node["isDistinct"] else ""
    tail = where + (f" {over}" if over else "")
    if function.cls == "Count":
        return f"count({distinct}{_counted(function, x, bool(distinct))}){tail}"
    if function.cls in ("Max", "Min"):
        if fields_of(function.type) and over:
            raise Unsupported(f"{said_function(function)} of structs in a window is not taken over")
        return extreme(function, x.text(function["child"]), where, over)
    if function.cls in _SPREADS:
        if _plain(function).type != "double" or distinct:
            raise Unsupported(f"{said_function(function)} of {said(_plain(function).type)} is not taken over")
        text, name = x.text(_plain(function)), _SPREADS[function.cls]
        spread = f"{name}({text}){tail}"
        return f"({spread} + {statistics.spread_of_one(text, tail)})" if name.endswith("_pop") else spread
    if function.cls == "AnyRow":
        return _any_row(x.text(function["child"]), where)
    if function.cls == "ListAgg":
        return statistics.listed(node, x, where, over)
    if function.cls not in ("Sum", "Average"):
        text = statistics.whole_of(function, x, where, over, distinct)
        if text is not None:
            return text
        shown = " where its order shows (in sort_array() it is)" if function.cls in statistics.LISTS else ""
        raise Unsupported(f"{said_function(function)} is not taken over{shown}")
    text, kind, digits = _summed(function, x)
    total = f"sum({distinct}{text}){tail}"
    if _is_judged(function):
        total = _within(f"sum(abs({text})){tail}", kind, total)
    if function.cls == "Sum":
        return f"CAST({unscaled(total, digits) if digits is not None else total} AS {engine_type(function.type)})"
    return _mean(total, f"count({distinct}{text}){tail}", kind, digits, function)


def _any_row(text: str, where: str) -> str:
    """One row, whatever their order is."""
    return f"arg_min_null({text}, hash({text})){where}"


def extreme(function: Expr, text: str, where: str, over: str = "") -> str:
    """The largest or smallest value; of structs, in which null is the smallest value, by what orders them."""
    name, kind = function.cls.lower(), function["child"].type
    if element_of(kind) is not None:
        checked_inside(element_of(grouped(kind)))
        other = left_to_spark("the order of arrays with nulls", kind)
        text = f"(CASE WHEN list_count({text}) < len({text}) THEN {other} ELSE {text} END)"
    elif not fields_of(kind):
        checked_inside(kind)
    if not fields_of(kind):
        return f"{name}({text}){where}{f' {over}' if over else ''}"
    by = ", ".join(f"{part}, 'ASC NULLS FIRST'" for part in _ordering(text, kind)[1:])
    return f"arg_{name}_null({text}, create_sort_key({by})) FILTER (WHERE {and_known(text, where)})"


def _ordering(text: str, kind: Any) -> list[str]:
    """Plain values that order values of a type."""
    fields = fields_of(kind)
    if not fields:
        return [f"({text} + 0)" if checked_inside(kind) in FLOATS else text]
    inside = [_ordering(f"struct_extract_at({text}, {place})", part) for place, (_, part) in enumerate(fields, 1)]
    return [f"{text} IS NOT NULL", *(one for parts in inside for one in parts)]


def decimal_sum(node: Expr) -> Expr | None:
    """The aggregate in ``MakeDecimal(sum(UnscaledValue(x)))``, the way in which Spark adds up short decimals."""
    inner = node["child"]
    if inner.cls == "WindowExpression":
        inner = inner["windowFunction"]
    function = inner["aggregateFunction"] if inner.cls == "AggregateExpression" else None
    is_sum = function is not None and function.cls == "Sum" and function["child"].cls == "UnscaledValue"
    return inner if is_sum else None


def sum_of_decimals(node: Expr, x: Expressions, kind: str) -> Parts | None:
    """The parts of such a sum, as decimals of type ``kind``."""
    if node["isDistinct"]:
        return None
    text = x.text(node["aggregateFunction"]["child"]["child"])
    return Parts(((_sum(text, kind, _where(node, x)), kind),), _sum("{0}", kind, ""))


def whole_sum_of_decimals(node: Expr, x: Expressions, kind: str, over: str = "") -> str:
    distinct = "DISTINCT " if node["isDistinct"] else ""
    text = x.text(node["aggregateFunction"]["child"]["child"])
    return f"CAST(sum({distinct}{text}){_where(node, x)}{f' {over}' if over else ''} AS {engine_type(kind)})"


# --- texts --------------------------------------------------------------------------------------------------------------


def _checked(node: Expr) -> Expr:
    if node["mode"].cls != "Complete":
        raise Unsupported("an aggregate that Spark has begun is not taken over")
    return node["aggregateFunction"]


def _plain(function: Expr) -> Expr:
    child = function["child"]
    checked(child.type)
    return child


def _where(node: Expr, x: Expressions) -> str:
    return f" FILTER (WHERE {x.text(node['filter'])})" if node["filter"] is not None else ""


def _counted(function: Expr, x: Expressions, distinct: bool = False) -> str:
    children = function["children"]
    if all(child.cls == "Literal" and child["value"] is not None for child in children) and not distinct:
        return "*"
    if distinct:
        for child in children:
            grouped(child.type)
    if len(children) == 1:
        return x.text(children[0])
    known = " AND ".join(f"{text} IS NOT NULL" for text in x.texts(children))
    if distinct:
        return f"CASE WHEN {known} THEN row({', '.join(x.texts(children))}) END"
    return f"CASE WHEN {known} THEN 1 END"


def _summed(function: Expr, x: Expressions) -> tuple[str, str, int | None]:
    """The text that is added up, the type of the sum, and the scale where Spark adds up a decimal's digits."""
    child = function["child"]
    if child.cls == "UnscaledValue":
        found = decimal_of(child["child"].type)
        if found is None:
            raise Unsupported("digits of this type are not taken over")
        return x.text(child["child"]), f"decimal(38,{found[1]})", found[1]
    kind, found = checked_inside(child.type), decimal_of(child.type)
    text = x.text(child)
    if found:
        return text, f"decimal({min(found[0] + 10, 38)},{found[1]})", None
    if kind in INTEGERS:
        return (text, "long", None) if function.cls == "Sum" else (f"CAST({text} AS DOUBLE)", "double", None)
    if kind in FLOATS:
        return f"CAST({text} AS DOUBLE)", "double", None
    if function.cls == "Sum" and is_interval(kind):
        return text, function.type, None
    raise Unsupported(f"{said_function(function)} of {said(kind)} is not taken over")


def _sum(text: str, kind: str, where: str) -> str:
    return f"CAST(sum({text}){where} AS {engine_type(kind)})"


def _is_judged(function: Expr) -> bool:
    """True where a sum may overflow on the way in one order of the rows, and not in another one.

    Spark raises there, or gives null. Without ANSI mode a bigint wraps around, whatever the order is.
    """
    kind = function["child"].type
    found = decimal_of(kind)
    if found:
        return found[0] > _NARROW
    return function.cls == "Sum" and (is_interval(kind) or (kind == "long" and eval_mode(function) != "LEGACY"))


_NARROW = 28
"""Sums of decimals of so many digits have ten more, and so do not overflow."""


def _within(size: str, kind: str, total: str) -> str:
    """``total``, or the end of the fragment where ``size``, the sum of absolute values, does not fit: if it does, the sums of the rows
    fit in any order. A sum of decimals that does not fit ends the fragment itself."""
    if decimal_of(kind):
        return f"(CASE WHEN {size} IS NOT NULL THEN {total} END)"
    other = left_to_spark("a sum that may overflow on the way", kind)
    return f"(CASE WHEN {size} < {1 << 63}::HUGEINT THEN {total} WHEN {size} IS NOT NULL THEN {other} END)"


def _mean(total: str, count: str, kind: str, digits: int | None, function: Expr) -> str:
    """Null of no rows."""
    if digits is not None:
        return f"(CAST({unscaled(total, digits)} AS DOUBLE) / nullif({count}, 0))"
    if kind == "double":
        return f"({total} / nullif({count}, 0))"
    return decimal_mean(total, count, kind, checked(function.type))


def decimal_mean(total: str, count: str, kind: str, mean: str) -> str:
    """``kind``: of the sum."""
    by = f"CAST(nullif({count}, 0) AS DECIMAL(20,0))"
    return decimal_quotient(f"CAST({total} AS {engine_type(kind)})", kind, by, "decimal(20,0)", mean)

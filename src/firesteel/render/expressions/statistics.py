"""Aggregate functions besides sums, means and extremes: bits, percentiles, lists, pivots.

``corr``, ``covar_*`` and ``regr_*`` of pairs of numbers are Spark's: the engine computes their last digits in another way. What depends
on the order of the rows is not here, but ``max_by`` and ``min_by``: of rows that are equal in the order each engine takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.plan.coercion import array_of
from firesteel.plan.expr import Expr, Unsupported
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
    grouped,
    is_interval,
    is_text,
    said,
)
from firesteel.render.expressions import hashes
from firesteel.render.expressions.texts import left_to_spark, literal, order_text

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

Partial = tuple[tuple[tuple[str, Any], ...], str]
"""The (text, type) of columns before the exchange, and the text behind it; see ``aggregates.Parts``."""
_BITS = {"BitAndAgg": "bit_and", "BitOrAgg": "bit_or", "BitXorAgg": "bit_xor"}
_BY = {"MaxBy": ("arg_max_null", "max"), "MinBy": ("arg_min_null", "min")}


def spread_of_one(text: str, tail: str = "") -> str:
    """What is added to the engine's ``var_pop`` and ``stddev_pop``: of one value these are always 0, in Spark NaN unless it is finite."""
    return f"(min({text}){tail} - min({text}){tail})"


def partial_of(function: Expr, x: Expressions, where: str) -> Partial | None:
    """None: the function needs whole groups, or is not one of these."""
    if function.cls in _BITS:
        bits = _BITS[function.cls]
        return ((f"{bits}({_integer(x, function)}){where}", function.type),), f"{bits}({{0}})"
    if function.cls in _BY:
        by, end = _BY[function.cls]
        value, order = _value_by(x, function)
        columns = (
            (f"{by}({value}, {order}){where}", carried(function.type)),
            (f"{end}({order}){where}", checked_inside(function["orderingExpr"].type)),
        )
        return columns, f"{by}({{0}}, {{1}})"
    if function.cls in ("First", "Last"):
        return only_value(function, x, where)[1]
    if function.cls == "HyperLogLogPlusPlus":
        return ((_codes(function, x, where), hashes.CODES),), hashes.estimate(function, _JOINED_SETS)
    if function.cls == "PivotFirst" and not where:
        kind, values = carried(function.type), _pivoted(x, function)
        final = ", ".join(f"any_value({{0}}[{i + 1}])" for i in range(len(values)))
        return ((f"[{', '.join(values)}]", kind),), f"[{final}]"
    return None


def whole_of(function: Expr, x: Expressions, where: str, over: str, distinct: str) -> str | None:  # noqa: PLR0911 - one for each function
    """Of whole groups. ``over``: of a window, where that is not refused. None: it is not one of these."""
    tail = where + (f" {over}" if over else "")
    if function.cls in _BITS:
        return f"{_BITS[function.cls]}({distinct}{_integer(x, function)}){tail}"
    if distinct:
        return None
    if function.cls in _BY:
        return f"{_BY[function.cls][0]}({', '.join(_value_by(x, function))}){tail}"
    if function.cls == "HyperLogLogPlusPlus":
        return hashes.estimate(function, _codes(function, x, where, over))
    if function.cls in ("Percentile", "WeighedPercentile"):
        return _percentile(function, x, where, over)
    if function.cls == "PercentileDisc":
        return _percentile_of_rows(function, x, where, over)
    if function.cls == "ApproximatePercentile":
        return _near_percentile(function, x, where, over)
    if function.cls == "Mode":
        return _mode(function, x, where, over)
    if over:
        return None
    if function.cls in ("First", "Last"):
        return only_value(function, x, where)[0]
    if function.cls == "PivotFirst" and not where:
        return f"[{', '.join(_pivoted(x, function))}]"
    return None


def _integer(x: Expressions, function: Expr) -> str:
    if function["child"].type not in INTEGERS:
        raise Unsupported(f"{said_function(function)} of {said(function['child'].type)} is not taken over")
    return x.text(function["child"])


def _value_by(x: Expressions, function: Expr) -> tuple[str, str]:
    checked_inside(function["orderingExpr"].type)
    return x.text(function["valueExpr"]), x.text(function["orderingExpr"])


# --- percentiles ---------------------------------------------------------------------------------------------------------


def _percentile(function: Expr, x: Expressions, where: str, over: str) -> str:
    """Between the two values nearest to the place, as Spark weighs them."""
    often = function["frequencyExpression"]
    if often.cls != "Literal" or often["value"] != 1:
        raise Unsupported("percentiles of frequencies that are no constants are not taken over")
    return _at_shares(function, x, (where, over), partial(_between, weighed=function.cls == "WeighedPercentile"))


def _percentile_of_rows(function: Expr, x: Expressions, where: str, over: str) -> str:
    """The first value that at least the share of all rows has, or comes before."""
    place = "floor((len(v) - 1) * {}) + 1" if function["legacyCalculation"] else "greatest(ceil(len(v) * {}), 1)"
    return _at_shares(function, x, (where, over), lambda share: f"v[CAST({place.format(_double(share))} AS BIGINT)]")


def _at_shares(function: Expr, x: Expressions, rows: tuple[str, str], text: Callable[[float], str]) -> str:
    """``text`` of each share, of the sorted values ``v`` as doubles; of intervals as whole microseconds."""
    backwards = function["reverse"]
    if not isinstance(backwards, bool):
        raise Unsupported("percentiles in an unknown order are not taken over")
    values = _sorted(function, _number(x, function["child"]), *rows, "'DESC'" if backwards else "'ASC'")
    whole = "CAST(trunc({}) AS BIGINT)" if is_interval(element_of(function.type) or function.type) else "{}"
    wanted = _each_share(function, lambda share: whole.format(text(share)))
    return f"list_transform([{values}], lambda v: CASE WHEN v IS NOT NULL THEN {wanted} END)[1]"


def _near_percentile(function: Expr, x: Expressions, where: str, over: str) -> str:
    """Of fewer values than half the accuracy, Spark keeps each one in its summary, as a double, and so gives the exact one."""
    child, accuracy = function["child"], function["accuracyExpression"]
    kind, found = checked(child.type), decimal_of(child.type)
    if kind not in (*INTEGERS, *FLOATS, "date") and not (found and found[0] <= _PLAIN):
        raise Unsupported(f"{said_function(function)} of {said(kind)} is not taken over")
    if accuracy.cls != "Literal" or not isinstance(accuracy["value"], int):
        raise Unsupported("an accuracy that is no constant is not taken over")
    text, one = x.text(child), "v[greatest(CAST(ceil({} * len(v)) AS BIGINT), 1)]"
    if kind == "long":
        text, one = f"CAST({text} AS DOUBLE)", f"CAST({one} AS BIGINT)"
    wanted = _each_share(function, lambda share: one.format(_double(share)))
    other = left_to_spark("percentile_approx of many values", function.type)
    exact = f"CASE WHEN 2 * len(v) >= {accuracy['value']} THEN {other} WHEN v IS NOT NULL THEN {wanted} END"
    return f"list_transform([{_sorted(function, text, where, over)}], lambda v: {exact})[1]"


_PLAIN = 15
"""Digits of decimals that a double holds."""


def _sorted(function: Expr, text: str, where: str, over: str, order: str = "'ASC'") -> str:
    """The values, without nulls."""
    values = f"list({text}) FILTER (WHERE {and_known(text, where)}) {over}"
    if function["child"].type in FLOATS:
        other = left_to_spark("zeros of two signs", array_of(function["child"].type))
        values = f"CASE WHEN bool_or({text} = 0 AND signbit({text})) {over} THEN {other} ELSE {values} END"
    return f"list_sort({values}, {order})"


def _each_share(function: Expr, text: Callable[[float], str]) -> str:
    share = function["percentageExpression"]
    if share.cls != "Literal" or share["value"] is None:
        raise Unsupported("percentiles of shares that are no constants are not taken over")
    if element_of(share.type) is None:
        return text(float(share["value"]))
    return f"[{', '.join(text(float(one)) for one in share['value'])}]"


def _double(share: float) -> str:
    return f"CAST('{share!r}' AS DOUBLE)"


def _between(share: float, weighed: bool) -> str:
    """Of the sorted values ``v``."""
    at = f"((len(v) - 1) * {_double(share)})"
    low, high = (f"v[CAST({end}({at}) AS BIGINT) + 1]" for end in ("floor", "ceil"))
    if weighed:
        of_both = f"(ceil({at}) - {at}) * {low} + ({at} - floor({at})) * {high}"
        return f"(CASE WHEN ceil({at}) = floor({at}) OR {low} = {high} THEN {low} ELSE {of_both} END)"
    return between(low, high, at)


def between(low: str, high: str, at: str) -> str:
    """At a place, as Spark 4.3 computes it from the values below and above it."""
    return f"(CASE WHEN {low} = {high} THEN {low} ELSE {low} + ({at} - floor({at})) * ({high} - {low}) END)"


def _number(x: Expressions, child: Expr) -> str:
    kind = checked_inside(child.type)
    if decimal_of(kind):
        return f"CAST(CAST({x.text(child)} AS VARCHAR) AS DOUBLE)"
    if kind not in INTEGERS and kind not in FLOATS and not is_interval(kind):
        raise Unsupported(f"percentiles of {said(kind)} are not taken over")
    return f"CAST({x.text(child)} AS DOUBLE)"


def and_known(text: str, where: str) -> str:
    condition = where.removeprefix(" FILTER (WHERE ").removesuffix(")")
    return f"{text} IS NOT NULL" + (f" AND ({condition})" if where else "")


def _mode(function: Expr, x: Expressions, where: str, over: str) -> str:
    """Of several that are equally common the smallest or the largest, where an order says which; without one Spark promises none."""
    child, kind, backwards = function["child"], checked_inside(function["child"].type), function.get("reverseOpt")
    if kind in FLOATS:
        raise Unsupported(f"mode of {said(kind)} is not taken over")
    text = x.text(child)
    numbers = f"map_entries(histogram({text}) FILTER (WHERE {and_known(text, where)}) {over})"
    commonest = "list_filter(v, lambda e: e.value = list_max(list_transform(v, lambda o: o.value)))"
    other = left_to_spark("several values that are equally common", kind)
    one = f"CASE WHEN len(c) > 1 THEN {other} ELSE c[1].key END"
    if backwards is not None:
        one = f"list_{'min' if backwards else 'max'}(list_transform(c, lambda e: e.key))"
    return f"list_transform([{numbers}], lambda v: list_transform([{commonest}], lambda c: {one})[1])[1]"


# --- rows that are all the same -----------------------------------------------------------------------------------------


def only_value(function: Expr, x: Expressions, where: str) -> tuple[str, Partial]:
    """``first`` or ``last`` of whole groups, and in parts: where all rows of a group have one value, it is that of each of them."""
    kind = checked_inside(function["child"].type)
    if kind in FLOATS:
        raise Unsupported(f"{said_function(function)} of {said(kind)} is not taken over")
    text, other = x.text(function["child"]), left_to_spark("which row first() or last() takes", kind)
    nulls = not function["ignoreNulls"]

    def one(least: str, most: str, known: str, rows: str) -> str:
        alike = f"{least} = {most}" + (f" AND {known} = {rows}" if nulls else "")
        return f"(CASE WHEN coalesce({known}, 0) = 0 THEN NULL WHEN {alike} THEN {least} ELSE {other} END)"

    known, rows = f"count({text}){where}", f"count(*){where}"
    whole = one(f"min({text}){where}", f"max({text}){where}", known, rows)
    parts = ((whole, kind), (known, "long"), (rows, "long"))
    return whole, (parts, one("min({0})", "max({0})", "sum({1})", "sum({2})"))


# --- lists ---------------------------------------------------------------------------------------------------------------

UNORDERED = {
    "SortArray": "base",
    "ArraySort": "argument",
    "Size": "child",
    "ArrayContains": "left",
    "ArrayMin": "child",
    "ArrayMax": "child",
}
"""Functions of a list in which its order does not show, with the field that holds it."""
LISTS = ("CollectList", "CollectSet")


def unordered_list(node: Expr) -> Expr | None:
    """The aggregate in such a function of ``collect_list`` or ``collect_set``; None where it is something else."""
    field = UNORDERED.get(node.cls)
    child = node[field] if field else None
    if not isinstance(child, Expr) or child.cls != "AggregateExpression":
        return None
    return child if child["aggregateFunction"].cls in LISTS else None


def collected(function: Expr, x: Expressions, where: str, distinct: bool, over: str = "") -> tuple[str, str]:
    """The list of the rows' values, without nulls, and the text that makes one of many such lists."""
    child = function["child"]
    if function.get("ignoreNulls") is False:
        raise Unsupported(f"{said_function(function)} with nulls is not taken over")
    distinct = distinct or function.cls == "CollectSet"
    kind = checked_inside(child.type) if distinct else carried(child.type)
    if distinct and kind in FLOATS:
        raise Unsupported(f"{said_function(function)} of {said(kind)} is not taken over")
    text = x.text(child)
    column = _list(f"DISTINCT {text}" if distinct else text, and_known(text, where), over)
    return column, _JOINED_SETS if distinct else _JOINED


def _list(values: str, known: str, over: str) -> str:
    return f"coalesce(list({values}) FILTER (WHERE {known}) {over}, [])"


_JOINED = "coalesce(flatten(list({0})), [])"
_JOINED_SETS = f"list_distinct({_JOINED})"


def _codes(function: Expr, x: Expressions, where: str, over: str = "") -> str:
    return _list(f"DISTINCT {hashes.codes(x, function)}", and_known(x.text(function["child"]), where), over)


def listed(node: Expr, x: Expressions, where: str, over: str) -> str:
    """The texts of a group, joined. Rows that are equal in the order and have several texts are left to Spark."""
    function = node["aggregateFunction"]
    child, delimiter, order = function["child"], function["delimiter"], function["orderExpressions"]
    if not is_text(child.type) or delimiter.cls != "Literal":
        raise Unsupported("listagg of these values is not taken over")
    if not order:
        raise Unsupported("listagg in the order of the rows is not taken over")
    text, between = x.text(child), literal(delimiter["value"] or "", "string")
    whole = any(x.text(one["child"]) == text for one in order)
    if node["isDistinct"] and (len(order) > 1 or not whole):
        raise Unsupported("listagg of different values in another order than theirs is not taken over")
    distinct, known = "DISTINCT " if node["isDistinct"] else "", and_known(text, where)

    def values(*more: str) -> str:
        return (
            f"list({distinct}{text} ORDER BY {', '.join([order_text(order, x), *more])}) FILTER (WHERE {known}) {over}"
        )

    if whole:
        return f"array_to_string({values()}, {between})"
    other = left_to_spark("listagg of equals in several orders", "string")
    both = [values(f"{text} {direction}") for direction in ("ASC", "DESC")]
    return (
        f"(CASE WHEN {both[0]} IS DISTINCT FROM {both[1]} THEN {other} ELSE array_to_string({both[0]}, {between}) END)"
    )


# --- pivots --------------------------------------------------------------------------------------------------------------


def _pivoted(x: Expressions, function: Expr) -> list[str]:
    """A value for each of the pivot's constants. The rows are groups by then: there is one for each at most."""
    column, values = function["pivotColumn"], function["pivotColumnValues"]
    if grouped(column.type) in FLOATS or not all(
        value is None or isinstance(value, str | int | list) for value in values
    ):
        raise Unsupported(f"a pivot by {said(column.type)} is not taken over")
    value, by = x.text(function["valueColumn"]), x.text(column)
    kind = engine_type(function["valueColumn"].type)
    return [
        f"CAST(any_value({value}) FILTER (WHERE {by} IS NOT DISTINCT FROM {literal(one, column.type)}) AS {kind})"
        for one in values
    ]

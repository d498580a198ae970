"""Aggregates of steps: what partial rows carry of them, how it is merged, and what is made of it in the end.

Their columns are of any type that the engine takes, and what they give never depends on the order of the rows, but for lists without an
order. Aggregates of Spark's plans are ``expressions.aggregates``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import arrow_type
from firesteel.render.expressions.aggregates import decimal_mean
from firesteel.render.expressions.statistics import between, spread_of_one
from firesteel.render.expressions.texts import literal
from firesteel.render.expressions.translator import Expressions

_t = pa.types


@dataclass(frozen=True, slots=True)
class State:
    """Columns of partial rows, of these Arrow ``kinds``.

    ``partial``: their texts over the rows of a group; ``single``: of one row; ``merged``: over partial rows, whose columns are ``{0}``, ``{1}``;
    ``finished``: the aggregate, of merged columns.
    """

    kinds: tuple[pa.DataType, ...]
    partial: tuple[str, ...]
    single: tuple[str, ...]
    merged: tuple[str, ...]
    finished: str = "{0}"


@dataclass(frozen=True, slots=True)
class Values:
    """An aggregate of the different values of a column: partial rows have one of them at most, and beside it its number of rows.

    ``value``: its text, null where it does not count. ``finished``: over rows with one value each: ``{0}``: the value, ``{1}``: its number of
    rows, ``{2}``: the number of rows up to and with this value, ``{3}``: of all, ``{4}``: of the commonest. ``counts``: it is the number of values.
    """

    kind: pa.DataType
    value: str
    finished: str
    counts: bool = False


def state_of(call: Expr, x: Expressions) -> State | Values:
    """``call``: an ``AggregateExpression``. Raises Unsupported."""
    function = call["aggregateFunction"]
    where = None if call["filter"] is None else x.text(call["filter"])
    if call["isDistinct"]:
        (child,) = function["children"]
        return Values(arrow_type(child.type), _key(_if(where, x.text(child)), child.type), "count({0})", counts=True)
    rule = _RULES.get(function.cls)
    if rule is None:
        raise Unsupported(f"{said_function(function)} is not one of steps")
    return rule(function, x, where)


def key_text(text: str, kind: Any) -> str:
    """A value as a key: there is one zero."""
    return _key(text, kind)


def _key(text: str, kind: Any) -> str:
    return f"({text} + 0)" if _t.is_floating(arrow_type(kind)) else text


def _if(condition: str | None, text: str) -> str:
    return text if condition is None else f"CASE WHEN {condition} THEN {text} END"


def _all(*conditions: str | None) -> str:
    return " AND ".join(f"({one})" for one in conditions if one is not None) or "true"


# --- sums, counts, extremes ---------------------------------------------------------------------------------------------


def _count(function: Expr, x: Expressions, where: str | None) -> State:
    known = [f"{text} IS NOT NULL" for text in x.texts(function["children"])]
    condition = _all(where, *known)
    partial = "count(*)" if condition == "true" else f"count(CASE WHEN {condition} THEN 1 END)"
    single = f"CAST({condition} IS TRUE AS BIGINT)"
    return State((pa.int64(),), (partial,), (single,), ("CAST(sum({0}) AS BIGINT)",), "coalesce({0}, 0)")


def _sum(function: Expr, x: Expressions, where: str | None) -> State:
    name, total = _total(function)
    text = f"CAST({_if(where, x.text(function['child']))} AS {name})"
    merged = total.replace("{0}", "sum({0})")
    return State((arrow_type(function.type),), (merged.format(text),), (text,), (merged,))


def _total(function: Expr) -> tuple[str, str]:
    """The type of what is added up, and what is made of the sum ``{0}``."""
    kind = arrow_type(function.type)
    if _t.is_floating(kind):
        return "DOUBLE", "{0}"
    if _t.is_decimal(kind):
        decimal = f"DECIMAL({kind.precision},{kind.scale})"
        return decimal, f"CAST({{0}} AS {decimal})"
    name, low, high = ("UBIGINT", 0, 2**64 - 1) if _t.is_uint64(kind) else ("BIGINT", -(2**63), 2**63 - 1)
    said = literal(f"A sum of column '{function['said']}' does not fit {kind}", "string")
    error = f"CAST(error({_braced(said)}) AS {name})"
    fits = f"{{0}} BETWEEN {low} AND {high}"
    return name, f"CASE WHEN {fits} THEN CAST({{0}} AS {name}) WHEN {{0}} IS NOT NULL THEN {error} END"


def windowed(call: Expr, x: Expressions) -> tuple[str, str]:
    """A sum, mean, count, least or largest value as the engine's function of a window, and what is made of its value ``{0}``."""
    function = call["aggregateFunction"]
    (text,) = x.texts(function["children"])
    if function.cls == "Sum":
        name, total = _total(function)
        return f"sum(CAST({text} AS {name}))", total
    if function.cls == "Average":
        return f"avg(CAST({text} AS DOUBLE))", "{0}"
    return f"{function.cls.lower()}({text})", "{0}"


def _braced(text: str) -> str:
    """For ``format``."""
    return text.replace("{", "{{").replace("}", "}}")


def _mean(function: Expr, x: Expressions, where: str | None) -> State:
    total, count = _sum(function, x, where), _count(Expr("Count", {"children": [function["child"]]}), x, where)
    return State(
        (*total.kinds, *count.kinds),
        (*total.partial, *count.partial),
        (*total.single, *count.single),
        (*total.merged, "CAST(sum({1}) AS BIGINT)"),
        _mean_text(function, "{0}", "{1}"),
    )


def _mean_text(function: Expr, total: str, count: str) -> str:
    if function.get("mean") is None:
        return f"(CAST({total} AS DOUBLE) / nullif({count}, 0))"
    return decimal_mean(total, count, function.type, function["mean"])


def _folded(name: str, function: Expr, x: Expressions, where: str | None) -> State:
    """A function that merges values as it merges what it has made of them."""
    text = _if(where, x.text(function["child"]))
    return State((arrow_type(function.type),), (f"{name}({text})",), (text,), (f"{name}({{0}})",))


# --- moments ------------------------------------------------------------------------------------------------------------

_ONE = pa.struct([(name, pa.float64()) for name in ("n", "m", "s")])
_TWO = pa.struct([(name, pa.float64()) for name in ("n", "m", "s", "m2", "s2", "c")])


def _moments(function: Expr, x: Expressions, where: str | None) -> State:
    """The number of rows, the mean, and the sum of squared distances from it (Chan, Golub, LeVeque), which lose nothing where large numbers
    vary little; of two columns those of both, and the products of the distances."""
    texts = [f"CAST({text} AS DOUBLE)" for text in x.texts(function["children"])]
    known = _all(where, *(f"{text} IS NOT NULL" for text in texts))
    texts = [f"CASE WHEN {known} THEN {text} END" for text in texts]
    fields, single, merged = {"n": f"CAST(count({texts[0]}) AS DOUBLE)"}, {"n": f"CAST({known} AS INTEGER)::DOUBLE"}, []
    for text, m, s in zip(texts, ("m", "m2"), ("s", "s2"), strict=False):
        mean = f"CASE WHEN min({text}) = max({text}) THEN min({text}) ELSE avg({text}) END"
        fields[m], fields[s] = (
            f"coalesce({mean}, 0)",
            f"coalesce(var_pop({text}) * count({text}) + {spread_of_one(text)}, 0)",
        )
        single[m], single[s] = f"coalesce({text}, 0)", f"coalesce({text} - {text}, 0)"
        merged.append(f"{m}: a.{m} + (b.{m} - a.{m}) * (b.n / (a.n + b.n))")
        merged.append(f"{s}: a.{s} + b.{s} + (b.{m} - a.{m}) ** 2 * (a.n * b.n / (a.n + b.n))")
    if len(texts) == 2:
        a, b = texts
        fields["c"], single["c"] = (
            f"coalesce(covar_pop({a}, {b}) * count({a}), 0)",
            f"coalesce(({a} - {a}) + ({b} - {b}), 0)",
        )
        merged.append("c: a.c + b.c + (b.m - a.m) * (b.m2 - a.m2) * (a.n * b.n / (a.n + b.n))")
    struct = f"{{{{n: a.n + b.n, {', '.join(merged)}}}}}"
    fold = f"list_reduce(list({{0}}) FILTER ({{0}}.n > 0), lambda a, b: {struct})"
    kind = function["kind"]
    least = 2 if kind.endswith("_samp") or kind == "corr" else 1
    if kind == "corr":
        value = "v.c / sqrt(v.s * v.s2)"
    else:
        value = f"v.{'c' if len(texts) == 2 else 's'} / (v.n - {least - 1})"
        value = f"sqrt({value})" if kind.startswith("stddev") else value
    finished = f"list_transform([{{0}}], lambda v: CASE WHEN v.n >= {least} THEN {value} END)[1]"
    return State((_ONE if len(texts) == 1 else _TWO,), (_packed(fields),), (_packed(single),), (fold,), finished)


def _packed(fields: dict[str, str]) -> str:
    return f"{{{', '.join(f'{name}: {text}' for name, text in fields.items())}}}"


# --- rows that are picked, lists --------------------------------------------------------------------------------------


def place_text(order: Iterable[tuple[str, bool]]) -> str:
    """The place of a row in an order, as bytes. Nulls come first, and last where it descends; NaN is the largest number.

    The engine makes an integer of the place if all values are short. The empty text at the end prevents that.
    """
    return f"create_sort_key({', '.join(f'{text}, {_DIRECTIONS[up]}' for text, up in (*order, (_EMPTY, True)))})"


_EMPTY = "''"


_DIRECTIONS = {True: "'ASC NULLS FIRST'", False: "'DESC NULLS LAST'"}


def _picked(function: Expr, x: Expressions, where: str | None) -> State:
    """The value of the first row in an order; of equal rows the smallest value. ``known``: which of these, the value behind the order, must
    not be null for a row to count."""
    value = x.text(function["child"])
    order = [(x.text(one), up) for one, up in zip(function["order"], function["ascending"], strict=True)]
    order.append((value, True))
    taken = _all(where, *(f"{order[place][0]} IS NOT NULL" for place in function["known"]))
    place = place_text(order)
    by = "" if taken == "true" else f" FILTER (WHERE {taken})"
    return State(
        (arrow_type(function.type), pa.binary()),
        (f"arg_min_null({value}, {place}){by}", f"min({place}){by}"),
        (f"CASE WHEN {taken} THEN {value} END", f"CASE WHEN {taken} THEN {place} END"),
        ("arg_min_null({0}, {1})", "min({1})"),
    )


def _only(function: Expr, x: Expressions, where: str | None) -> State:
    """The value that all rows have; ``known``: that all rows with a value have. Zeros of two signs are two values."""
    value = x.text(function["child"])
    taken = _all(where, f"{value} IS NOT NULL" if function["known"] else None)
    place = place_text([(value, True), (f"replace(CAST({value} AS VARCHAR), '-nan', 'nan')", True)])
    by = "" if taken == "true" else f" FILTER (WHERE {taken})"
    return State(
        (arrow_type(function.type), pa.binary(), pa.binary()),
        (f"any_value({value}){by}", f"min({place}){by}", f"max({place}){by}"),
        (f"CASE WHEN {taken} THEN {value} END", *[f"CASE WHEN {taken} THEN {place} END"] * 2),
        ("any_value({0})", "min({1})", "max({2})"),
        f"CASE WHEN {{1}} = {{2}} OR {{1}} IS NULL THEN {{0}} ELSE error({_braced(literal(function['said'], 'string'))}) END",
    )


def _list(function: Expr, x: Expressions, where: str | None) -> State:
    """All values that are not null, or the different ones (``unique``), in an order if there is one, equal ones by the value."""
    child = function["child"]
    value, kind = x.text(child), arrow_type(child.type)
    taken = _all(where, f"{value} IS NOT NULL")
    finished, distinct, joined = "{0}", "", "coalesce(flatten(list({0})), [])"
    if function["unique"]:
        value, distinct, joined, finished = (
            _key(value, child.type),
            "DISTINCT ",
            f"list_distinct({joined})",
            "list_sort({0})",
        )
    elif function["order"]:
        order = [(x.text(one), up) for one, up in zip(function["order"], function["ascending"], strict=True)]
        value = f"{{k: {place_text([*order, (value, True)])}, v: {value}}}"
        kind = pa.struct([("k", pa.binary()), ("v", kind)])
        finished = "list_transform(list_sort({0}), lambda s: s.v)"
    partial = f"coalesce(list({distinct}{value}) FILTER (WHERE {taken}), [])"
    return State((pa.list_(kind),), (partial,), (f"CASE WHEN {taken} THEN [{value}] ELSE [] END",), (joined,), finished)


def _bins(function: Expr, x: Expressions, where: str | None) -> State:
    """The number of values from each edge on below the next one; the last bin has its upper edge, too."""
    value, edges = (
        f"CAST({x.text(function['child'])} AS DOUBLE)",
        [f"CAST('{edge!r}' AS DOUBLE)" for edge in function["edges"]],
    )
    conditions = [f"{value} >= {low} AND {value} < {high}" for low, high in pairwise(edges)]
    conditions[-1] = f"{value} >= {edges[-2]} AND {value} <= {edges[-1]}"
    conditions = [_all(where, one) for one in conditions]
    return State(
        (pa.int64(),) * len(conditions),
        tuple(f"count(CASE WHEN {one} THEN 1 END)" for one in conditions),
        tuple(f"CAST(({one}) IS TRUE AS BIGINT)" for one in conditions),
        tuple(f"CAST(coalesce(sum({{{i}}}), 0) AS BIGINT)" for i in range(len(conditions))),
        f"[{', '.join(f'{{{i}}}' for i in range(len(conditions)))}]",
    )


# --- of the different values --------------------------------------------------------------------------------------------


def _percentile(function: Expr, x: Expressions, where: str | None) -> Values:
    """Spark's exact one: at places between two values, what lies between them."""
    value = f"(CAST({_if(where, x.text(function['child']))} AS DOUBLE) + 0)"
    texts: list[str] = []
    for share in function["fractions"]:
        places = [f"(({total} - 1) * CAST('{share!r}' AS DOUBLE))" for total in ("{3}", "max({3})")]
        at = places[1]
        low, high = (f"min({{0}}) FILTER (WHERE {{2}} > {end}({places[0]}))" for end in ("floor", "ceil"))
        texts.append(between(low, high, at))
    found = f"CASE WHEN count({{0}}) > 0 THEN [{', '.join(texts)}] END" if function["listed"] else texts[0]
    return Values(pa.float64(), value, found)


def _mode(function: Expr, x: Expressions, where: str | None) -> Values:
    """The smallest of the commonest ones."""
    child = function["child"]
    text = _key(_if(where, x.text(child)), child.type)
    return Values(arrow_type(child.type), text, "min({0}) FILTER (WHERE {1} = {4})")


_RULES: dict[str, Callable[[Expr, Expressions, str | None], State | Values]] = {
    "Count": _count,
    "Sum": _sum,
    "Average": _mean,
    "Min": partial(_folded, "min"),
    "Max": partial(_folded, "max"),
    "BitAndAgg": partial(_folded, "bit_and"),
    "BitOrAgg": partial(_folded, "bit_or"),
    "BitXorAgg": partial(_folded, "bit_xor"),
    "Moments": _moments,
    "Picked": _picked,
    "Only": _only,
    "Listed": _list,
    "Bins": _bins,
    "Percentile": _percentile,
    "Mode": _mode,
}
"""By Catalyst's class where the meaning is Spark's; ``Moments``, ``Picked``, ``Only``, ``Listed`` and ``Bins`` are of steps alone."""

"""Arrays. The engine counts from 1 and takes negative places from the end; of places outside it gives null."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.plan.coercion import array_of
from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import (
    FLOATS,
    INTEGERS,
    checked_inside,
    element_of,
    engine_type,
    entry_of,
    fields_of,
    grouped,
    is_text,
    said,
)
from firesteel.render.expressions.maps import map_value
from firesteel.render.expressions.regexes import regex_of
from firesteel.render.expressions.strings import part, plain_separator, plain_text
from firesteel.render.expressions.texts import (
    all_shared,
    constant,
    counted,
    joined,
    left_to_spark,
    literal,
    once,
    struct_text,
)

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


# --- what several rules ask for ---------------------------------------------------------------------------------------


def array_text(x: Expressions, n: Expr) -> str:
    if element_of(n.type) is None:
        raise Unsupported(f"{said(n.type)} in place of an array is not taken over")
    return x.text(n)


def _compared(x: Expressions, n: Expr) -> str:
    """An array of values that are compared: where zeros of two signs may be in it, the fragment ends."""
    text, kind = array_text(x, n), grouped(element_of(n.type))
    return _one_zero(text, n.type) if kind in FLOATS else text


def _in_order(x: Expressions, n: Expr, order: str) -> str:
    """The sorted array. Of structs each field is compared, null being the smallest; the engine would have it as the largest."""
    text, element = array_text(x, n), element_of(n.type)
    fields = fields_of(element)
    if element_of(element) is not None:
        checked_inside(element_of(element))
        return f"list_sort({_without_nulls(_compared(x, n), n.type)}, {order})"
    if fields is None:
        checked_inside(element)
        return f"list_sort({_compared(x, n)}, {order})"
    keys: list[tuple[str, str]] = []
    for i, (_, kind) in enumerate(fields):
        if checked_inside(kind) in FLOATS:
            raise Unsupported("the order of structs with floating-point numbers is not taken over")
        value = f"struct_extract_at(e, {i + 1})"
        keys += [(f"n{i}", f"{value} IS NOT NULL"), (f"v{i}", value)]
    keyed = f"CASE WHEN e IS NOT NULL THEN {struct_text([*keys, ('whole', 'e')])} END"
    by_keys = f"list_sort(list_transform({text}, lambda e: {keyed}), {order})"
    return f"list_transform({by_keys}, lambda e: struct_extract_at(e, {len(keys) + 1}))"


def _without_nulls(array: str, kind: Any) -> str:
    """An array of arrays, in whose order nulls inside would be the largest."""
    other = left_to_spark("the order of arrays with nulls", kind)
    return f"(CASE WHEN len(list_filter({array}, lambda e: list_count(e) < len(e))) > 0 THEN {other} ELSE {array} END)"


def _one_zero(array: str, kind: Any) -> str:
    other = left_to_spark("zeros of two signs", kind)
    return f"(CASE WHEN len(list_filter({array}, lambda e: e = 0 AND signbit(e))) > 0 THEN {other} ELSE {array} END)"


def _value(x: Expressions, n: Expr, array: Expr) -> str:
    """A value that is looked for in the array."""
    if engine_type(n.type) != engine_type(element_of(array.type)):
        raise Unsupported(f"{said(n.type)} in an array of another type is not taken over")
    return x.text(n)


def _place(x: Expressions, n: Expr) -> str:
    if n.type not in INTEGERS:
        raise Unsupported(f"a place of type {said(n.type)} is not taken over")
    return f"CAST(CAST({x.text(n)} AS INTEGER) AS BIGINT)"


def _outside(n: Expr) -> str:
    if not isinstance(n["failOnError"], bool):
        raise Unsupported("its mode is not known")
    return left_to_spark("a place outside of an array", n.type) if n["failOnError"] else "NULL"


def _known(texts: list[str]) -> str:
    return " AND ".join(f"{text} IS NOT NULL" for text in texts)


# --- values of arrays -------------------------------------------------------------------------------------------------


def _item(x: Expressions, n: Expr) -> str:
    """Spark counts from 0."""
    array, at = array_text(x, n["child"]), _place(x, n["ordinal"])
    outside = f"{array} IS NOT NULL AND ({at} < 0 OR {at} >= len({array}))"
    return f"(CASE WHEN {outside} THEN {_outside(n)} ELSE {array}[{at} + 1] END)"


def _element_at(x: Expressions, n: Expr) -> str:
    if n["defaultValueOutOfBound"] is not None:
        return part(x, n)
    if entry_of(n["left"].type) is not None:
        return map_value(x, n["left"], n["right"])
    array, at = array_text(x, n["left"]), _place(x, n["right"])
    zero = f"WHEN {at} = 0 AND {array} IS NOT NULL THEN {left_to_spark('the place 0 of an array', n.type)}"
    return f"(CASE {zero} WHEN abs({at}) > len({array}) THEN {_outside(n)} ELSE {array}[{at}] END)"


def _size(x: Expressions, n: Expr) -> str:
    child = n["child"]
    function = "len" if element_of(child.type) is not None else "cardinality" if entry_of(child.type) else None
    if function is None or not isinstance(n["legacySizeOfNull"], bool):
        raise Unsupported(f"the size of {said(child.type)} is not taken over")
    size = f"CAST({function}({x.text(child)}) AS INTEGER)"
    return f"coalesce({size}, -1)" if n["legacySizeOfNull"] else size


def _contains(x: Expressions, n: Expr) -> str:
    array, value = _compared(x, n["left"]), _value(x, n["right"], n["left"])
    return (
        f"(CASE WHEN {array} IS NULL OR {value} IS NULL THEN NULL WHEN list_contains({array}, {value}) THEN true"
        f" WHEN list_count({array}) < len({array}) THEN NULL ELSE false END)"
    )


def _position(x: Expressions, n: Expr) -> str:
    array, value = _compared(x, n["left"]), _value(x, n["right"], n["left"])
    return f"(CASE WHEN {_known([array, value])} THEN CAST(coalesce(list_position({array}, {value}), 0) AS BIGINT) END)"


def _overlap(x: Expressions, n: Expr) -> str:
    a, b = (_compared(x, n[side]) for side in ("left", "right"))
    nulls = f"(list_count({a}) < len({a}) OR list_count({b}) < len({b}))"
    return (
        f"(CASE WHEN NOT ({_known([a, b])}) THEN NULL WHEN list_has_any({a}, {b}) THEN true"
        f" WHEN len({a}) > 0 AND len({b}) > 0 AND {nulls} THEN NULL ELSE false END)"
    )


def _extreme(function: str, order: str) -> Callable[[Expressions, Expr], str]:
    def rule(x: Expressions, n: Expr) -> str:
        if isinstance(element_of(n["child"].type), dict):
            return f"list_extract({_in_order(x, n['child'], order)}, 1)"
        return f"{function}({_compared(x, n['child'])})"

    return rule


def _joined(x: Expressions, n: Expr) -> str:
    if not is_text(element_of(n["array"].type)):
        raise Unsupported("array_join of other values than texts is not taken over")
    array, delimiter, null = array_text(x, n["array"]), x.text(n["delimiter"]), n["nullReplacement"]
    known = [array, delimiter]
    if null is not None:
        known.append(x.text(null))
        array = f"list_transform({array}, lambda e: coalesce(e, {known[-1]}))"
    return f"(CASE WHEN {_known(known)} THEN {joined(array, delimiter)} END)"


# --- arrays of arrays ---------------------------------------------------------------------------------------------------


def _created(x: Expressions, n: Expr) -> str:
    return f"CAST([{', '.join(x.texts(n['children']))}] AS {engine_type(n.type)})"


def _distinct(array: str) -> str:
    """The first of equal ones, nulls among them."""
    return f"list_filter({array}, lambda e, i: list_position({array}, e) = i)"


def _together(x: Expressions, n: Expr) -> str:
    a, b = (_compared(x, n[side]) for side in ("left", "right"))
    return _distinct(f"({a} || {b})")


def _of_both(found: str, x: Expressions, n: Expr) -> str:
    a, b = (_compared(x, n[side]) for side in ("left", "right"))
    kept = f"list_filter({_distinct(a)}, lambda e: list_position({b}, e) {found})"
    return f"(CASE WHEN {_known([a, b])} THEN {kept} END)"


def _without(x: Expressions, n: Expr) -> str:
    array, value = _compared(x, n["left"]), _value(x, n["right"], n["left"])
    return f"(CASE WHEN {value} IS NOT NULL THEN list_filter({array}, lambda e: e IS NULL OR NOT (e = {value})) END)"


def _repeated(x: Expressions, n: Expr) -> str:
    items, times = f"[{x.text(n['left'])}]", counted(x.text(n["right"]), 10_000, "array_repeat of this number")
    return f"CAST(list_transform(range(0, {times}), lambda i: {items}[1]) AS {engine_type(n.type)})"


def _inserted(x: Expressions, n: Expr) -> str:
    """At a place beyond the array's end, or before its begin, nulls come between."""
    if not isinstance(legacy := n["legacyNegativeIndex"], bool):
        raise Unsupported("its mode is not known")
    other = left_to_spark("array_insert at this place", n.type)
    item = f"[{_value(x, n['itemExpr'], n['srcArrayExpr'])}]"

    def nulls(count: str) -> str:
        return f"CAST(list_transform(range(0, {count}), lambda i: NULL) AS {engine_type(n.type)})"

    def of(a: str, p: str) -> str:
        before = f"len({a}) + {p}{'' if legacy else ' + 1'}"
        after = f"{a}[1:{p} - 1] || {nulls(f'{p} - 1 - len({a})')} || {item} || {a}[{p}:]"
        inside = f"{a}[1:{before}] || {item} || {a}[{before} + 1:]"
        return (
            f"(CASE WHEN {a} IS NULL OR {p} IS NULL THEN NULL WHEN {p} = 0 OR abs({p}) > 10000 THEN {other} WHEN {p} > 0 THEN {after}"
            f" WHEN -{p} <= len({a}) THEN {inside} ELSE {item} || {nulls(f'-({before})')} || {a} END)"
        )

    return all_shared([array_text(x, n["srcArrayExpr"]), _place(x, n["posExpr"])], of)


def _sorted(x: Expressions, n: Expr) -> str:
    up = n["ascendingOrder"]
    if up.cls != "Literal" or not isinstance(up["value"], bool):
        raise Unsupported("sort_array in an order that is no constant is not taken over")
    order = "'ASC', 'NULLS FIRST'" if up["value"] else "'DESC', 'NULLS LAST'"
    return _in_order(x, n["base"], order)


_COMPARED = "If(LessThan(0,1),'-1',If(GreaterThan(0,1),'1','0'))"
_NATURAL = (_COMPARED, f"If(And(IsNull(0),IsNull(1)),'0',If(IsNull(0),'1',If(IsNull(1),'-1',{_COMPARED})))")
"""The comparison that Spark writes for ``array_sort`` without one, of values that are never null and of others."""


def _sorted_naturally(x: Expressions, n: Expr) -> str:
    function = n["function"]
    variables = [variable["exprId"] for variable in function["arguments"]]
    if _shape(function["function"], variables) not in _NATURAL:
        raise Unsupported("array_sort by a function is not taken over")
    return _in_order(x, n["argument"], "'ASC', 'NULLS LAST'")


def _shape(n: Expr, variables: list[int]) -> str:
    if n.cls == "NamedLambdaVariable" and n["exprId"] in variables:
        return str(variables.index(n["exprId"]))
    if n.cls == "Literal":
        return f"'{n['value']}'"
    return f"{n.cls}({','.join(_shape(child, variables) for child in n.nodes())})"


def _slice(x: Expressions, n: Expr) -> str:
    """A place before the begin of the array gives nothing."""
    array, start, size = array_text(x, n["x"]), _place(x, n["start"]), _place(x, n["length"])
    first = f"(CASE WHEN {start} < 0 THEN len({array}) + {start} + 1 ELSE {start} END)"
    wrong = f"{array} IS NOT NULL AND {start} IS NOT NULL AND {size} IS NOT NULL AND ({start} = 0 OR {size} < 0)"
    return (
        f"(CASE WHEN {wrong} THEN {left_to_spark('this slice of an array', n.type)} WHEN NOT ({_known([array, start, size])})"
        f" THEN NULL WHEN {first} < 1 THEN [] ELSE {array}[{first}:{first} + {size} - 1] END)"
    )


def _concat(x: Expressions, n: Expr) -> str:
    return "(" + " || ".join(array_text(x, child) for child in n["children"]) + ")"


def _flat(x: Expressions, n: Expr) -> str:
    array = array_text(x, n["child"])
    return f"(CASE WHEN list_count({array}) = len({array}) THEN flatten({array}) END)"


def _zipped(x: Expressions, n: Expr) -> str:
    names = [name["value"] for name in n["names"] if name.cls == "Literal"]
    if len(names) != len(n["children"]) or not names:
        raise Unsupported("arrays_zip without names is not taken over")
    arrays = [array_text(x, child) for child in n["children"]]
    longest = f"greatest({', '.join(f'len({array})' for array in arrays)})"
    items = struct_text([(name, f"{array}[i]") for name, array in zip(names, arrays, strict=True)])
    zipped = f"list_transform(range(1, {longest} + 1), lambda i: {items})"
    return f"CAST((CASE WHEN {_known(arrays)} THEN {zipped} END) AS {engine_type(n.type)})"


# --- sequences and parts of texts -----------------------------------------------------------------------------------------

_LONGEST = 1_000_000
_DAY = 86_400_000_000


def _sequence(x: Expressions, n: Expr) -> str:
    """Of integers, and of dates by days. What leads away from the end, or is very long, is left to Spark."""
    kind, step = element_of(n.type), n["stepOpt"]
    start, stop = x.text(n["start"]), x.text(n["stop"])
    if kind in INTEGERS and n["start"].type == n["stop"].type == kind and (step is None or step.type == kind):
        a, b, by = (f"CAST({text} AS HUGEINT)" for text in (start, stop, "NULL" if step is None else x.text(step)))
        begin = f"CAST({start} AS BIGINT)"
        made = f"CAST({begin} + i * CAST({{by}} AS BIGINT) AS {engine_type(kind)})"
    elif kind == "date" and n["start"].type == n["stop"].type == kind:
        a, b = f"CAST({start} - DATE '1970-01-01' AS HUGEINT)", f"CAST({stop} - DATE '1970-01-01' AS HUGEINT)"
        by = f"CAST({_days(step)} AS HUGEINT)"
        made = f"({start} + CAST(i * {{by}} AS INTEGER))"
    else:
        raise Unsupported(f"a sequence of {said(kind)} is not taken over")
    if step is None:
        by = f"CAST(CASE WHEN {a} <= {b} THEN 1 ELSE -1 END AS HUGEINT)"
    wrong = (
        f"{by} = 0 OR ({by} > 0 AND {a} > {b}) OR ({by} < 0 AND {a} < {b}) OR abs({b} - {a}) // abs({by}) >= {_LONGEST}"
    )
    count = f"CAST(abs({b} - {a}) // abs({by}) AS BIGINT) + 1"
    return (
        f"(CASE WHEN NOT ({_known([start, stop, by])}) THEN NULL WHEN {wrong} THEN {left_to_spark('this sequence', n.type)}"
        f" ELSE list_transform(range(0, {count}), lambda i: {made.format(by=by)}) END)"
    )


def _days(step: Expr | None) -> str:
    if step is None:
        return "1"
    if (
        step.cls != "Literal"
        or step.type != "interval day"
        or not isinstance(step["value"], int)
        or step["value"] % _DAY
    ):
        raise Unsupported("a sequence of dates by other steps than days is not taken over")
    return str(step["value"] // _DAY)


def _split(x: Expressions, n: Expr) -> str:
    """By a text, or by a regular expression that matches no empty one."""
    pattern, text = n["regex"], x.text(n["str"])
    most = int(constant(n["limit"], "split into a number of parts"))
    if not is_text(n["str"].type):
        raise Unsupported("split of other values than texts is not taken over")
    if pattern.cls != "Literal" and most <= 0:
        return all_shared([text, x.text(pattern)], _split_by_column)
    try:
        plain = literal(plain_separator(pattern), "string")
    except Unsupported:
        return _split_by_regex(x, n, text, most)
    parts = f"string_split({text}, {plain})"
    if most <= 0:
        return parts

    def of(p: str) -> str:
        rest = f"array_to_string({p}[{most}:], {plain})"  # the last part holds the others
        return f"(CASE WHEN len({p}) <= {most} THEN {p} ELSE {p}[1:{most - 1}] || [{rest}] END)"

    return once(parts, of)


def _split_by_column(text: str, separator: str) -> str:
    other = left_to_spark("a separator that is no plain text", array_of("string"))
    null = f"{text} IS NULL OR {separator} IS NULL"
    parts = f"string_split({text}, {separator})"
    return f"(CASE WHEN {null} THEN NULL WHEN {plain_text(separator)} THEN {parts} ELSE {other} END)"


def _split_by_regex(x: Expressions, n: Expr, text: str, most: int) -> str:
    regex = regex_of(x, n["regex"])
    if most > 0:
        raise Unsupported("split by a regular expression into a number of parts is not taken over")
    if regex.may_be_empty or re.search(r"\\[AzbB]", regex.text):
        raise Unsupported("split by a regular expression of a place is not taken over")
    return regex.found(text, lambda t, p: f"regexp_split_to_array({t}, {p})", n.type)


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "GetArrayItem": _item,
    "ElementAt": _element_at,
    "Size": _size,
    "ArrayContains": _contains,
    "ArrayPosition": _position,
    "ArraysOverlap": _overlap,
    "ArrayMin": _extreme("list_min", "'ASC', 'NULLS LAST'"),
    "ArrayMax": _extreme("list_max", "'DESC', 'NULLS LAST'"),
    "ArrayJoin": _joined,
    "CreateArray": _created,
    "ArrayDistinct": lambda x, n: _distinct(_compared(x, n["child"])),
    "ArrayUnion": _together,
    "ArrayIntersect": partial(_of_both, "IS NOT NULL"),
    "ArrayExcept": partial(_of_both, "IS NULL"),
    "ArrayRemove": _without,
    "ArrayRepeat": _repeated,
    "ArrayInsert": _inserted,
    "SortArray": _sorted,
    "ArraySort": _sorted_naturally,
    "Slice": _slice,
    "Flatten": _flat,
    "ArraysZip": _zipped,
    "Sequence": _sequence,
    "StringSplit": _split,
    "KnownNotContainsNull": lambda x, n: array_text(x, n["child"]),
}
OF_TEXTS_TOO: dict[str, Callable[[Expressions, Expr], str]] = {
    "Concat": _concat,
    "Reverse": lambda x, n: f"list_reverse({array_text(x, n['child'])})",
}
"""Rules for arrays of classes that Spark has for texts as well."""

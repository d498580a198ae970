"""Functions that take a function: the engine's lambdas. Spark's variables are columns of their own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import engine_type
from firesteel.render.expressions.arrays import array_text
from firesteel.render.expressions.maps import made_map, map_text

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _body(x: Expressions, function: Expr, texts: list[str]) -> str:
    """The function's result, its variables having these texts."""
    if function.cls != "LambdaFunction" or len(function["arguments"]) > len(texts):
        raise Unsupported("a function of these variables is not taken over")
    variables = {one["exprId"]: text for one, text in zip(function["arguments"], texts, strict=False)}
    return x.inside(variables).text(function["function"])


def _names(function: Expr) -> list[str]:
    """The engine's names of the variables: unique in a query, for functions stand in functions."""
    return [f"l{variable['exprId']}" for variable in function["arguments"]]


def _each(x: Expressions, n: Expr, engine: str) -> str:
    """Of an array's values, and of their places, which Spark counts from 0."""
    function, array = n["function"], array_text(x, n["argument"])
    names = _names(function)
    texts = [names[0], *(f"CAST({name} - 1 AS INTEGER)" for name in names[1:])]
    return f"{engine}({array}, lambda {', '.join(names)}: {_body(x, function, texts)})"


def _transformed(x: Expressions, n: Expr) -> str:
    return f"CAST({_each(x, n, 'list_transform')} AS {engine_type(n.type)})"


def _filtered(x: Expressions, n: Expr) -> str:
    return _each(x, n, "list_filter")


def _any(x: Expressions, n: Expr) -> str:
    found = f"CAST({_each(x, n, 'list_transform')} AS BOOLEAN[])"
    if n["followThreeValuedLogic"] is not True:
        raise Unsupported("exists of two values is not taken over")
    return f"(CASE WHEN list_contains({found}, true) THEN true WHEN list_count({found}) = len({found}) THEN false END)"


def _all(x: Expressions, n: Expr) -> str:
    found = f"CAST({_each(x, n, 'list_transform')} AS BOOLEAN[])"
    return f"(CASE WHEN list_contains({found}, false) THEN false WHEN list_count({found}) = len({found}) THEN true END)"


def _aggregated(x: Expressions, n: Expr) -> str:
    merge, finish, kind = n["merge"], n["finish"], engine_type(n["zero"].type)
    names = _names(merge)
    body = f"CAST({_body(x, merge, names)} AS {kind})"
    zero = f"CAST({x.text(n['zero'])} AS {kind})"
    merged = f"list_reduce({array_text(x, n['argument'])}, lambda {', '.join(names)}: {body}, {zero})"
    end = _names(finish)
    array = array_text(x, n["argument"])
    result = f"list_transform([{merged}], lambda {end[0]}: {_body(x, finish, end)})[1]"
    return f"CAST((CASE WHEN {array} IS NOT NULL THEN {result} END) AS {engine_type(n.type)})"


def _zipped(x: Expressions, n: Expr) -> str:
    a, b = array_text(x, n["left"]), array_text(x, n["right"])
    at = f"i{n['function']['arguments'][0]['exprId']}"
    body = _body(x, n["function"], [f"{a}[{at}]", f"{b}[{at}]"])
    zipped = f"list_transform(range(1, greatest(len({a}), len({b})) + 1), lambda {at}: {body})"
    return f"CAST((CASE WHEN {a} IS NOT NULL AND {b} IS NOT NULL THEN {zipped} END) AS {engine_type(n.type)})"


def _of_entries(x: Expressions, n: Expr) -> tuple[str, str, str]:
    """The map, the name of an entry and the function's result of it."""
    function = n["function"]
    entry = f"m{function['arguments'][0]['exprId']}"
    texts = [f"struct_extract_at({entry}, {i})" for i in (1, 2)]
    return map_text(x, n["argument"]), entry, _body(x, function, texts)


def _entries_filtered(x: Expressions, n: Expr) -> str:
    of, entry, body = _of_entries(x, n)
    kept = f"list_filter(map_entries({of}), lambda {entry}: {body})"
    keys, values = (f"list_transform({kept}, lambda e: struct_extract_at(e, {i}))" for i in (1, 2))
    return f"(CASE WHEN {of} IS NOT NULL THEN {made_map(keys, values, n)} END)"


def _values_transformed(x: Expressions, n: Expr) -> str:
    of, entry, body = _of_entries(x, n)
    values = f"list_transform(map_entries({of}), lambda {entry}: {body})"
    return f"(CASE WHEN {of} IS NOT NULL THEN {made_map(f'map_keys({of})', values, n)} END)"


def _keys_transformed(x: Expressions, n: Expr) -> str:
    of, entry, body = _of_entries(x, n)
    keys = f"list_transform(map_entries({of}), lambda {entry}: {body})"
    return f"(CASE WHEN {of} IS NOT NULL THEN {made_map(keys, f'map_values({of})', n)} END)"


def _maps_zipped(x: Expressions, n: Expr) -> str:
    """The keys of the first map, then those that only the second one has."""
    a, b, function = map_text(x, n["left"]), map_text(x, n["right"]), n["function"]
    key = f"m{function['arguments'][0]['exprId']}"
    body = _body(x, function, [key, f"map_extract_value({a}, {key})", f"map_extract_value({b}, {key})"])
    keys = f"(map_keys({a}) || list_filter(map_keys({b}), lambda e: NOT list_contains(map_keys({a}), e)))"
    made = made_map(keys, f"list_transform({keys}, lambda {key}: {body})", n)
    return f"(CASE WHEN {a} IS NOT NULL AND {b} IS NOT NULL THEN {made} END)"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "ArrayTransform": _transformed,
    "ArrayFilter": _filtered,
    "ArrayExists": _any,
    "ArrayForAll": _all,
    "ArrayAggregate": _aggregated,
    "ZipWith": _zipped,
    "MapFilter": _entries_filtered,
    "TransformValues": _values_transformed,
    "MapZipWith": _maps_zipped,
    "TransformKeys": _keys_transformed,
}

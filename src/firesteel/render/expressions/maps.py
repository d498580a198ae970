"""Maps and structs. Keys are plain values, and no floating-point numbers: of these Spark changes some."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import (
    FLOATS,
    checked,
    checked_inside,
    element_of,
    engine_type,
    entry_of,
    fields_of,
    grouped,
    said,
)
from firesteel.render.expressions.texts import left_to_spark, shared, struct_text

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def map_text(x: Expressions, n: Expr) -> str:
    entry = entry_of(n.type)
    if entry is None or checked(entry[0]) in FLOATS:
        raise Unsupported(f"a map by keys of type {said(entry[0] if entry else n.type)} is not taken over")
    return x.text(n)


def map_value(x: Expressions, n: Expr, key: Expr) -> str:
    """Null where there is none."""
    entry = entry_of(n.type)
    if entry is None or engine_type(entry[0]) != engine_type(key.type):
        raise Unsupported(f"{said(key.type)} as a key of another type is not taken over")
    return f"map_extract_value({map_text(x, n)}, {x.text(key)})"


def made_map(keys: str, values: str, n: Expr) -> str:
    """The engine ends the fragment where a key is null, or there twice: Spark does as its policy says."""
    entry = entry_of(n.type)
    if entry is None or checked(entry[0]) in FLOATS:
        raise Unsupported(f"a map by keys of type {said(entry[0] if entry else n.type)} is not taken over")
    return f"CAST(MAP({keys}, {values}) AS {engine_type(n.type)})"


def _created(x: Expressions, n: Expr) -> str:
    keys, values = (", ".join(x.texts(n["children"][i::2])) for i in (0, 1))
    if not keys:
        raise Unsupported("an empty map is not taken over")
    return made_map(f"[{keys}]", f"[{values}]", n)


def _from_arrays(x: Expressions, n: Expr) -> str:
    keys, values = x.text(n["left"]), x.text(n["right"])
    return f"(CASE WHEN {keys} IS NOT NULL AND {values} IS NOT NULL THEN {made_map(keys, values, n)} END)"


def _from_entries(x: Expressions, n: Expr) -> str:
    entries = x.text(n["child"])
    if element_of(n["child"].type) is None:
        raise Unsupported("a map of these entries is not taken over")
    keys, values = (f"list_transform({entries}, lambda e: struct_extract_at(e, {i}))" for i in (1, 2))
    return f"(CASE WHEN list_count({entries}) = len({entries}) THEN {made_map(keys, values, n)} END)"


def _concat(x: Expressions, n: Expr) -> str:
    maps = [map_text(x, child) for child in n["children"]]
    keys, values = (" || ".join(f"{function}({one})" for one in maps) for function in ("map_keys", "map_values"))
    known = " AND ".join(f"{one} IS NOT NULL" for one in maps)
    return f"(CASE WHEN {known} THEN {made_map(keys, values, n)} END)"


def _of_map(function: str) -> Callable[[Expressions, Expr], str]:
    return lambda x, n: f"{function}({map_text(x, n['child'])})"


def _sorted(x: Expressions, n: Expr) -> str:
    """By the keys. Of nested keys with nulls inside, the engine has another order; and Spark makes zeros of values that are null."""
    key, _ = entry_of(grouped(n.type, maps=True)) or ("", "")
    fields, element = fields_of(key), element_of(key)
    if key in FLOATS:
        raise Unsupported(f"a map by keys of type {said(key)} is not taken over")
    for part in [element] if element is not None else [kind for _, kind in fields or []]:
        checked_inside(part)
    nulls = ["list_count(e.key) < len(e.key)"] if element is not None else []
    nulls += [f"struct_extract_at(e.key, {i + 1}) IS NULL" for i, _ in enumerate(fields or [])]
    other = left_to_spark("the order of a map with nulls", n.type)

    def of(m: str) -> str:
        unknown = f"len(list_filter(map_entries({m}), lambda e: {' OR '.join(['e.value IS NULL', *nulls])})) > 0"
        entries = f"CAST(map_from_entries(list_sort(map_entries({m}))) AS {engine_type(n.type)})"
        return f"(CASE WHEN {unknown} THEN {other} ELSE {entries} END)"

    return shared(x.text(n["base"]), of)


def _struct(x: Expressions, n: Expr) -> str:
    fields, values = fields_of(n.type), x.texts(n["children"][1::2])
    if fields is None:
        raise Unsupported("a struct of these fields is not taken over")
    texts = [
        (name, f"CAST({value} AS {engine_type(kind)})") for (name, kind), value in zip(fields, values, strict=True)
    ]
    return struct_text(texts)


def _field(x: Expressions, n: Expr) -> str:
    child = n["child"]
    if child.cls == "ScalarSubquery":
        return x.subquery(child, n["ordinal"])
    if fields_of(child.type) is None:
        raise Unsupported(f"a field of {said(child.type)} is not taken over")
    return f"struct_extract_at({x.text(child)}, {n['ordinal'] + 1})"


def _fields_of_array(x: Expressions, n: Expr) -> str:
    """A field of each struct of an array."""
    if fields_of(element_of(n["child"].type)) is None:
        raise Unsupported("fields of such an array are not taken over")
    return f"list_transform({x.text(n['child'])}, lambda e: struct_extract_at(e, {n['ordinal'] + 1}))"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "CreateMap": _created,
    "MapFromArrays": _from_arrays,
    "MapFromEntries": _from_entries,
    "MapConcat": _concat,
    "MapSort": _sorted,
    "MapKeys": _of_map("map_keys"),
    "MapValues": _of_map("map_values"),
    "MapEntries": _of_map("map_entries"),
    "GetMapValue": lambda x, n: map_value(x, n["child"], n["key"]),
    "CreateNamedStruct": _struct,
    "GetStructField": _field,
    "GetArrayStructFields": _fields_of_array,
}

"""JSON in texts. A row whose text Spark's reader and the engine's may take otherwise is left to Spark: texts that are not strict JSON,
names that are there twice, numbers that Java writes in another way, values of another type than the one that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firesteel.plan.coercion import array_of
from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import FLOATS, INTEGERS, decimal_of, element_of, engine_type, entry_of, fields_of, said
from firesteel.render.expressions.strings import strings
from firesteel.render.expressions.texts import (
    constant,
    exact_text,
    java_number,
    left_to_spark,
    literal,
    once,
    struct_text,
)
from firesteel.render.expressions.times.dates import between_years
from firesteel.render.expressions.times.patterns import in_pattern
from firesteel.render.expressions.times.zones import Zone, zone_of

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_STEP = re.compile(r"\.([^\s.\[\]'\"\\*?][^.\[\]'\"\\*?]*)|\['([^\s'\"\\*?\]][^'\"\\*?\]]*)'\]|\[(\d{1,9})\]")
_STRING = r'"(?:[^"\\]|\\.)*"'
_LENIENT = r"(?i),\s*[\]}]|nan|inf"
"""What the engine's reader takes and Spark's does not, outside of strings."""
_NO_JSON = r"^[ \t\r\n]*([A-HJ-MO-Za-eg-mo-su-z]|\{[ \t\r\n]*[A-Za-z])"
"""A text that begins so is refused by every reader: with a letter that begins none of ``true``, ``NaN`` and their kind, or with a name without quotes."""
_LEAST = 1000
"""Bytes of a text that cannot be too deep for Spark, or have too long a number."""
_WHOLE = r"-?[1-9][0-9]{0,17}|0"
_FRACTION = r"-?([1-9][0-9]{0,6}|0)\.[0-9]{1,8}"
_TINY = r"-?0\.000[0-9]*[1-9][0-9]*"


def _plain(t: str) -> str:
    """The condition that both readers take a text for the same JSON."""
    bare = f"regexp_replace({t}, '{_STRING}', '\"\"', 'g')"
    lenient = f"NOT regexp_matches({t}, '{_LENIENT}') OR NOT regexp_matches({bare}, '{_LENIENT}')"
    deep = f"length({t}) - length(translate({t}, '[{{', '')) < 900 AND NOT regexp_matches({t}, '[0-9.]{{900}}')"
    return f"json_valid({t}) AND NOT contains({t}, '\\u0000') AND ({lenient}) AND (strlen({t}) < {_LEAST} OR ({deep}))"


def _read(text: str, value: Callable[[str], str], kind: Any, broken: str = "NULL") -> str:
    """``value``: of a text that is JSON. Null and an empty text give null. ``broken``: of a text that every reader refuses."""
    other, no_json = left_to_spark("this JSON", kind), literal(_NO_JSON, "string")
    return once(
        text,
        lambda t: (
            f"(CASE WHEN {t} IS NULL OR {t} = '' THEN NULL WHEN {_plain(t)} THEN {value(t)}"
            f" WHEN regexp_matches({t}, {no_json}) THEN {broken} ELSE {other} END)"
        ),
    )


def _at(steps: list[str | int]) -> str:
    """The engine's text of a path: of names, and of places in arrays."""
    parts = (f'."{one}"' if isinstance(one, str) else f"[{one}]" for one in steps)
    return literal(f"${''.join(parts)}", "string")


def _same_numbers(json: str) -> str:
    """The condition that Java writes each number of JSON as the engine has written it."""
    numbers = f"regexp_extract_all(regexp_replace({json}, '{_STRING}', '\"\"', 'g'), '[-0-9][-+0-9.eE]*')"
    return f"len(list_filter({numbers}, lambda n: NOT ({_same_number('n')}))) = 0"


def _same_number(n: str) -> str:
    return f"regexp_full_match({n}, '{_WHOLE}|{_FRACTION}') AND NOT regexp_full_match({n}, '{_TINY}')"


def _text_at(t: str, steps: list[str | int], missing: str) -> str:
    """The value at a path as a text: a string without its quotes, anything else as JSON. ``missing``: where there is none, or a null."""
    path, other = _at(steps), left_to_spark("this value of JSON", "string")
    bare, json = f"json_extract_string({t}, {path})", f"CAST(json_extract({t}, {path}) AS VARCHAR)"
    number = once(bare, lambda n: f"(CASE WHEN {_same_number(n)} THEN {n} ELSE {other} END)")
    odd = r"\\\\|[\x{10000}-\x{10FFFF}]"  # letters that each writes in a way of its own
    inner = once(
        json, lambda j: f"(CASE WHEN NOT regexp_matches({j}, '{odd}') AND {_same_numbers(j)} THEN {j} ELSE {other} END)"
    )
    return (
        f"(CASE json_type({t}, {path}) WHEN 'VARCHAR' THEN {bare} WHEN 'BOOLEAN' THEN {bare} WHEN 'OBJECT' THEN {inner}"
        f" WHEN 'ARRAY' THEN {inner} WHEN 'NULL' THEN {missing} ELSE CASE WHEN {bare} IS NULL THEN {missing} ELSE {number} END END)"
    )


def _object(x: Expressions, n: Expr) -> str:
    """Of names that are there twice, Spark takes the first that leads to a value."""
    strings(n["json"])
    whole, steps, at = str(constant(n["path"], "a path of JSON")), list[str | int](), 1
    while at < len(whole) and (found := _STEP.match(whole, at)):
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        at = found.end()
    if not steps or whole[0] != "$" or at < len(whole):
        raise Unsupported(f"the path {whole!r} of JSON is not taken over")
    null = "'null'" if isinstance(steps[-1], int) else "CAST(NULL AS VARCHAR)"

    def of(t: str) -> str:
        names = [(i, one) for i, one in enumerate(steps) if isinstance(one, str)]
        twice = " OR ".join(
            f"len(list_filter(json_keys({t}, {_at(steps[:i])}), lambda k: k = {literal(one, 'string')})) > 1"
            for i, one in names
        )
        absent = f"CASE WHEN json_type({t}, {_at(steps)}) = 'NULL' THEN {null} ELSE CAST(NULL AS VARCHAR) END"
        other = left_to_spark("names of JSON that are there twice", "string")
        return _text_at(t, steps, f"(CASE WHEN {twice} THEN {other} ELSE {absent} END)" if names else absent)

    return _read(x.text(n["json"]), of, "string")


def tuple_texts(x: Expressions, n: Expr) -> list[str]:
    """The values of the fields that ``json_tuple`` asks for."""
    json, *names = n["children"]
    strings(json)
    wanted = [_named(str(constant(name, "a field of JSON"))) for name in names]
    return [
        _read(x.text(json), lambda t, one=one: _of_object(t, _text_at(t, [one], "NULL"), "string"), "string")
        for one in wanted
    ]


def _of_object(t: str, value: str, kind: Any, at: str = "'$'") -> str:
    """A value of an object in which each name is there once."""
    keys, other = f"json_keys({t}, {at})", left_to_spark("this JSON in the place of an object", kind)
    known = f"json_type({t}, {at}) = 'OBJECT' AND len({keys}) = len(list_distinct({keys}))"
    return f"(CASE WHEN {known} THEN {value} ELSE {other} END)"


def length(text: str) -> str:
    """Of an array; null of anything else."""
    return _read(
        text, lambda t: f"CASE json_type({t}) WHEN 'ARRAY' THEN CAST(json_array_length({t}) AS INTEGER) END", "integer"
    )


def keys(text: str) -> str:
    """Of an object; null of anything else."""
    return _read(text, lambda t: f"CASE json_type({t}) WHEN 'OBJECT' THEN json_keys({t}) END", array_of("string"))


# --- values of a schema ---------------------------------------------------------------------------------------------------


def _structs(x: Expressions, n: Expr) -> str:
    strings(n["child"])
    fields = fields_of(n["schema"])
    if not _is_empty(n["options"]) or fields is None or any(name == "_corrupt_record" for name, _ in fields):
        raise Unsupported("from_json with options, or of other types than structs, is not taken over")
    nulls = f"CAST({struct_text([(name, 'NULL') for name, _ in fields])} AS {engine_type(n.type)})"
    return _read(
        x.text(n["child"]),
        lambda t: f"(CASE WHEN json_type({t}) = 'NULL' THEN {nulls} ELSE {_value_at(t, [], n['schema'])} END)",
        n.type,
        nulls,
    )


def _is_empty(options: Any) -> bool:
    """A map without entries, as the reader of plans says what it does not look into."""
    return isinstance(options, dict) and str(options.get("?", "")).endswith("Map$EmptyMap$")


def _value_at(t: str, steps: list[str | int], kind: Any) -> str:
    """The value at a path in a type; null where there is none."""
    path, name = _at(steps), engine_type(kind)
    fields, element = fields_of(kind), element_of(kind)
    other, value = left_to_spark("JSON of another type", kind), f"json_extract_string({t}, {path})"
    if fields is not None:
        parts = [(field, _value_at(t, [*steps, _named(field)], of)) for field, of in fields]
        made = f"CAST({struct_text(parts)} AS {name})"
        known = {"OBJECT": _of_object(t, made, kind, path)}
    elif element is not None:
        variable = f"e{len(steps)}"
        items = f"json_extract({t}, {_at(steps)[:-1]}[*]')"
        known = {
            "ARRAY": f"CAST(list_transform({items}, lambda {variable}: {_value_at(variable, [], element)}) AS {name})"
        }
    elif kind == "string":
        number = f"CASE WHEN regexp_full_match({value}, '{_WHOLE}') THEN {value} ELSE {other} END"
        known = {"VARCHAR": value, "BOOLEAN": value, "UBIGINT": number, "BIGINT": number}
    elif kind == "boolean":
        known = {"BOOLEAN": f"CAST({value} AS BOOLEAN)"}
    elif kind in INTEGERS:
        number = f"coalesce(TRY_CAST({value} AS {name}), {other})"
        known = {"UBIGINT": number, "BIGINT": number}
    elif kind == "double":
        number = f"CAST({value} AS DOUBLE)"
        known = {"UBIGINT": number, "BIGINT": number, "DOUBLE": number}
    else:
        raise Unsupported(f"JSON as {said(kind)} is not taken over")
    whens = " ".join(f"WHEN '{one}' THEN {text}" for one, text in known.items())
    null = f"json_type({t}, {path}) IS NULL OR json_type({t}, {path}) = 'NULL'"
    return f"(CASE WHEN {null} THEN NULL ELSE CASE json_type({t}, {path}) {whens} ELSE {other} END END)"


def _named(field: str) -> str:
    """The field itself. Raises Unsupported where a path of the engine's cannot name it."""
    if re.search(r"[\"\\*?]|^\s|^$", field):
        raise Unsupported(f"the field {field!r} of JSON is not taken over")
    return field


# --- JSON of values -------------------------------------------------------------------------------------------------------


def written(x: Expressions, evaluator: Expr, child: Expr) -> str:
    """``to_json``."""
    if not _is_empty(evaluator["options"]):
        raise Unsupported("to_json with options is not taken over")
    return _json_of(x.text(child), child.type, zone_of(evaluator["timeZoneId"]))


def _json_of(text: str, kind: Any, zone: Zone) -> str:
    """Null of null. Fields of structs that are null are left out, not so entries of maps."""
    fields, element, entry = fields_of(kind), element_of(kind), entry_of(kind)
    if fields is not None:

        def of(s: str) -> str:
            parts = [
                f"{literal(_quoted(name) + ':', 'string')} || {_json_of(f'struct_extract_at({s}, {i})', part, zone)}"
                for i, (name, part) in enumerate(fields, 1)
            ]
            return f"(CASE WHEN {s} IS NOT NULL THEN '{{' || concat_ws(',', {', '.join(parts)}) || '}}' END)"

        return once(text, of)
    if element is not None:
        return _listed(text, "{}", f"coalesce({_json_of('e', element, zone)}, 'null')", "[]")
    if entry is not None and entry[0] in ("string", "boolean", *INTEGERS):
        key = _json_of("e.key", entry[0], zone)
        name = key if entry[0] == "string" else _in_quotes(key)
        value = f"coalesce({_json_of('e.value', entry[1], zone)}, 'null')"
        return _listed(text, "map_entries({})", f"{name} || ':' || {value}", "{}")
    return _json_of_plain(text, kind, zone)


def _json_of_plain(text: str, kind: Any, zone: Zone) -> str:
    found = decimal_of(kind)
    if kind == "string":
        other = left_to_spark("JSON of these letters", "string")
        odd = r"[\x00-\x08\x0B-\x1F\x7F]"
        return once(
            text,
            lambda t: f"(CASE WHEN regexp_matches({t}, '{odd}') THEN {other} ELSE CAST(to_json({t}) AS VARCHAR) END)",
        )
    if kind in INTEGERS or kind == "boolean" or (found and found[1] <= 6):
        return exact_text(text, kind)
    if found:  # small ones have exponents
        other = left_to_spark("JSON of a small decimal", "string")
        return once(text, lambda d: f"(CASE WHEN abs({d}) < 0.000001 THEN {other} ELSE {exact_text(d, kind)} END)")
    if kind in FLOATS:
        return once(
            java_number(text, kind),
            lambda n: f"(CASE WHEN {n} LIKE '%N%' OR {n} LIKE '%I%' THEN {_in_quotes(n)} ELSE {n} END)",
        )
    return _in_quotes(_bare(text, kind, zone))


def _bare(text: str, kind: Any, zone: Zone) -> str:
    match kind:
        case "date":
            return between_years(text, lambda t: f"strftime({t}, '%Y-%m-%d')")
        case "timestamp":
            return once(text, lambda t: in_pattern(zone.local(t), _INSTANT, t, zone.name))
        case "timestamp_ntz":
            return once(text, lambda t: in_pattern(t, _LOCAL))
        case "binary":
            return f"to_base64({text})"
        case _:
            raise Unsupported(f"JSON of {said(kind)} is not taken over")


_LOCAL = Expr("Literal", {"value": "yyyy-MM-dd'T'HH:mm:ss.SSS"}, "string")
_INSTANT = Expr("Literal", {"value": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}, "string")


def _listed(text: str, items: str, one: str, ends: str) -> str:
    """``items``: of what the text is. ``one``: the JSON of one, ``e``. Null of null."""

    def of(a: str) -> str:
        each = f"list_transform({items.format(a)}, lambda e: {one})"
        return f"(CASE WHEN {a} IS NOT NULL THEN '{ends[0]}' || coalesce(array_to_string({each}, ','), '') || '{ends[1]}' END)"

    return once(text, of)


def _in_quotes(text: str) -> str:
    return f"('\"' || {text} || '\"')"


def _quoted(name: str) -> str:
    if not name.isprintable() or re.search(r"[\"\\]", name):
        raise Unsupported(f"the field {name!r} of JSON is not taken over")
    return f'"{name}"'


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "GetJsonObject": _object,
    "JsonToStructs": _structs,
}

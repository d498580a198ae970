"""Pieces of queries that compute a relation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from firesteel.engine.bands import KINDS, LEFT, RIGHT, Band, banded
from firesteel.plan.expr import Expr, Unsupported, attributes, same
from firesteel.plan.functions import said_function
from firesteel.plan.raising import any_raises, sure
from firesteel.plan.relation import Columns, Expand, Generate, Join, Names, Scan
from firesteel.plan.types import FLOATS, arrow_type, arrows, element_of, engine_type, entry_of, fields_of, grouped, said
from firesteel.render.expressions import json
from firesteel.render.expressions.texts import struct_text, undivided
from firesteel.render.expressions.translator import Expressions


def fitted(text: str, there: pa.DataType, kind: Any) -> str:
    """The value with the fields of ``kind``. ``there``: its type in the files. Raises Unsupported where a field is not there."""
    if _all_nullable(there) == arrow_type(kind):
        return text
    if kind == "timestamp" and there == pa.timestamp("us"):  # without a zone it is UTC
        return f"CAST({text} AS TIMESTAMPTZ)"
    element, fields = element_of(kind), fields_of(kind)
    if element is not None and pa.types.is_list(there):
        name = f"e{text.count('lambda')}"
        return f"list_transform({text}, lambda {name}: {fitted(name, there.value_type, element)})"
    if (entry := entry_of(kind)) is not None and pa.types.is_map(there):
        name = f"e{text.count('lambda')}"
        parts = (("key", there.key_type, entry[0]), ("value", there.item_type, entry[1]))
        pair = struct_text([(part, fitted(f"{name}.{part}", of, to)) for part, of, to in parts])
        return f"map_from_entries(list_transform(map_entries({text}), lambda {name}: {pair}))"
    if fields is not None and pa.types.is_struct(there):
        items = [
            (name, fitted(f"struct_extract_at({text}, {i + 1})", there.field(i).type, part))
            for name, part in fields
            if (i := there.get_field_index(name)) >= 0
        ]
        if len(items) == len(fields):
            return f"(CASE WHEN {text} IS NOT NULL THEN {struct_text(items)} END)"
    raise Unsupported(f"{there} in the files is not read as {said(kind)}")


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    """Other names that files have for the elements of lists do not matter."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _all_nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_all_nullable(kind.key_type), _all_nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _all_nullable(field.type)) for field in kind])
    return kind


def lists_of(generator: Expr) -> tuple[list[str], bool]:
    """The lists_of that are walked in step, and True where their values are structs, each field a column."""
    x = Expressions()
    if generator.cls == "Stack":
        return _stacked(x, generator["children"]), False
    if generator.cls == "JsonTuple":
        return [f"[{text}]" for text in json.tuple_texts(x, generator)], False
    if generator.cls not in ("Explode", "PosExplode", "Inline"):
        raise Unsupported(f"{said_function(generator)} is not taken over")
    child = generator["child"]
    text = x.text(child)
    if generator.cls == "Inline":
        if fields_of(element_of(child.type)) is None:
            raise Unsupported(f"inline of {said(child.type)} is not taken over")
        return [text], True
    if element_of(child.type) is not None:
        lists_of = [text]
    elif entry_of(child.type) is not None:
        lists_of = [f"map_keys({text})", f"map_values({text})"]
    else:
        raise Unsupported(f"explode of {said(child.type)} is not taken over")
    return ([f"range(0, len({lists_of[0]}))", *lists_of] if generator.cls == "PosExplode" else lists_of), False


def _stacked(x: Expressions, children: list[Expr]) -> list[str]:
    """A list for each column; the last row may have too few values."""
    rows, *values = children
    if rows.cls != "Literal" or not isinstance(rows["value"], int) or rows["value"] < 1:
        raise Unsupported("stack of a number of rows that is no constant is not taken over")
    width = -(-len(values) // rows["value"])
    lists_of: list[str] = []
    for i in range(width):
        column = values[i::width]
        kind = next((engine_type(one.type) for one in column if one.type != "void"), None)
        if kind is None or any(one.type != "void" and engine_type(one.type) != kind for one in column):
            raise Unsupported("stack of values of different types is not taken over")
        texts = ["NULL" if one.type == "void" else x.text(one) for one in column]
        texts += ["NULL"] * (rows["value"] - len(texts))
        lists_of.append(f"CAST([{', '.join(texts)}] AS {kind}[])")
    return lists_of


def scan_items(relation: Scan) -> str:
    """What is selected of a source's columns, which are named by their places; of a nested one those fields that are wanted."""
    items: list[str] = []
    for column, kind in relation.columns.items():
        place = relation.source.schema.get_field_index(relation.names[column])
        text, there = f"c{place}", relation.source.schema.field(place).type
        items.append(f"{fitted(text, there, kind) if isinstance(kind, dict) else text} AS {column}")
    return ", ".join(items)


def all_of(conditions: Sequence[Expr], x: Expressions) -> str:
    """Conditions that all hold.

    The engine has an order of its own. So conditions among which one may raise are one condition for it. Those that are sure are also given
    one by one: by them the engine leaves out rows of files."""
    texts = x.texts(sure(conditions))
    if any_raises(conditions):
        texts.append(undivided(x.texts(conditions)))
    return " AND ".join(texts)


def expand_text(relation: Expand) -> tuple[str, str]:
    """What is selected, and what follows the input."""
    x, items = Expressions(), list[str]()
    for i, (name, kind) in enumerate(relation.columns.items()):
        ways = [x.text(way[i]) for way in relation.ways]
        whens = " ".join(f"WHEN {k} THEN {way}" for k, way in enumerate(ways))
        text = ways[0] if len(set(ways)) == 1 else f"CASE fs_way {whens} END"
        items.append(f"CAST({text} AS {engine_type(kind)}) AS {name}")
    numbers = ", ".join(f"({k})" for k in range(len(relation.ways)))
    return ", ".join(items), f"CROSS JOIN (VALUES {numbers}) w(fs_way)"


def copies_text(relation: Generate) -> tuple[str, str]:
    """Each row as often as its first element says: the end of INTERSECT ALL and EXCEPT ALL. What is selected, and what follows the input."""
    x = Expressions()
    times, *values = relation.generator["children"]
    items = [f"{x.text(value)} AS {name}" for name, value in zip(relation.output, values, strict=True)]
    copied = f"CROSS JOIN LATERAL (SELECT unnest(range({x.text(times)}))) n(fs_copy)"
    return ", ".join([*items, *relation.kept]), copied


def generate_text(relation: Generate, names: Names) -> tuple[dict[str, str], str, str]:
    """The lists, by the names of their columns; what is selected of the rows with these columns; and what is selected of that.

    The engine's ``unnest`` gives a row for each value, of several lists in step. A list of nothing gives no row, with ``outer`` one.
    Raises Unsupported.
    """
    texts, fields = lists_of(relation.generator)
    lists, output = {names.new("u"): text for text in texts}, relation.output
    first = next(iter(lists))
    values = [f"struct_extract_at({first}, {i + 1})" for i in range(len(output))] if fields else list(lists)
    if len(values) != len(output):
        raise Unsupported(f"{said_function(relation.generator)} of other columns is not taken over")
    one = f"CASE WHEN len({first}) > 0 THEN {{}}[:] ELSE [NULL] END" if relation.outer else "{}"
    walked = [f"unnest({one.format(name)}) AS {name}" for name in lists]
    items = [  # values of Arrow's own types are only handed on
        f"{v if arrows(kind) else f'CAST({v} AS {engine_type(kind)})'} AS {name}"
        for v, (name, kind) in zip(values, output.items(), strict=True)
    ]
    return lists, ", ".join([*relation.kept, *walked]), ", ".join([*relation.kept, *items])


def window_keys(parts: Iterable[Expr], names: Names) -> tuple[dict[str, str], Columns]:
    """The text of each column by which windows are parted, and its type: Spark has made one zero of two and one NaN of all there."""
    x, texts = Expressions(), dict[str, str]()
    kinds: Columns = {}
    for part in parts:
        kind, text = grouped(part.type), x.text(part)
        name = part.id if kind not in FLOATS and part.cls == "AttributeReference" else names.new("part")
        texts[name], kinds[name] = f"({text} + 0)" if kind in FLOATS else text, kind
    return texts, kinds


_SQL = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}


def join_condition(relation: Join, x: Expressions) -> str:
    """The condition of a pair of rows. What may raise is one condition for the engine."""
    rest = x.texts(relation.rest)
    if any_raises(relation.rest):
        rest = [undivided(rest)]
    return " AND ".join([*x.texts(relation.equal), *rest]) or "true"


class Interval(NamedTuple):
    """A point between two values of the other side."""

    side: int
    """The one that has the two values."""
    point: Expr
    low: Expr
    high: Expr
    conditions: tuple[Expr, Expr]
    """Those that say so."""


def interval_of(relation: Join) -> Interval | None:
    """By what :mod:`firesteel.engine.bands` joins the two sides. None where a condition may raise: it is computed of the pairs that Spark has."""
    columns = set(relation.left.columns), set(relation.right.columns)
    ends: dict[tuple[int, object], dict[str, tuple[Expr, Expr, Expr]]] = {}
    for one in () if any_raises(relation.rest) else relation.rest:
        if one.cls not in _BELOW and one.cls not in _ABOVE:
            continue
        for point, end, below in ((one["left"], one["right"], _BELOW), (one["right"], one["left"], _ABOVE)):
            for side in (LEFT, RIGHT):
                its, other = attributes(end), attributes(point)
                if its and other and its <= columns[side] and other <= columns[1 - side] and str(point.type) in _WHOLE:
                    found = ends.setdefault((side, same(point)), {})
                    found.setdefault("high" if one.cls in below else "low", (point, end, one))
    for (side, _), found in ends.items():
        if len(found) == 2 and relation.how in KINDS[side]:
            (point, low, first), (_, high, second) = found["low"], found["high"]
            return Interval(side, point, low, high, (first, second))
    return None


_BELOW, _ABOVE = ("LessThan", "LessThanOrEqual"), ("GreaterThan", "GreaterThanOrEqual")
_WHOLE = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "{0}"),
    "date": "({0} - DATE '1970-01-01')",
    **dict.fromkeys(
        ("timestamp", "timestamp_ntz"),
        "CASE WHEN isfinite({0}) THEN epoch_us({0}) WHEN {0} > '1970-01-01' THEN 9223372036854775807 WHEN {0} < '1970-01-01' THEN -9223372036854775808 END",
    ),
}
"""By type, a value as BIGINT."""


def join_text(  # noqa: PLR0917
    relation: Join, out: Columns, left: str, right: str, x: Expressions, names: Names
) -> str:
    """``out``: the relation's columns, in the order in which they are wanted; ``left``, ``right``: the rows as FROM takes them."""
    how, condition, clauses = relation.how, join_condition(relation, x), ""
    if how == "exists":
        *kept, found = out
        return f"SELECT {', '.join(kept)}, EXISTS (SELECT 1 FROM {right} WHERE {condition}) AS {found} FROM {left}"
    interval = interval_of(relation)
    if interval is not None:
        point, low, high = (_WHOLE[str(one.type)].format(x.text(one)) for one in interval[1:4])
        a, b = names.new("l"), names.new("r")
        sides = f"(SELECT * FROM {left}) {a}", f"(SELECT * FROM {right}) {b}"
        clauses, (left, right), same_band = banded(sides, (a, b), Band(point, low, high, interval.side), names.new)
        condition += f" AND {same_band}"
    query = f"SELECT {', '.join(out)} FROM {left} {_SQL[how]} {right} ON {condition}"
    return f"FROM ({clauses} {query})" if clauses else query  # other WITH clauses may stand before it

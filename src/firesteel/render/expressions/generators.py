"""Generators of rows, as lists whose values are walked in step."""

from __future__ import annotations

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import element_of, engine_type, entry_of, fields_of, said
from firesteel.render.expressions import json
from firesteel.render.expressions.translator import Expressions


def lists(generator: Expr) -> tuple[list[str], bool]:
    """The lists that are walked in step, and True where their values are structs, each field a column."""
    x = Expressions()
    if generator.cls == "Stack":
        return _stacked(x, generator["children"]), False
    if generator.cls == "JsonTuple":
        return [f"[{text}]" for text in json.tuple_texts(x, generator)], False
    if generator.cls not in ("Explode", "PosExplode", "Inline"):
        raise Unsupported(f"the generator {generator.cls} is not taken over")
    child = generator["child"]
    text = x.text(child)
    if generator.cls == "Inline":
        if fields_of(element_of(child.type)) is None:
            raise Unsupported(f"inline of {said(child.type)} is not taken over")
        return [text], True
    if element_of(child.type) is not None:
        lists = [text]
    elif entry_of(child.type) is not None:
        lists = [f"map_keys({text})", f"map_values({text})"]
    else:
        raise Unsupported(f"explode of {said(child.type)} is not taken over")
    return ([f"range(0, len({lists[0]}))", *lists] if generator.cls == "PosExplode" else lists), False


def _stacked(x: Expressions, children: list[Expr]) -> list[str]:
    """A list for each column; the last row may have too few values."""
    rows, *values = children
    if rows.cls != "Literal" or not isinstance(rows["value"], int) or rows["value"] < 1:
        raise Unsupported("stack of a number of rows that is no constant is not taken over")
    width = -(-len(values) // rows["value"])
    lists: list[str] = []
    for i in range(width):
        column = values[i::width]
        kind = next((engine_type(one.type) for one in column if one.type != "void"), None)
        if kind is None or any(one.type != "void" and engine_type(one.type) != kind for one in column):
            raise Unsupported("stack of values of different types is not taken over")
        texts = ["NULL" if one.type == "void" else x.text(one) for one in column]
        texts += ["NULL"] * (rows["value"] - len(texts))
        lists.append(f"CAST([{', '.join(texts)}] AS {kind}[])")
    return lists

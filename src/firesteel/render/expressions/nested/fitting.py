"""Nested columns of files, of which Spark may want some fields alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.plan.expr import Unsupported
from firesteel.plan.types import arrow_type, element_of, fields_of, said
from firesteel.render.expressions.texts import struct_text


def fitted(text: str, there: pa.DataType, kind: Any) -> str:
    """The value with the fields of ``kind``. ``there``: its type in the files. Raises Unsupported where a field is not there."""
    if _all_nullable(there) == arrow_type(kind):
        return text
    element, fields = element_of(kind), fields_of(kind)
    if element is not None and pa.types.is_list(there):
        name = f"e{text.count('lambda')}"
        return f"list_transform({text}, lambda {name}: {fitted(name, there.value_type, element)})"
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

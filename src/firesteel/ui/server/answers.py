"""Answers as bytes: JSON, and of tables Arrow or Parquet, by what is accepted; with entity tags."""

from __future__ import annotations

import io
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from firesteel.errors import UsageError
from firesteel.ui.views.structs import Page, View

JSON = "application/json"
STREAM = "application/vnd.apache.arrow.stream"
FILE = "application/vnd.apache.arrow.file"
PARQUET = "application/vnd.apache.parquet"
TABLES = (STREAM, FILE, PARQUET)


class NotAcceptable(UsageError):
    """There is no answer of a kind that was asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def tag(self) -> str:
        return f'"{blake2b(self.body, digest_size=12, key=self.media.encode()[:64]).hexdigest()}"'


def answer(view: View, accepted: str, item: type[Any] | None = None) -> Answer:
    """``accepted``: the header's text; ``item``: of a table, the type of its rows. Raises NotAcceptable."""
    media = chosen(accepted, (JSON, *TABLES) if item is not None else (JSON,))
    headers = {"Vary": "Accept"}
    if item is not None and isinstance(view, Page):
        headers |= {"X-Total-Count": str(view.total)}
        if media != JSON:
            return Answer(200, _as_table(view.items, item, media), media, headers)
    return Answer(200, msgspec.json.encode(view), JSON, headers)


def chosen(accepted: str, offered: tuple[str, ...]) -> str:
    """The offered media type that is liked best, of several the first. Raises NotAcceptable."""
    liked: dict[str, float] = {}
    for part in accepted.split(",") if accepted.strip() else ["*/*"]:
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        try:
            liked[name] = float(weight)
        except ValueError:
            liked[name] = 0.0

    def weight_of(media: str) -> float:
        ranges = (media, f"{media.split('/', maxsplit=1)[0]}/*", "*/*")
        return next((liked[each] for each in ranges if each in liked), 0.0)

    best = max(offered, key=weight_of)
    if weight_of(best) <= 0:
        raise NotAcceptable("There is no answer of that kind.", hint=f"There are: {', '.join(offered)}.")
    return best


def _as_table(items: list[Any], item: type[Any], media: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(item)
    texts = {name for name, kind in get_type_hints(item).items() if _arrow_type(kind) is None}
    rows = [
        {name: _text(getattr(each, name)) if name in texts else getattr(each, name) for name in schema.names}
        for each in items
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    sink = io.BytesIO()
    if media == PARQUET:
        pq.write_table(table, sink)
        return sink.getvalue()
    with pa.ipc.new_stream(sink, schema) if media == STREAM else pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def arrow_schema(item: type[Any]) -> Any:
    """A column for each field of the struct; what has no type of Arrow's (tables in a field) is JSON text."""
    import pyarrow as pa

    hints = get_type_hints(item)
    return pa.schema([
        pa.field(name, _arrow_type(hints[name]) or pa.string()) for name in item.__struct_fields__
    ])  # fmt: skip


def _arrow_type(kind: Any) -> Any:
    """None: there is none."""
    import pyarrow as pa

    if get_origin(kind) in (Union, types.UnionType):
        several = [each for each in get_args(kind) if each is not type(None)]
        return _arrow_type(several[0]) if len(several) == 1 else None
    if get_origin(kind) is list:
        inner = _arrow_type(get_args(kind)[0])
        return None if inner is None else pa.list_(inner)
    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return plain.get(kind)

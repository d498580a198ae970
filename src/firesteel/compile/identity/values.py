"""Data: arrays, tables, types, expressions and filesystems, by their contents."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from numpy.typing import NDArray

from firesteel.compile.identity.facts import SIZE, digest, of_data, of_names
from firesteel.masking import looks_secret

Encode = Callable[[Any], bytes]


def data_digest(value: Any, encode: Encode) -> bytes | None:  # noqa: PLR0911 - one line per kind
    """None: it is no such data. ``encode``: of what is held inside."""
    match value:
        case bytearray() | memoryview():
            return digest(type(value).__name__.encode(), of_data(bytes(value)))
        case np.ndarray() if type(value) in (np.ndarray, np.memmap):
            return _array(value, encode)
        case pa.DataType():
            return digest(b"type", pa.schema([pa.field("", value)]).serialize())
        case pa.Field():
            return digest(b"field", pa.schema([value]).serialize())
        case pa.Schema():
            return digest(b"schema", value.serialize())
        case pa.Table() | pa.RecordBatch():
            return _table(type(value).__name__, value)
        case pa.ChunkedArray() | pa.Array():
            kind = "ChunkedArray" if isinstance(value, pa.ChunkedArray) else "Array"
            return _table(kind, pa.table([value], [""]))
        case pa.Buffer():
            return digest(b"buffer", of_data(memoryview(value)))
        case pc.Expression():
            return digest(b"expression", _serialized(value))
        case pafs.FileSystem():
            return _filesystem(value, encode)
        case _:
            return None


def draws(value: Any) -> bool:
    """Returns whether an expression gives other rows each time. As text, for it names the functions as they are called."""
    return isinstance(value, pc.Expression) and re.search(r"\brandom\(", str(value)) is not None


def shown(value: Any) -> str:  # noqa: PLR0911 - one line per kind
    """The value where anybody may see it: numbers. Of text and data only how much it is; empty: nothing to say."""
    match value:
        case None | bool() | int() | float():
            text = repr(value)
            return text if len(text) <= 40 else f"a number of {len(text)} digits"
        case str():
            return f"a text of {len(value):,} characters"
        case bytes():
            return f"{len(value):,} bytes"
        case pa.Table() | pa.RecordBatch():
            return f"a table of {value.num_rows:,} rows"
        case np.ndarray():
            return f"an array of {' x '.join(f'{n:,}' for n in value.shape) or 'one'}"
        case list() | tuple() | dict() | set() | frozenset():
            return f"a {type(value).__name__} of {len(value):,}"
        case _:
            return ""


def _array(value: NDArray[Any], encode: Encode) -> bytes:
    kind = of_names("array", repr(value.dtype), repr(value.shape))
    if value.dtype.hasobject or value.dtype.char == "T":  # text of any length, which lies elsewhere
        return digest(kind, *map(encode, value.ravel().tolist()))
    if value.dtype.names is not None:  # what lies between fields is no part of it
        return digest(kind, *(_array(value[name], encode) for name in value.dtype.names))
    by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
    plain = np.ascontiguousarray(value.T if by_columns else value).reshape(-1)
    return digest(kind, bytes([by_columns]), of_data(plain.view(np.uint8).data if plain.nbytes else b""))


def _serialized(value: Any) -> memoryview:
    return memoryview(value.__reduce__()[1][0])


class _Hashing(io.RawIOBase):
    """A file of which only the digest of its bytes is kept."""

    def __init__(self) -> None:
        self.made = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.made.update(data)
        return len(data)


def _table(kind: str, value: Any) -> bytes:
    """As it would be written, in the chunks that it has: of a slice only its rows."""
    file = _Hashing()
    with pa.ipc.new_stream(file, value.schema) as writer:
        writer.write(value)
    return digest(kind.encode(), file.made.digest()[:SIZE])


def _filesystem(value: pafs.FileSystem, encode: Encode) -> bytes:
    """By which one it is, not by who asks it: without keys and passwords, which may change from run to run."""
    match value:
        case pafs.SubTreeFileSystem():
            return digest(b"below", value.base_path.encode(), encode(value.base_fs))
        case pafs.PyFileSystem():
            inner = getattr(value.handler, "fs", value.handler)
            options = getattr(inner, "storage_options", None)
            given = encode(inner) if options is None else encode((_public(options), inner.protocol))
            return digest(of_names("filesystem", type(inner).__qualname__), given)
        case _:
            given = value.__reduce__()
            return digest(of_names("filesystem", value.type_name), encode(_public(given[1:])))


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _public(one) for name, one in sorted(value.items()) if not looks_secret(str(name))}
    if isinstance(value, tuple | list):
        return [_public(one) for one in value]
    return value

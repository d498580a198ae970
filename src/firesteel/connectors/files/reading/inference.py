"""Types inferred from the beginning of the first files.

The rule: the first MiB (whole lines) of each of the first eight files that have any lines are read; more where a long header or
a long first row takes that much. A column that is whole
numbers in one and decimal numbers in another is double, a date in one and a timestamp in another timestamp, whatever else
differs string; one that has no value at all is string. What comes later and does not fit is an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.compression import codec_of, damaged, plain_stream, refuse_foreign
from firesteel.connectors.files.reading.lines import BLOCK, stream_blocks
from firesteel.errors import UsageError

FILES = 8
_MOST = 64 * BLOCK


def first_blocks(source: Any, compression: str | None, has_row: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    """(file's name, its first lines) of the first files of a :class:`~firesteel.connectors.files.reading.source.FileSource`.

    ``has_row``: whether these lines hold a row; while they do not, more are read, to some 64 MiB or the file's end. Raises UsageError for a file that cannot be read.
    """
    found = source._found
    seen = 0
    for file in found.files:
        if seen == FILES:
            return
        if not file.size:
            continue
        label = found.label(file.path)
        codec = codec_of(file.path, compression)
        try:
            with found.filesystem.open_input_file(file.path) as raw, plain_stream(raw, codec) as stream:
                if codec is None:
                    refuse_foreign(label, raw.read(16), source.kind)
                    raw.seek(0)
                block = _whole_lines(stream, has_row)
        except (OSError, pa.ArrowException) as error:
            said = damaged(label, codec, error)
            raise UsageError(said.message, hint=said.hint) from None
        if block.strip():
            seen += 1
            yield label, block


def _whole_lines(stream: Any, has_row: Callable[[bytes], bool]) -> bytes:
    """The first lines that are not blank and hold a row. Looked at each time they have doubled."""
    blocks: list[bytes] = []
    size = seen = 0
    for _, block in stream_blocks(stream):
        if not blocks and not block.strip():
            continue
        blocks.append(block)
        size += len(block)
        if size < 2 * seen:
            continue
        seen = size
        sample = b"".join(blocks)
        if size > _MOST or has_row(sample):
            return sample
    return b"".join(blocks)


def merge_types(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type that holds what each of the samples is made of."""
    kinds = list(dict.fromkeys(t for t in types if not pa.types.is_null(t)))
    if not kinds:
        return pa.string()
    if len(kinds) == 1:
        return kinds[0]
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in kinds):
        return pa.float64()
    if all(pa.types.is_date(t) or (pa.types.is_timestamp(t) and t.tz is None) for t in kinds):
        return pa.timestamp("us")
    return pa.string()

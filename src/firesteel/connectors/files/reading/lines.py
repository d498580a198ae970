"""Whole lines of a byte range, a block at a time, wherever the range is cut; and the column of lines that cannot be read.

A range owns the lines that *begin* in it, as Hadoop's and Spark's do. Lines end with ``\\n``, ``\\r\\n`` or ``\\r``, as in
Spark; the last one need not end; a UTF-8 byte order mark at the start of a file is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import FiresteelError, UsageError

BLOCK = 1 << 20
_SCAN = 1 << 16
BOM = b"\xef\xbb\xbf"


def line_blocks(file: Any, path: str, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, block) of whole lines, about a MiB each, of the lines that begin at ``start`` to ``end``."""
    begin = _line_begin(file, start, end, size)
    if begin is None:
        return
    last = _line_begin(file, end, size, size)
    last = size if last is None else last

    def parts() -> Iterator[bytes]:
        at = begin
        while at < last:
            part = file.read_at(min(BLOCK, last - at), at)
            if not part:
                raise FiresteelError(f"{path} became shorter while it was read.", hint="Run the job again.")
            at += len(part)
            yield part

    yield from _whole_lines(parts(), begin)


def stream_blocks(stream: Any) -> Iterator[tuple[int, bytes]]:
    """(offset, block) of whole lines of all that can be read from ``stream``."""
    yield from _whole_lines(iter(lambda: stream.read(BLOCK), b""), 0)


def _whole_lines(parts: Iterator[bytes], offset: int) -> Iterator[tuple[int, bytes]]:
    rest: list[bytes] = []
    first = offset == 0
    for given in parts:
        part = given
        if first and len(part) < len(BOM):  # too little to tell
            rest.append(part)
            part = b"".join(rest)
            rest = []
            if len(part) < len(BOM) and BOM.startswith(part):
                rest = [part]
                continue
        if first and part.startswith(BOM):
            offset, part = len(BOM), part[len(BOM) :]
        first = False
        cut = _last_line_end(part)
        if not cut:  # a line longer than a block
            rest.append(part)
            continue
        block = b"".join([*rest, part[:cut]]) if rest else part[:cut] if cut < len(part) else part
        yield offset, block
        offset += len(block)
        rest = [part[cut:]] if cut < len(part) else []
    block = b"".join(rest)
    if block:
        yield offset, block


def _line_begin(file: Any, position: int, bound: int, size: int) -> int | None:
    """Returns the position of the first line that begins at or after ``position``; None if not before ``bound`` (or the end of the file)."""
    if position == 0:
        return 0
    at = position - 1  # the end of the line before may be the very byte in front
    while at < bound:
        block = file.read_at(min(_SCAN, size - at), at)
        if not block:
            return None
        ends = [i for i in (block.find(b"\n"), block.find(b"\r")) if i >= 0]
        if ends:
            at += min(ends)
            after = file.read_at(2, at) if min(ends) + 1 == len(block) else block[min(ends) : min(ends) + 2]
            begin = at + (2 if after == b"\r\n" else 1)
            return begin if begin < bound else None
        at += len(block)
    return None


def _last_line_end(block: bytes) -> int:
    """Bytes up to the end of the last line that surely ends in the block (a final ``\\r`` may be half a ``\\r\\n``)."""
    newline = block.rfind(b"\n")
    return max(newline, block.rfind(b"\r", newline + 1, len(block) - 1)) + 1


def with_line_end(data: bytes) -> bytes:
    """Also behind the last line."""
    return data if data.endswith((b"\n", b"\r")) else data + b"\n"


def is_text(data: bytes) -> bool:
    """True for UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def with_plain_ends(data: bytes) -> bytes:
    """The lines, each ended by ``\\n`` alone, the last one too."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data if data.endswith(b"\n") else data + b"\n"


def count_lines(data: bytes) -> int:
    """Line ends in the data."""
    count = data.count(b"\n")
    returns = data.count(b"\r")
    return count + returns - data.count(b"\r\n") if returns else count


_FEW = 64
"""Of so many lines it pays to ask again and again without the one that is to blame."""
_PARTS = 16

Parse = Callable[[bytes], pa.RecordBatch]
"""A row for each line that is not blank. Raises RefusedError where that cannot be."""


class RefusedError(Exception):
    """Lines were refused. ``rows``: those to blame as far as the parser knows, numbered from 0 without the blank ones.

    ``all``: no others are refused for the same reason. ``sure``: they are refused by themselves, too.
    """

    def __init__(self, rows: Sequence[int] = (), *, all: bool = False, sure: bool = True) -> None:
        super().__init__(rows)
        self.rows, self.all, self.sure = rows, all, sure


def with_corrupt_column(
    own: pa.Schema, column: str | None, name: str, *, partitions: Collection[str], whole: bool
) -> pa.Schema:
    """The files' columns and the one of corrupt lines; None: there is none. ``partitions``: the columns that directories
    give. ``whole``: values may hold line ends.

    Raises UsageError where the column cannot be.
    """
    if column is None:
        return own
    if not isinstance(column, str) or not column:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{name}: corrupt_column={column!r} must be the name of a column.")
    if whole:
        raise UsageError(
            f"{name}: corrupt_column= and newlines_in_values=True do not go together: corrupt rows are reported line by line.",
            hint="Leave one of them out.",
        )
    if column in own.names or column in partitions:
        raise UsageError(
            f"{name}: the files have a column '{column}' of their own.", hint="Give another name, corrupt_column=."
        )
    if set(own.names) <= set(partitions):
        return own  # there is nothing to read, which is said where that is always said
    return own.append(pa.field(column, pa.string()))


def without_corrupt_column(schema: pa.Schema, column: str | None, name: str) -> pa.Schema:
    """A schema that a user gave without the column of corrupt lines, which Spark wants to stand in it. Raises UsageError."""
    at = -1 if column is None else schema.get_field_index(column)
    if at < 0:
        return schema
    if not pa.types.is_string(schema.field(at).type):
        raise UsageError(
            f"{name}: column '{column}' holds the text of corrupt lines, and {schema.field(at).type} is not a string."
        )
    return schema.remove(at)


def rows_of_lines(block: bytes, parse: Parse, schema: pa.Schema, blank: bytes | None = b"\r\n") -> pa.RecordBatch:
    """The rows of the block's lines, in order. ``schema``: what ``parse`` gives and, last, the column of corrupt lines.

    ``blank``: lines of nothing else are not rows; None: white space. ``parse`` is asked again without the lines that it
    blames, and where it knows none or has many lines, of their sixteenths.
    """
    try:
        batch = parse(block)
    except RefusedError as refused:
        lines = [line for line in block.splitlines(keepends=True) if line.strip(blank)]
        bad: set[int] = set()
        good = list(_without(list(range(len(lines))), lines, parse, bad, refused))
        return _woven(good, sorted(bad), lines, schema)
    return pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, pa.string())], schema=schema)


def _good(numbers: list[int], lines: list[bytes], parse: Parse, bad: set[int]) -> Iterator[pa.RecordBatch]:
    """The rows of these lines without the corrupt ones, whose numbers are added to ``bad``."""
    if not numbers:
        return
    try:
        batch = parse(b"".join(lines[n] for n in numbers))
    except RefusedError as refused:
        yield from _without(numbers, lines, parse, bad, refused)
    else:
        yield batch


def _without(
    numbers: list[int], lines: list[bytes], parse: Parse, bad: set[int], refused: RefusedError
) -> Iterator[pa.RecordBatch]:
    """The same of lines that were refused together."""
    blamed = _blamed(numbers, lines, parse, refused)
    if blamed and (len(numbers) <= _FEW or refused.all):
        bad |= blamed
        yield from _good([n for n in numbers if n not in blamed], lines, parse, bad)
        return
    size = -(-len(numbers) // _PARTS)
    for start in range(0, len(numbers), size):
        yield from _good(numbers[start : start + size], lines, parse, bad)


def _blamed(numbers: list[int], lines: list[bytes], parse: Parse, refused: RefusedError) -> set[int]:
    if len(numbers) == 1:
        return set(numbers)
    blamed = [numbers[row] for row in refused.rows if row < len(numbers)]
    if refused.sure:
        return set(blamed)
    groups = [blamed[start : start + _FEW] for start in range(0, len(blamed), _FEW)]
    return {
        n
        for group in groups
        if _refuses(parse, b"".join(lines[n] for n in group))
        for n in group
        if _refuses(parse, lines[n])
    }


def _refuses(parse: Parse, block: bytes) -> bool:
    try:
        parse(block)
    except RefusedError:
        return True
    return False


def refused_values(values: pa.Array, cast: Callable[[pa.Array], object], start: int = 0) -> Iterator[int]:
    """The numbers of the values, plus ``start``, for which ``cast`` raises an Arrow error, found by halving."""
    try:
        cast(values)
    except pa.ArrowException:
        if len(values) == 1:
            yield start
            return
        half = len(values) // 2
        yield from refused_values(values[:half], cast, start)
        yield from refused_values(values[half:], cast, start + half)


def _woven(good: list[pa.RecordBatch], bad: list[int], lines: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of good lines, in order, and those of bad ones, each in its place."""
    texts = [lines[n].rstrip(b"\r\n").decode(errors="replace") for n in bad]
    nothing = [pa.nulls(len(bad), field.type) for field in schema][:-1]
    parts = [pa.RecordBatch.from_arrays([*nothing, pa.array(texts, pa.string())], schema=schema)]
    for batch in good:
        none = pa.nulls(batch.num_rows, pa.string())
        parts.append(pa.RecordBatch.from_arrays([*batch.columns, none], schema=schema))
    at = np.empty(len(lines), np.int64)
    at[bad] = np.arange(len(bad))
    at[np.delete(np.arange(len(lines)), bad)] = np.arange(len(bad), len(lines))
    return pa.concat_batches(parts).take(pa.array(at))

"""Whole lines of a byte range, a block at a time, wherever the range is cut.

A range owns the lines that *begin* in it, as Hadoop's and Spark's do. Lines end with ``\\n``, ``\\r\\n`` or ``\\r``, as in
Spark; the last one need not end; a UTF-8 byte order mark at the start of a file is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firesteel.errors import FiresteelError

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

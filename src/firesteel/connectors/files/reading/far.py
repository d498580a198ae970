"""Files on a far store, where a request takes tens of milliseconds, whatever its size: parts are fetched before Arrow asks for them."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from firesteel.results.reader import REMOTE_GAP_BYTES

T = TypeVar("T")
Range = tuple[int, int]
"""Bytes [begin, end) of a file."""
Part = tuple[int, bytes]
"""Where it begins in the file, and its bytes."""

PART_BYTES = 8 << 20
"""Longer ranges are fetched by several requests at once."""
AHEAD_BYTES = 64 << 20
"""Bytes of a task that wait to be used, at most, and one row group."""
WAITING = 16
"""Row groups that wait, at most, so that few files are open."""
FILES_AHEAD = 4
"""Files that are opened before they are read."""
_THREADS = 8


class FarFile(io.RawIOBase):
    """The file as Arrow reads it. Fetched parts come from memory, others from the store."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._size, self._at = stream, size, 0
        self.parts: Sequence[Part] = ()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes | memoryview:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Arrow takes a memoryview without a copy."""
        begin = self._at
        self._at = end = self._size if size < 0 else min(begin + size, self._size)
        for start, part in self.parts:
            if start <= begin and end <= start + len(part):
                return memoryview(part)[begin - start : end - start]
        return self.read_at(end - begin, begin)

    def read_at(self, size: int, begin: int) -> bytes:
        """Asks the store. Any thread may. Raises OSError where fewer bytes come."""
        data = self._stream.read_at(size, begin)
        if len(data) < size:
            raise OSError(f"{len(data)} bytes came in place of {size}")
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()


def etag_of(stream: Any) -> bytes | None:
    """What changes with the file's content, as the store says it. None: it says nothing."""
    return (stream.metadata() or {}).get("ETag") or None


def neighbours(ranges: Iterable[Range]) -> list[Range]:
    """The same bytes and gaps that are not worth a request, in order."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1] + REMOTE_GAP_BYTES:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def fetched_ahead(
    wanted: Iterable[tuple[T, FarFile, Sequence[Range]]],
) -> Generator[tuple[T, Callable[[], list[Part]]]]:
    """For each (what, file, ranges of it) what was asked for, and a function that gives its parts, and raises what the store says.

    Later ones are fetched meanwhile, as far as AHEAD_BYTES and WAITING allow. Closing the generator waits for requests that are under way.
    """
    pool = ThreadPoolExecutor(_THREADS)
    waiting: deque[tuple[T, int, list[tuple[int, list[Future[bytes]]]]]] = deque()
    held = 0
    try:
        for what, file, ranges in wanted:
            parts = [
                (
                    begin,
                    [pool.submit(file.read_at, min(PART_BYTES, end - at), at) for at in range(begin, end, PART_BYTES)],
                )
                for begin, end in ranges
            ]
            size = sum(end - begin for begin, end in ranges)
            waiting.append((what, size, parts))
            held += size
            while held > AHEAD_BYTES or len(waiting) > WAITING:
                first, size, parts = waiting.popleft()
                held -= size
                yield first, partial(_whole, parts)
        while waiting:
            first, _, parts = waiting.popleft()
            yield first, partial(_whole, parts)
    finally:
        pool.shutdown(cancel_futures=True)


def _whole(parts: list[tuple[int, list[Future[bytes]]]]) -> list[Part]:
    found: list[Part] = []
    for begin, futures in parts:
        found.append((begin, b"".join([future.result() for future in futures])))
        futures.clear()
    return found

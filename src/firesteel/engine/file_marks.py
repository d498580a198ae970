"""Which local files are still what they were when their footers were read."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

Mark = tuple[int, int, int, int, int]
_TICK_NS = 10**8
"""Two changes within one tick of a file system's clock look like one. Clocks that tick once in a second give no fractions."""


def mark_of(path: str) -> Mark | None:
    """What is another after each change of the file's content; None: it was changed just now, or is gone.

    DuckDB looks at the time of modification alone, in microseconds, which programs can set. They cannot set the time of the last change.
    """
    try:
        at = os.stat(path)  # noqa: PTH116 (a Path for each of a thousand files costs more)
    except OSError:
        return None
    if time.time_ns() - at.st_ctime_ns < (_TICK_NS if at.st_ctime_ns % 10**9 else 2 * 10**9):
        return None
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns


class FileMarks:
    """The files whose footers an engine keeps. ``files``: those that it reads first."""

    def __init__(self, files: Collection[str]) -> None:
        self._marks = {path: mark_of(path) for path in files}

    def hold(self, files: Collection[str]) -> bool:
        """Whether the engine may read these: it knows none of them, or as they are now."""
        marks = {path: mark_of(path) for path in files}
        if any(path in self._marks and (mark is None or mark != self._marks[path]) for path, mark in marks.items()):
            return False
        self._marks.update(marks)
        return True

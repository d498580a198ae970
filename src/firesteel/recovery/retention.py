"""Results of a dead driver's job are kept for a while, by the storage's own clock: machines may disagree on the time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG, MARK, REMOVER, USES
from firesteel.results.storage.owner import ENDED

RETAIN = "retain"
"""The entry of an owner's mark: so many seconds after the last change of the job's log, or the last use of the results. Missing: nothing is kept."""

FINISHED = "finished"
"""The entry of a mark by which a job that has finished leaves its results to other jobs."""
LINES = "lines"
"""The entry of a mark by which its results are found: digests of what its vertices and all before them do, as text."""
ORIGINS = "origins"
"""The entry of a mark by which it is known whose tokens its results have: the base of a driver's tokens to the job that drew it."""
BYTES = "bytes"
"""The entry of a finished job's mark: the size of its results, those included that it shares with others."""

EPOCH = "epoch"
"""The entry of a mark by which it is told which of the job's drivers wrote it. Missing: the first."""


def mark_beside(directory: Path | ObjectPath) -> Mapping[str, Any]:
    """The owner's mark of a job's directory; empty if it has none yet, or none that can be read."""
    with suppress(OSError):
        return read_mark(directory)
    return {}


def read_mark(directory: Path | ObjectPath) -> Mapping[str, Any]:
    """As ``mark_beside``, for those who do something to what is nobody's. Raises OSError where the storage does not answer."""
    with suppress(FileNotFoundError, ValueError):
        mark = json.loads(directory.with_name(directory.name + MARK).read_bytes())
        return mark if isinstance(mark, dict) else {}
    return {}


def is_kept_by_mark(mark: Mapping[str, Any], written: float, now: Callable[[], float]) -> bool:
    """Returns whether the mark alone, which its owner wrote last, says that the results are kept: they were of use no earlier. ``written``: when, by the storage's
    clock; 0: not known. Raises OSError."""
    retain = mark.get(RETAIN)
    return bool(mark.get(ENDED)) and written > 0 and isinstance(retain, int | float) and written + retain > now()


def is_kept(fs: Any, directory: str, mark: Mapping[str, Any], now: Callable[[], float] | None = None) -> bool:
    """Returns whether the results in ``directory`` are kept. ``mark``: their owner's; ``now``: ``storage_clock``, where it is asked more than once.
    Raises OSError."""
    left = kept_seconds(fs, directory, mark, now)
    return left is not None and left > 0


def kept_seconds(
    fs: Any, directory: str, mark: Mapping[str, Any], now: Callable[[], float] | None = None
) -> float | None:
    """Returns for how many seconds from now on the results are kept, negative where that time is over; None: they are not kept. Raises
    OSError."""
    retain = mark.get(RETAIN)
    if not isinstance(retain, int | float) or retain <= 0:
        return None
    written = _written(fs, f"{directory}/{LOG}")
    if not written:
        return None
    if LINES in mark and not isinstance(fs, pafs.LocalFileSystem):
        written += _written(fs, f"{directory}/{USES}")
    now = now or storage_clock(fs, str(PurePosixPath(directory).parent))
    return max(written) + retain - now()


def _written(fs: Any, log: str) -> list[float]:
    """When each part of the log, or each lease, was written last."""
    if isinstance(fs, pafs.LocalFileSystem):  # several times as fast: there may be a thousand jobs
        written: list[float] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for part in Path(log).iterdir():
                with suppress(FileNotFoundError):
                    written.append(part.stat().st_mtime)
        return written
    parts = fs.get_file_info(pafs.FileSelector(log, allow_not_found=True))
    told = (info for info in parts if not info.base_name.startswith(REMOVER))
    return [info.mtime.timestamp() for info in told if info.mtime is not None]


def storage_clock(fs: Any, directory: str) -> Callable[[], float]:
    """Gives the time by the clock of the storage, as it was when it was asked first; that raises OSError."""
    return cache(lambda: _storage_time(fs, directory))


def _storage_time(fs: Any, directory: str) -> float:
    """The time of a file that was written there just now, in seconds since 1970."""
    path = f"{directory}/firesteel-time-{uuid.uuid4().hex}"
    with fs.open_output_stream(path) as stream:
        stream.write(b"now")
    try:
        return float(fs.get_file_info(path).mtime.timestamp())
    finally:
        fs.delete_file(path)

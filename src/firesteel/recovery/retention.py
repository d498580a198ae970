"""Results of a dead driver's job are kept for a while, by the storage's own clock: machines may disagree on the time."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from firesteel.recovery.places import LOG

RETAIN = "retain"
"""The entry of an owner's mark: so many seconds after the last change of the job's log. Missing: nothing is kept."""


def is_kept(fs: Any, directory: str, mark: Mapping[str, Any]) -> bool:
    """Returns whether the results in ``directory`` are kept for a resume. ``mark``: their owner's. Raises OSError."""
    retain = mark.get(RETAIN)
    if not isinstance(retain, int | float) or retain <= 0:
        return False
    parts = fs.get_file_info(pafs.FileSelector(f"{directory}/{LOG}", allow_not_found=True))
    written = [info.mtime.timestamp() for info in parts if info.mtime is not None]
    return bool(written) and _storage_time(fs, str(PurePosixPath(directory).parent)) < max(written) + retain


def _storage_time(fs: Any, directory: str) -> float:
    """The time of a file that was written there just now, in seconds since 1970."""
    path = f"{directory}/firesteel-time-{uuid.uuid4().hex}"
    with fs.open_output_stream(path) as stream:
        stream.write(b"now")
    try:
        return float(fs.get_file_info(path).mtime.timestamp())
    finally:
        fs.delete_file(path)

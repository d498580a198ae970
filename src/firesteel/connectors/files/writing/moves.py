"""Moving files so that it can be undone, and what is said when storage fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.object_stores import first_line, why
from firesteel.results.storage.store import StorageError


class Moves:
    """Moves that are undone, the last first, when the block around them fails.

    ``again``: some may have been made before, by a process that died: what lies at its end already was moved, and is undone with the rest.
    ``inside``: a directory that is there, or was taken away by who goes on with these moves; ``is_ours``: nobody does. Else nothing is undone.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        *,
        again: bool = False,
        inside: str = "/",
        is_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        self._filesystem = filesystem
        self._again = again
        self._is_ours = is_ours
        self._undo: list[Callable[[], Any]] = []
        self._known_dirs = {inside}

    def move(self, source: str, target: str) -> None:
        """Raises OSError."""
        if self._again and self._kind(source) is pafs.FileType.NotFound:
            if self._kind(target) is pafs.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        else:
            self.make_dir(str(PurePosixPath(target).parent))
            self._filesystem.move(source, target)
        self.was_made(source, target)

    def was_made(self, source: str, target: str) -> None:
        """This move is undone, too."""
        self._undo.append(partial(self._filesystem.move, target, source))

    def make_dir(self, path: str) -> None:
        missing: list[str] = []
        for folder in map(str, (PurePosixPath(path), *PurePosixPath(path).parents)):
            if folder in (*self._known_dirs, ".", "/"):
                break
            self._known_dirs.add(folder)
            if self._kind(folder) is not pafs.FileType.NotFound:
                break
            missing.append(folder)
        if missing:
            for folder in reversed(missing):
                self._filesystem.create_dir(folder, recursive=False)
                self._undo.append(partial(self.remove_if_empty, folder))

    def remove_if_empty(self, path: str) -> None:
        """Another job may have put files there meanwhile."""
        exists = self._kind(path) is not pafs.FileType.NotFound
        if exists and not self._filesystem.get_file_info(pafs.FileSelector(path)):
            self._filesystem.delete_dir(path)

    def _kind(self, path: str) -> pafs.FileType:
        return self._filesystem.get_file_info(path).type

    def on_undo(self, step: Callable[[], Any]) -> None:
        self._undo.append(step)

    def keep(self) -> None:
        """All steps so far stay."""
        self._undo.clear()

    def undo(self) -> None:
        """Takes every step, the last first, then raises the first OSError there was. Raises OSError, too, where others go on with them."""
        if self._undo and not self._is_ours():
            self.keep()
            raise OSError(errno.EBUSY, "another driver of the job has taken this over")
        failed: list[OSError] = []
        while self._undo:
            try:
                self._undo.pop()()
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def __enter__(self) -> Moves:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):
                self.undo()


@contextmanager
def storage_errors(label: str) -> Generator[None]:
    """Turns what the operating system or Arrow says while writing to ``label`` into a sentence."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        code = getattr(error, "errno", None)
        said, hint = _WHY_NOT.get(code or 0) or why(label, error, "")
        if code in _IN_ITS_WORDS:
            said = f"{said} ({first_line(error)})"
        raise StorageError(f"{label} cannot be written: {said}.", hint=hint or None, errno=code) from error


_FREE = "Free some space there or write elsewhere."
_IN_ITS_WORDS = {errno.EACCES, errno.EPERM, errno.ENOENT}
_WHY_NOT = {
    errno.ENOSPC: ("no space is left on the device", _FREE),
    errno.EDQUOT: ("the disk quota is used up", _FREE),
    errno.EFBIG: (
        "the file would be larger than files may be there",
        "Raise that limit, or write more and smaller files.",
    ),
    errno.EROFS: ("the file system is read-only", "Write elsewhere, or have it mounted for writing."),
    errno.EACCES: ("permission denied", "Check your access rights."),
    errno.EPERM: ("permission denied", "Check your access rights."),
    errno.ENOENT: (
        "its directory is gone",
        "Does every executor see this path, and does nothing else remove files there?",
    ),
}

"""Moving files so that it can be undone, and what is said when storage fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.object_stores import first_line, why
from firesteel.errors import FiresteelError


class Moves:
    """Moves that are undone, the last first, when the block around them fails."""

    def __init__(self, filesystem: pafs.FileSystem) -> None:
        self._filesystem = filesystem
        self._undo: list[Callable[[], Any]] = []
        self._known_dirs: set[str] = set()

    def move(self, source: str, target: str) -> None:
        self.make_dir(str(PurePosixPath(target).parent))
        self._filesystem.move(source, target)
        self._undo.append(partial(self._filesystem.move, target, source))

    def make_dir(self, path: str) -> None:
        missing: list[str] = []
        for folder in map(str, (PurePosixPath(path), *PurePosixPath(path).parents)):
            if folder in (*self._known_dirs, ".", "/"):
                break
            self._known_dirs.add(folder)
            if self._filesystem.get_file_info(folder).type is not pafs.FileType.NotFound:
                break
            missing.append(folder)
        if missing:
            self._filesystem.create_dir(path, recursive=True)
            self._undo += [partial(self._remove_if_empty, folder) for folder in reversed(missing)]

    def _remove_if_empty(self, path: str) -> None:
        """Another job may have put files there meanwhile."""
        exists = self._filesystem.get_file_info(path).type is not pafs.FileType.NotFound
        if exists and not self._filesystem.get_file_info(pafs.FileSelector(path)):
            self._filesystem.delete_dir(path)

    def on_undo(self, step: Callable[[], Any]) -> None:
        self._undo.append(step)

    def undo(self) -> None:
        """Takes every step, the last first, then raises the first OSError there was."""
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
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise FiresteelError(
                f"{label} cannot be written: no space is left on the device.",
                hint="Free some space there or write elsewhere.",
            ) from error
        if code in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FiresteelError(
                f"{label} cannot be written: permission denied ({first_line(error)}).", hint="Check your access rights."
            ) from error
        if code == errno.ENOENT:
            raise FiresteelError(
                f"{label} cannot be written: its directory is gone ({first_line(error)}).",
                hint="Does every executor see this path, and does nobody else remove files there?",
            ) from error
        said, hint = why(label, error, "")
        raise FiresteelError(f"{label} cannot be written: {said}.", hint=hint or None) from error

"""Places of journals: folders of this machine, and locations that ``pyarrow.fs`` opens. Names of files come from looking at them, never
from a request, and no link is followed out of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from firesteel.errors import UsageError
from firesteel.journal.file import begins_like_a_journal
from firesteel.journal.listing import HEAD_BYTES, Readable, begins_a_record
from firesteel.journal.locks import is_held
from firesteel.journal.places import SUFFIX

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class Stamp(NamedTuple):
    """By which a file that has changed is told from one that has not."""

    size: int
    mtime_ns: int


class Folder:
    """A folder of this machine. ``only``: the name of the one journal in it that is meant."""

    is_near = True
    """A look at a file takes microseconds."""

    def __init__(self, folder: Path, name: str = "", only: str = "") -> None:
        self.name = os.fsencode(name or str(folder)).decode("utf-8", "backslashreplace")
        self._folder = folder
        self._only = only

    def look(self) -> Mapping[str, Stamp]:
        """Returns journals by the names of their files. Raises OSError."""
        found: dict[str, Stamp] = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if self._only and entry.name != self._only:
                    continue
                is_one = bool(self._only) or entry.name.endswith(SUFFIX)
                if is_one and entry.name.isprintable() and not entry.is_symlink():
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        found[entry.name] = Stamp(status.st_size, status.st_mtime_ns)
        return found

    def open(self, name: str) -> AbstractContextManager[Readable]:
        """Opens a file that was seen. Raises OSError, FileNotFoundError among them."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self._folder / _bare(name), flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(name)
        return os.fdopen(descriptor, "rb")

    def is_held(self, name: str) -> bool | None:
        """Returns whether a process writes this file; None: it cannot be known."""
        return is_held(self._folder / _bare(name))

    def path(self, name: str) -> str:
        """As a user would write it."""
        return str(self._folder / name)


class Far:
    """A location on any file system of pyarrow's. Who writes there cannot be known."""

    is_near = False

    def __init__(self, filesystem: pafs.FileSystem, base: str, name: str) -> None:
        self.name = name
        self._filesystem = filesystem
        self._base = base.rstrip("/")

    def look(self) -> Mapping[str, Stamp]:
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(self._base, allow_not_found=True)
        return {
            info.base_name: Stamp(info.size or 0, info.mtime_ns or 0)
            for info in self._filesystem.get_file_info(selector)
            if info.is_file and info.base_name.endswith(SUFFIX)
        }

    def open(self, name: str) -> AbstractContextManager[Readable]:
        opened: Any = self._filesystem.open_input_file(f"{self._base}/{_bare(name)}")
        return opened

    def is_held(self, name: str) -> bool | None:
        return None

    def path(self, name: str) -> str:
        return f"{self.name.rstrip('/')}/{name}"


Place = Folder | Far


def _bare(name: str) -> str:
    """Raises FileNotFoundError for what is no name of a file in a folder."""
    if not name or "/" in name or os.sep in name or name in (".", "..") or "\0" in name:
        raise FileNotFoundError(name)
    return name


def _check_journal(given: str, path: Path) -> None:
    """Raises UsageError for a file that is no journal. An empty one may become one, if it is called like that."""
    hint = "Give a journal, or a directory with journals."
    try:
        with path.open("rb") as file:
            begin = file.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"'{given}' cannot be read: {error.strerror or error}.", hint=hint) from None
    is_one = begins_like_a_journal(path) if b"\n" in begin else begins_a_record(begin)
    if not (is_one if begin else path.suffix == SUFFIX):
        raise UsageError(f"'{given}' is not a journal.", hint=hint)


def place_of(given: str) -> Place:
    """A folder, a journal under any name, or a URL. Raises UsageError for what is none of them."""
    if "://" in given:
        import pyarrow as pa
        import pyarrow.fs as pafs

        try:
            filesystem, base = pafs.FileSystem.from_uri(given)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise UsageError(f"'{given}' cannot be opened: {str(error).rstrip('.')}.") from None
        if isinstance(filesystem, pafs.LocalFileSystem):
            return place_of(base)
        return Far(filesystem, base, given)
    path = Path(given).expanduser()
    if path.is_file():
        _check_journal(given, path)
        there = path.resolve()
        return Folder(there.parent, str(path), only=there.name)
    if not path.is_dir():
        raise UsageError(f"There is no directory '{given}'.", hint="Give a directory with journals, or a URL of one.")
    return Folder(path.absolute(), given)

"""The space of results that finished jobs leave to others: which of them are of no more use, and which go first when it is full.

Jobs that have used each other's results share the files of these, by links: a file counts once, and is free when the last of them has gone. On an object
store each has copies of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from firesteel.recovery.objects import AT_ONCE, ObjectPath
from firesteel.recovery.retention import LINES
from firesteel.recovery.uses import last_use
from firesteel.results.storage.at_once import mapped

File = tuple[int, int] | str
"""Device and number on it; or the path on an object store."""


def superseded(kept: Mapping[str, Mapping[str, Any]], newest: str) -> list[str]:
    """Names of the directories that have nothing that the newest has not. ``kept``: the owner's mark of each. Of two jobs that have the same and end at once
    only one is told of the other."""
    own = kept.get(newest, {})
    lines = set(own.get(LINES, ()))

    def is_more(mark: Mapping[str, Any], name: str) -> bool:
        less = lines.difference(mark.get(LINES, ()))
        return bool(less) or (own.get("at", 0.0), newest) > (mark.get("at", 0.0), name)

    others = ((name, mark) for name, mark in kept.items() if name != newest and lines.issuperset(mark.get(LINES, ())))
    return [name for name, mark in others if is_more(mark, name)]


class Space:
    """``directories``: of finished jobs, by name."""

    def __init__(self, directories: Mapping[str, Path | ObjectPath]) -> None:
        at_once = 1 if all(isinstance(one, Path) for one in directories.values()) else AT_ONCE
        self._files = dict(zip(directories, mapped(files_below, directories.values(), at_once), strict=True))
        self._used = dict(zip(directories, mapped(last_use, directories.values(), at_once), strict=True))
        self._holders = Counter(file for files in self._files.values() for file in files)
        self.bytes = sum({file: size for files in self._files.values() for file, size in files.items()}.values())

    def shrink(self, most: int, remove: Callable[[str], bool]) -> None:
        """Removes what was of use the longest time ago, until at most ``most`` bytes are left. What alone has more goes before all others. ``remove``:
        returns False where somebody uses it."""
        for name in sorted(self._files, key=lambda name: self._rank(name, most)):
            if self.bytes <= most:
                return
            if remove(name):
                self._take_off(name)

    def _rank(self, name: str, most: int) -> tuple[bool, float]:
        is_too_large = sum(self._files[name].values()) > most
        return not is_too_large, self._used[name]

    def _take_off(self, name: str) -> None:
        for file, size in self._files[name].items():
            self._holders[file] -= 1
            self.bytes -= 0 if self._holders[file] else size


def files_below(directory: Path | ObjectPath) -> dict[File, int]:
    """The files in it and below, with their sizes in bytes. What goes meanwhile is left out."""
    found: dict[File, int] = {}
    if isinstance(directory, ObjectPath):
        with suppress(OSError):
            found = {place.path: place.size for place in directory.files_below()}
        return found
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found |= files_below(Path(entry.path))
                continue
            with suppress(OSError):
                stat = entry.stat(follow_symlinks=False)
                found[stat.st_dev, stat.st_ino] = stat.st_size
    return found

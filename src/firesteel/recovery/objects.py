"""Logs on object stores: one object for each group, put only if there is none of its number yet.

So the log is one sequence, whoever writes it, and the put that continues it is lock and fence at once: a driver that takes a job over puts the
next object, and the old driver's next put finds it there.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from firesteel.recovery.exclusive import ExclusivePut
from firesteel.recovery.frames import MAGIC, DamagedLogError, frame, read
from firesteel.recovery.log import ALIVE_SECONDS, FencedError
from firesteel.results.storage.filesystem import mapped, retried
from firesteel.scheduler.recovery.records import AnyLogRecord, encode_records

_NAME = re.compile(r"s(\d{8})\.fsl")
AT_ONCE = 32
"""Objects that are asked for at the same time."""
SEGMENTS = "segments"
"""The entry of ``LogContents.read``: how many objects of the log were read."""


@dataclass(frozen=True)
class ObjectPath:
    """A place on an object store, as far as it is asked what a ``pathlib.Path`` is. ``url``: of the root of all results, by which it is opened."""

    fs: Any = field(repr=False, compare=False)
    path: str
    url: str
    put: ExclusivePut = field(repr=False, compare=False)
    size: int = field(default=0, repr=False, compare=False)
    changed: float = field(default=0.0, repr=False, compare=False)
    """When it was written last, in seconds since 1970."""

    def __truediv__(self, name: str) -> ObjectPath:
        return self._at(f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> ObjectPath:
        return self._at(str(PurePosixPath(self.path).parent))

    def with_name(self, name: str) -> ObjectPath:
        return self.parent / name

    def resolve(self) -> ObjectPath:
        return self

    def is_dir(self) -> bool:
        return bool(self._infos())

    def is_file(self) -> bool:
        return retried(lambda: self.fs.get_file_info(self.path)).type is pafs.FileType.File

    def iterdir(self) -> Iterator[ObjectPath]:
        """Raises OSError."""
        yield from map(self._of, self._infos())

    def files_below(self) -> list[ObjectPath]:
        """All that is in it, at any depth. Raises OSError."""
        return [self._of(info) for info in self._infos(recursive=True) if info.type is pafs.FileType.File]

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """``pattern``: of a name in it, or of one and a plain name in that."""
        first, _, rest = pattern.partition("/")
        for info in self._infos():
            if fnmatch.fnmatchcase(info.base_name, first) and not (rest and info.type is pafs.FileType.File):
                place = self._of(info) / rest if rest else self._of(info)
                if not rest or place.is_dir():
                    yield place

    def stat(self) -> os.stat_result:
        return os.stat_result((0, 0, 0, 0, 0, 0, self.size, 0, int(self.changed), 0))

    def read_bytes(self) -> bytes:
        """Raises OSError."""

        def ask() -> bytes:
            with self.fs.open_input_stream(self.path) as stream:
                return bytes(stream.read())

        return retried(ask)

    def write_bytes(self, data: bytes) -> None:
        """Raises OSError."""

        def send() -> None:
            with self.fs.open_output_stream(self.path) as stream:
                stream.write(data)

        retried(send)

    def copy_to(self, target: ObjectPath) -> None:
        """Has the store copy it, as one request: nobody finds a part of it there. Raises FileNotFoundError where it is gone, OSError."""

        def ask() -> None:
            try:
                self.fs.copy_file(self.path, target.path)
            except OSError as error:  # which of them it is, the store does not say by a number
                if self.fs.get_file_info(self.path).type is pafs.FileType.NotFound:
                    raise FileNotFoundError(errno.ENOENT, "is gone", self.path) from error
                raise

        retried(ask)

    def remove(self) -> None:
        """No error where nothing is. Raises OSError."""
        with suppress(FileNotFoundError):
            retried(lambda: self.fs.delete_file(self.path))

    def create(self, data: bytes) -> bool:
        """Writes it where nothing is; True if so, or if this very object is there. Raises OSError."""
        return (
            self.put.create(self.path, data) or self.read_bytes() == data
        )  # a try that seemed to fail may have succeeded

    def tag(self) -> str:
        """Of what it is now (``ExclusivePut.tag``). Raises OSError."""
        return self.put.tag(self.path)

    def _at(self, path: str) -> ObjectPath:
        return ObjectPath(self.fs, path, self.url, self.put)

    def _of(self, info: Any) -> ObjectPath:
        changed = 0.0 if info.mtime is None else info.mtime.timestamp()
        return ObjectPath(self.fs, info.path, self.url, self.put, info.size or 0, changed)

    def _infos(self, *, recursive: bool = False) -> list[Any]:
        below = pafs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        return retried(lambda: list(self.fs.get_file_info(below)))


class SegmentLog:
    """A log in ``directory``, to be continued behind its first objects, ``begin`` of them."""

    is_dear = True
    """Each group costs a request."""

    def __init__(self, directory: ObjectPath, begin: int = 0) -> None:
        self._directory, self._begin, self._next = directory, begin, begin
        self._written = time.monotonic()

    def put(self, name: str, data: bytes) -> None:
        (self._directory / name).write_bytes(data)

    def append(self, data: bytes) -> None:
        place = self._directory / _segment(self._next)
        if not place.create(MAGIC + data):
            raise FencedError(
                f"The job's log was continued by another driver, which has taken the job over: {place.name} is there already."
            )
        self._next += 1
        before, self._written = self._written, time.monotonic()
        if self._written - before > 2 * ALIVE_SECONDS:  # so long another driver must have watched it in vain
            self.verify()

    def verify(self) -> None:
        """The driver that took the job over may have finished it, and removed all of the log."""
        if self._directory.fs.get_file_info((self._directory / _segment(0)).path).type is pafs.FileType.NotFound:
            if self._next > self._begin:
                with suppress(OSError):  # whoever has removed the rest did not see it
                    (self._directory / _segment(self._next - 1)).remove()
            raise FencedError(
                "The job's log is gone: another driver has taken the job over, or its directory was removed."
            )

    def close(self) -> None:
        pass

    def remove(self) -> None:
        """Ends the log first, by an object without entries: nobody can continue it then, nor resume from it."""
        self.append(b"")
        names = [_segment(0), *(place.name for place in self._directory.iterdir())]
        for name in dict.fromkeys(names):
            (self._directory / name).remove()


def segments_in(directory: ObjectPath) -> list[int]:
    """The numbers of the log's objects, ascending. Raises OSError."""
    return sorted(segments(directory))


def segments(directory: ObjectPath) -> dict[int, ObjectPath]:
    """The log's objects by their numbers. Raises OSError."""
    return {int(match[1]): place for place in directory.iterdir() if (match := _NAME.fullmatch(place.name))}


def first_segment(directory: ObjectPath) -> ObjectPath:
    """There as long as anything of the job is: whoever removes the job removes it first."""
    return directory / _segment(0)


def read_segments(directory: ObjectPath) -> tuple[list[list[AnyLogRecord]], int]:
    """Returns the entries, and how many objects they are in; none where the first one is not there, or the log was ended. Raises DamagedLogError, OSError."""
    numbers = segments_in(directory)
    if not numbers or numbers[0] != 0:
        return [], 0
    if numbers[-1] != len(numbers) - 1:
        raise DamagedLogError(
            f"The log {directory.path} is damaged: of its {numbers[-1] + 1} objects {len(numbers)} are there."
        )
    places = [directory / _segment(number) for number in numbers]
    found = mapped(ObjectPath.read_bytes, places, AT_ONCE)
    entries: list[list[AnyLogRecord]] = []
    for place, data in zip(places, found, strict=True):
        part = read(data, place.path)
        if not part.entries:
            return [], 0  # it was ended
        if part.end != len(data):
            raise DamagedLogError(f"{place.path} is damaged: of its {len(data)} bytes {part.end} can be read.")
        entries += part.entries
    return entries, len(numbers)


def claim(directory: ObjectPath, begin: int, words: Sequence[AnyLogRecord]) -> bool:
    """Continues the log by a driver's first words. False: another one was faster. Raises OSError."""
    return (directory / _segment(begin)).create(MAGIC + frame([encode_records(list(words))]))


def disclaim(directory: ObjectPath, begin: int) -> None:
    """Takes back what ``claim`` has put where the log had been removed just before. Raises OSError."""
    (directory / _segment(begin)).remove()


def end_log(directory: ObjectPath, number: int) -> bool:
    """Ends the log in the place of its next object: nobody continues it from here on. False: somebody has. Raises OSError."""
    return (directory / _segment(number)).create(MAGIC)


def _segment(number: int) -> str:
    return f"s{number:08}.fsl"

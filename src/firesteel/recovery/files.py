"""Logs as files on a file system of this machine, shared with others or not: one file per driver, appended and synced."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firesteel.recovery.frames import MAGIC, DamagedLogError, ReadLog, read
from firesteel.recovery.log import FencedError, LogFile
from firesteel.recovery.objects import SEGMENTS, ObjectPath, SegmentLog, read_segments
from firesteel.scheduler.recovery.records import AnyLogRecord, DriverBegan

_NAME = re.compile(r"e(\d+)\.fsl")


def file_name(epoch: int) -> str:
    """Of the part of the log that the driver of this epoch writes."""
    return f"e{epoch:04}.fsl"


def open_log(directory: Path | ObjectPath, epoch: int, read_until: Mapping[str, int]) -> LogFile:
    """The part of the log that the driver of this epoch writes. ``read_until``: what it has read of earlier ones'. Raises FencedError, OSError."""
    if isinstance(directory, ObjectPath):
        return SegmentLog(directory, read_until.get(SEGMENTS, 0))
    return FileLog(directory, epoch)


class FileLog:
    """A new file in the log's directory, inside the job's. ``append`` is write and fdatasync."""

    is_dear = False

    def __init__(self, directory: Path, epoch: int) -> None:
        """Makes the directory of the log, never the job's. Raises FileNotFoundError where that is another driver's by now, FileExistsError for
        an epoch that had a driver before, OSError."""
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._path = directory / file_name(epoch)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _write(self._fd, MAGIC)
        _sync_directory(directory)
        _sync_directory(directory.parent)

    def put(self, name: str, data: bytes) -> None:
        descriptor = os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _sync_directory(self._directory)

    def append(self, data: bytes) -> None:
        _write(self._fd, data)
        os.fdatasync(self._fd)
        self.verify()

    def close(self) -> None:
        os.close(self._fd)

    def remove(self) -> None:
        shutil.rmtree(self._directory)

    def verify(self) -> None:
        """A driver that takes over renames the directory first: what is written to the open file later, it has not read."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._fd)):
            raise FencedError(
                f"The job's log is not at {self._path} any more: another driver has taken the job over, or its directory was removed."
            )


@dataclass(frozen=True, slots=True)
class LogContents:
    """All that counts of a job's log. ``read``: file to the bytes of it that count; ``epoch``: the last driver's."""

    entries: list[list[AnyLogRecord]]
    read: dict[str, int]
    epoch: int


def read_log(directory: Path | ObjectPath) -> LogContents:
    """Reads all drivers' parts, each as far as the driver after it had read it. Raises DamagedLogError, OSError."""
    if isinstance(directory, ObjectPath):
        entries, read_objects = read_segments(directory)
        epochs = [entry[0].epoch for entry in entries if isinstance(entry[0], DriverBegan)]
        return LogContents(entries, {SEGMENTS: read_objects}, max(epochs, default=0))
    epochs = sorted(int(match[1]) for entry in directory.iterdir() if (match := _NAME.fullmatch(entry.name)))
    parts: list[ReadLog] = []
    counts: dict[str, int] = {}
    known: Mapping[str, int] | None = None
    """Bytes that the driver of a later part had read of each file; None: no later one began."""
    for epoch in reversed(epochs):
        name = file_name(epoch)
        limit = None if known is None else known.get(name, 0)
        part = read((directory / name).read_bytes()[:limit], f"{directory}/{name}")
        if not part.entries:
            continue
        began = part.entries[0][0]
        if not isinstance(began, DriverBegan):
            raise DamagedLogError(f"{directory}/{name} is damaged: it does not begin with its driver.")
        known = began.read_until if known is None else known
        counts[name] = part.end
        parts.append(part)
    entries = [entry for part in reversed(parts) for entry in part.entries]
    return LogContents(entries, counts, max(epochs, default=0))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

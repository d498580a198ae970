"""The hidden directory beside a target in which the attempts of one job write, before anything is published."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, is_local
from firesteel.connectors.files.writing.in_place import InPlace
from firesteel.connectors.files.writing.leftovers import is_ours, mark_owner, staging_path, stagings_of
from firesteel.connectors.files.writing.moves import storage_errors
from firesteel.connectors.files.writing.part_files import FileCommit, PartFile
from firesteel.connectors.files.writing.renamed import Renamed
from firesteel.errors import FiresteelError, UsageError

_REMOVALS = 3
_FILE = pafs.FileType.File


class Staging:
    """The directory of one sink for one job. ``path``: it lies in the target's file system."""

    def __init__(self, target: Location, job_id: str) -> None:
        """Raises UsageError where another sink of the job has it already."""
        self.target = target
        self.path = staging_path(target, job_id)
        self._parents: list[str] = []
        if target.at(self.path).kind() is not pafs.FileType.NotFound:
            raise UsageError(f"Two sinks of this job write to {target.label}.", hint="Give each its own path.")

    def make(self) -> None:
        """Raises StorageError, leaving nothing."""
        try:
            with storage_errors(self.target.label):
                self._parents = self._missing_parents()
                self.target.filesystem.create_dir(self.path, recursive=True)
                mark_owner(self.target, self.path)  # first: else nobody knows whose it is
                self.target.filesystem.create_dir(self.attempts.path)
        except BaseException:  # a full disk, Ctrl-C: a sink that did not begin is not aborted by anybody else
            self.remove()
            self._remove_parents()
            raise

    @classmethod
    def taken_over(cls, target: Location, job_id: str, parents: Sequence[str] = ()) -> Staging | None:
        """Makes this driver's own of what a dead one of the job left: on file systems where that is one step by another name, so that nobody else
        writes there any more. None: it is gone. ``parents``: the directories that were made for it. Raises StorageError."""
        staging = cls.__new__(cls)
        staging.target, staging._parents = target, list(parents)
        with storage_errors(target.label):
            left = stagings_of(target, job_id)
            if not left:
                return None
            epoch, staging.path = max(left.items())
            if is_local(target.filesystem):
                path = f"{staging_path(target, job_id)}.e{epoch + 1}"
                target.filesystem.move(staging.path, path)
                staging.path = path
            mark_owner(target, staging.path)
        return staging

    @property
    def parents(self) -> tuple[str, ...]:
        """The directories above it that were made for it, the nearest first."""
        return tuple(self._parents)

    def is_ours(self) -> bool:
        """Nobody has taken it over from this process."""
        return is_ours(self.target, self.path)

    @property
    def attempts(self) -> Location:
        """The directory that attempts write to."""
        return self.target.at(f"{self.path}/attempts")

    def place(self, file: PartFile) -> str:
        return f"{self.attempts.path}/{file.name}"

    def verify(self, written: Sequence[FileCommit]) -> None:
        """Raises FiresteelError unless all of these files are there whole."""
        for _, subtask, file, info in self._staged(written):
            if not _is_whole(info, file):
                state = f"has {info.size} bytes instead of {file.bytes}" if info.type is _FILE else "is gone"
                raise FiresteelError(
                    f"Nothing was published to {self.target.label}: the file that subtask {subtask} wrote, {info.path}, {state}.",
                    hint="Does every executor see this path, and does nothing else remove files there?",
                )

    def missing(self, written: Sequence[FileCommit]) -> dict[int, list[PartFile]]:
        """Files that are not there whole, by place of the message."""
        found: dict[int, list[PartFile]] = {}
        for place, _, file, info in self._staged(written):
            if not _is_whole(info, file):
                found.setdefault(place, []).append(file)
        return found

    def _staged(self, written: Sequence[FileCommit]) -> list[tuple[int, int, PartFile, Any]]:
        """Place of the message, subtask, file, and what the storage says of it."""
        files = [(place, one.subtask, file) for place, one in enumerate(written) for file in one.files]
        with storage_errors(self.target.label):
            infos = self.target.filesystem.get_file_info([self.place(file) for _, _, file in files])
        return [(*file, info) for file, info in zip(files, infos, strict=True)]

    def abort(self, attempts: Sequence[FileCommit]) -> None:
        """Removes what these attempts wrote; without any, all, and what a commit could not undo in the target is taken back first."""
        for message in attempts:
            for file in message.files:
                with suppress(OSError):
                    self.target.filesystem.delete_file(self.place(file))
        if attempts:
            return
        with suppress(OSError, pa.ArrowException):  # then what was put aside stays for the next job
            if not self.is_ours():
                return
            InPlace(self.target, self.path).take_back()
            Renamed(self.target, self.path).take_back()
            self.remove()
            self._remove_parents()

    def remove(self) -> None:
        for _ in range(_REMOVALS):  # an attempt not yet stopped may make a file between listing and removing
            with suppress(OSError):  # what is published stays published, whatever happens here
                self.target.filesystem.delete_dir(self.path)
                break

    def _remove_parents(self) -> None:
        """Removes the ones that were made and are still empty."""
        for parent in self._parents:
            with suppress(OSError):
                if not self.target.filesystem.get_file_info(pafs.FileSelector(parent)):
                    self.target.filesystem.delete_dir(parent)

    def _missing_parents(self) -> list[str]:
        missing: list[str] = []
        for parent in PurePosixPath(self.path).parents:
            if str(parent) in (".", "/") or self.target.at(str(parent)).kind() is not pafs.FileType.NotFound:
                break
            missing.append(str(parent))
        return missing


def _is_whole(info: Any, file: PartFile) -> bool:
    return info.type is _FILE and info.size == file.bytes

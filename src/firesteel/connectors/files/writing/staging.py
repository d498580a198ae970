"""The hidden directory beside a target in which the attempts of one job write, before anything is published; and what jobs that died left of such directories."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, PathLike, find_target, first_line, is_local
from firesteel.connectors.files.writing.in_place import SUCCESS, InPlace, Renamed, storage_errors
from firesteel.connectors.files.writing.part_files import FileCommit, PartFile
from firesteel.errors import FiresteelError, UsageError
from firesteel.results.storage.owner import Owner, myself, owner_of

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


_OWNER = "_owner.json"
_EPOCH = re.compile(r"(?:\.e(\d+))?")


def staging_path(target: Location, job_id: str) -> str:
    """The hidden directory beside the target in which a job prepares its output."""
    path = PurePosixPath(target.path)
    return str(path.with_name(f".{path.name}.firesteel-{job_id}"))


def mark_owner(target: Location, staging: str) -> None:
    with target.filesystem.open_output_stream(f"{staging}/{_OWNER}") as stream:
        stream.write(json.dumps(myself()).encode())


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files of a job beside a target: its ``staging`` directory, with what it had not published, or had put aside."""

    target: Location
    staging: str

    @property
    def job_id(self) -> str:
        return self.staging.removeprefix(staging_path(self.target, ""))

    def owner(self) -> Owner:
        """Raises OSError."""
        try:
            with self.target.filesystem.open_input_stream(f"{self.staging}/{_OWNER}") as stream:
                return owner_of(json.loads(stream.read()))
        except (FileNotFoundError, ValueError):
            return Owner.UNKNOWN

    @property
    def is_half(self) -> bool:
        """The job had begun to change the target. Raises OSError."""
        has_old = not _is(self.target, f"{self.staging}/old", pafs.FileType.NotFound)
        is_whole = _is(self.target, f"{self.target.path}/{SUCCESS}", pafs.FileType.File)
        return InPlace(self.target, self.staging).is_open or (has_old and not is_whole)

    def recover(self, *, keeps: bool) -> None:
        """Takes back what the job had changed half, and removes the rest. ``keeps``: what is in the target shall stay.

        Raises UsageError where that cannot be done, OSError.
        """
        _take_back_changes(self.target, self.staging)
        _rescue_old(self.target, self.staging, keeps)
        self.target.filesystem.delete_dir(self.staging)


def leftovers(target: Location) -> list[Leftover]:
    """Raises StorageError."""
    prefix = staging_path(target, "")
    with storage_errors(target.label):
        selector = pafs.FileSelector(str(PurePosixPath(prefix).parent), allow_not_found=True)
        beside = target.filesystem.get_file_info(selector)
    found = [i.path for i in beside if i.type is pafs.FileType.Directory and i.path.startswith(prefix)]
    return [Leftover(target, path) for path in sorted(found)]


def unpublished(path: PathLike) -> tuple[str, list[Leftover]]:
    """An output's label, and what jobs left beside it. Raises UsageError where there is neither, FiresteelError."""
    target = find_target(path)
    found = leftovers(target)
    with storage_errors(target.label):
        if not found and _is(target, target.path, pafs.FileType.NotFound):
            raise UsageError(
                f"There is no {target.label}, and nothing beside it that a job left.",
                hint="Give the directory that the job wrote to.",
            )
    return target.label, found


def is_ours(target: Location, staging: str) -> bool:
    """The directory is marked as this process's. Raises OSError."""
    try:
        with target.filesystem.open_input_stream(f"{staging}/{_OWNER}") as stream:
            return json.loads(stream.read()) == myself()
    except (FileNotFoundError, ValueError):
        return False


def stagings_of(target: Location, job_id: str) -> dict[int, str]:
    """The job's directories beside the target, by the number of the driver that had them, of 1 and more. Raises OSError."""
    own = staging_path(target, job_id)
    beside = target.filesystem.get_file_info(pafs.FileSelector(str(PurePosixPath(own).parent), allow_not_found=True))
    names = {info.path: info.path.removeprefix(own) for info in beside if info.path.startswith(own)}
    epochs = {path: _EPOCH.fullmatch(rest) for path, rest in names.items()}
    return {int(match[1] or 1): path for path, match in epochs.items() if match is not None}


def is_left(target: Location) -> bool:
    """A job writes there, or has died without having tidied up. Raises StorageError."""
    return bool(leftovers(target))


def remove_leftovers(target: Location, *, keeps: bool) -> None:
    """Of jobs that are dead for certain: same host, no such process. ``keeps``: what is in the target shall stay.

    Raises UsageError where a job died in the middle and that cannot be taken back.
    """
    for one in leftovers(target):
        with suppress(OSError):
            if one.owner() is Owner.DEAD:
                one.recover(keeps=keeps)


def _take_back_changes(target: Location, leftover: str) -> None:
    try:
        InPlace(target, leftover).take_back()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"{target.label} is half changed: the job that did it died, and that cannot be taken back ({first_line(error)}). "
            f"What it had put aside lies in {target.at(leftover).label}/aside.",
            hint="Try again when the storage can be written, or move those files back yourself and remove that directory.",
        ) from None


def _rescue_old(target: Location, leftover: str, keeps: bool) -> None:
    """A driver that died in the middle of an overwrite had moved the old output aside: it goes back."""
    old = f"{leftover}/old"
    if _is(target, old, pafs.FileType.NotFound) or _is(target, f"{target.path}/{SUCCESS}", pafs.FileType.File):
        return
    if not is_local(target.filesystem):
        if keeps:  # with its mark the output would look whole, and the next job remove what is missing
            raise UsageError(
                f"{target.label} is half overwritten: the job that did it died, and the old files that it had "
                f"moved lie in {target.at(old).label}.",
                hint="Move them back and remove the new ones, or write the output anew with mode='overwrite'.",
            )
        raise OSError(errno.ENOTSUP, "an old output lies here, half replaced; it is kept for manual inspection")
    if _is(target, target.path, pafs.FileType.NotFound):
        target.filesystem.move(old, target.path)


def _is(target: Location, path: str, kind: pafs.FileType) -> bool:
    return target.at(path).kind() is kind

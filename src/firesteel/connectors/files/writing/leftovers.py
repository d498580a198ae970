"""Leftovers of jobs that died, beside the target of a sink: removed, and what they had changed half taken back."""

from __future__ import annotations

import errno
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, PathLike, find_target, first_line, is_local
from firesteel.connectors.files.writing.in_place import SUCCESS, InPlace
from firesteel.connectors.files.writing.moves import storage_errors
from firesteel.errors import UsageError
from firesteel.results.storage.owner import Owner, myself, owner_of

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

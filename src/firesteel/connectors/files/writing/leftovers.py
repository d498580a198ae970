"""Leftovers of jobs that died, beside the target of a sink: removed, and what they had changed half taken back."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, first_line, is_local
from firesteel.connectors.files.writing.in_place import SUCCESS, InPlace
from firesteel.connectors.files.writing.moves import storage_errors
from firesteel.errors import UsageError
from firesteel.results.storage.owner import is_dead, myself

_OWNER = "_owner.json"


def staging_path(target: Location, job_id: str) -> str:
    """The hidden directory beside the target in which a job prepares its output."""
    path = PurePosixPath(target.path)
    return str(path.with_name(f".{path.name}.firesteel-{job_id}"))


def mark_owner(target: Location, staging: str) -> None:
    with target.filesystem.open_output_stream(f"{staging}/{_OWNER}") as stream:
        stream.write(json.dumps(myself()).encode())


def remove_leftovers(target: Location, *, keeps: bool) -> None:
    """Of jobs that are dead for certain: same host, no such process. ``keeps``: what is in the target shall stay.

    Raises UsageError where a job died in the middle and that cannot be taken back.
    """
    prefix = staging_path(target, "")
    with storage_errors(target.label):
        selector = pafs.FileSelector(str(PurePosixPath(prefix).parent), allow_not_found=True)
        beside = target.filesystem.get_file_info(selector)
    for info in beside:
        if info.type is pafs.FileType.Directory and info.path.startswith(prefix):
            with suppress(OSError, ValueError):
                with target.filesystem.open_input_stream(f"{info.path}/{_OWNER}") as stream:
                    owner = json.loads(stream.read())
                if is_dead(owner):
                    _take_back_changes(target, info.path)
                    _rescue_old(target, info.path, keeps)
                    target.filesystem.delete_dir(info.path)


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
    return target.filesystem.get_file_info(path).type is kind

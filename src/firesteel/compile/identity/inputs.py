"""Inputs of sources, split by split: rows that travel in the split, files as their storage tells them apart, what a source says itself.

A file is known by its path, size and time of change. On the local file system by the time of the change of its status too, which nobody can
set back. One that was changed just now counts as not known: it could change again within the same tick of its storage's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.compile.identity.facts import digest, of_names
from firesteel.compile.identity.walk import Known, Walk
from firesteel.connectors.base import Split
from firesteel.connectors.files.paths import WRITTEN_ONCE, InputFile, Location, local_path
from firesteel.connectors.files.reading.source import FileSource
from firesteel.connectors.memory import RangeSource, TableSource
from firesteel.connectors.stored import StoredSource
from firesteel.errors import UsageError, error_words

_SETTLED = 2_000_000_000
"""Nanoseconds after which a file that changes gets another time: object stores count whole seconds."""


@dataclass(frozen=True, slots=True)
class InputPrints:
    """``splits``: 16 bytes for each, in order; None: nobody can tell whether it gives the same rows. ``why``: of the first such, in words that follow
    the vertex' name."""

    splits: tuple[bytes | None, ...]
    why: str = ""

    @property
    def whole(self) -> bytes | None:
        """Of all splits in order; None where one is not known."""
        known = [one for one in self.splits if one is not None]
        return digest(*known) if len(known) == len(self.splits) and not self.why else None


def input_prints(source: Any, splits: Sequence[Split], now_ns: int) -> InputPrints:
    """``now_ns``: since 1970, before anything is read."""
    walk = Walk(Known())
    if isinstance(source, FileSource):
        return _of_files(walk, source, splits, now_ns)
    if isinstance(source, TableSource | RangeSource):
        return InputPrints(tuple(digest(walk.encoded(split.payload)) for split in splits))
    if isinstance(source, StoredSource):
        return _none(splits, "reads rows that an earlier job of the same process has kept")
    return _of_users(walk, source, splits)


def _none(splits: Sequence[Split], why: str) -> InputPrints:
    return InputPrints((None,) * len(splits), why)


def _of_users(walk: Walk, source: Any, splits: Sequence[Split]) -> InputPrints:
    says = getattr(source, "fingerprint", None)
    try:
        told = None if says is None else says()
    except Exception as error:
        raise UsageError(
            f"fingerprint() of source '{source.name}' failed: {error_words(error)}.",
            hint="Let it return None where it does not know.",
        ) from error
    if told is not None and not isinstance(told, bytes):
        raise UsageError(
            f"fingerprint() of source '{source.name}' gave a {type(told).__name__}.",
            hint="Let it return bytes that are others whenever its rows are, or None.",
        )
    if told is None:
        return _none(splits, f"reads {source.name}, which does not say by a fingerprint whether its rows are the same")
    found = tuple(digest(told, walk.encoded(split.payload)) for split in splits)
    return InputPrints(found, next(iter(walk.reasons()), ""))


def _of_files(walk: Walk, source: FileSource, splits: Sequence[Split], now_ns: int) -> InputPrints:
    files = {file.path: file for file in source.found.files}
    place = Location(source.found.filesystem, "", source.found.prefix)
    versions: dict[str, bytes | None] = {}
    found: list[bytes | None] = []
    why = ""
    for split in splits:
        paths = source.paths_of(split.payload)
        for path in paths:
            if path not in versions:
                versions[path] = _version(files[path], place.at(path), now_ns)
        unknown = next((path for path in paths if versions[path] is None), None)
        if unknown is not None:
            why = why or f"reads {place.at(unknown).label}, of which it is not known whether it has changed since"
        found.append(None if unknown is not None else digest(walk.encoded(split.payload), *_told(versions, paths)))
    return InputPrints(tuple(found), why)


def _told(versions: Mapping[str, bytes | None], paths: Sequence[str]) -> list[bytes]:
    return [versions[path] or b"" for path in dict.fromkeys(paths)]


def _version(file: InputFile, place: Location, now_ns: int) -> bytes | None:
    """None: it says too little."""
    changed = ""
    if file.version not in ("", WRITTEN_ONCE):
        local = local_path(place)
        try:
            times = [int(file.version), *([local.stat().st_ctime_ns] if local is not None else [])]
        except OSError:
            return None
        if max(times) > now_ns - _SETTLED:
            return None
        changed = " ".join(map(str, times))
    return of_names(file.path, str(file.size), changed or file.version) if file.version else None

"""An index of the journals of one place: a line for each, read once, and again only when its file has changed.

It is kept between runs in the user's cache, so that even the first list of ten thousand journals comes from it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from firesteel.journal.listing import BROKEN_OFF, OPEN, RUNNING, UNFINISHED, began_in_name, damaged, listed_of
from firesteel.ui.catalog.places import Place, Stamp
from firesteel.ui.views.structs import JobSummary

FORMAT = 3
LOOK_SECONDS = 1.0
"""A place is looked at no more often ..."""
FAR_LOOK_SECONDS = 15.0
"""... and one that is far away than this."""
READERS = 16
"""Journals of a place that is far away that are read at once."""
KEPT_FROM = 64
"""An index is written down when so many lines are new."""
LONGEST_CAUSE = 2000
_log = logging.getLogger("firesteel.ui")


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One journal in the list, and the stamp that shows whether its file has changed."""

    stamp: Stamp
    summary: JobSummary


class _Kept(msgspec.Struct, array_like=True):
    format: int
    place: str
    lines: dict[str, Line]


class Index:
    """``lines()`` of one place. May be called from any thread. ``cache``: a folder to keep it in; None: only in memory."""

    def __init__(self, place: Place, cache: Path | None = None) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._file = None if cache is None else cache / f"{_digest(place.name)}.msgpack"
        self._lines: dict[str, Line] | None = None
        self._looked_at = -1e9
        self._new = 0
        self.problem = ""
        """Why the place could not be looked at the last time; empty: it could."""

    def lines(self) -> Mapping[str, Line]:
        """By the names of files, as they were a moment ago. A place that cannot be looked at leaves them as they are, and its
        ``problem`` says why."""
        with self._lock:
            if self._lines is None:
                self._lines = self._remembered()
            if time.monotonic() - self._looked_at >= (LOOK_SECONDS if self.place.is_near else FAR_LOOK_SECONDS):
                try:
                    self._lines = self._mended(self._lines, self.place.look())
                    self._say("")
                except OSError as error:
                    self._say((error.strerror or str(error)).rstrip("."))
                self._looked_at = time.monotonic()
                if self._new >= KEPT_FROM:
                    self._keep(self._lines)
            return self._lines

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("'%s' cannot be read: %s.", self.place.name, problem)
        self.problem = problem

    def close(self) -> None:
        """Writes down what is new."""
        with self._lock:
            if self._new and self._lines is not None:
                self._keep(self._lines)

    def _mended(self, known: Mapping[str, Line], there: Mapping[str, Stamp]) -> dict[str, Line]:
        changed = [name for name, stamp in there.items() if name not in known or known[name].stamp != stamp]
        lines = {name: known[name] for name in there if name in known}
        lines.update(self._read(changed, there))
        self._new += len(changed) + len(known.keys() - there.keys())
        for name, line in lines.items():
            if line.summary.status in OPEN and name not in changed:
                lines[name] = self._as_it_is(name, line)
        return lines

    def _as_it_is(self, name: str, line: Line) -> Line:
        held, summary = self.place.is_held(name), line.summary
        status = UNFINISHED if held is None else RUNNING if held else BROKEN_OFF
        seconds = max(0.0, time.time() - summary.began) if held else summary.seconds
        return Line(line.stamp, replace(summary, status=status, seconds=seconds, is_live=bool(held)))

    def _read(self, names: Iterable[str], there: Mapping[str, Stamp]) -> dict[str, Line]:
        names = list(names)

        def line(name: str) -> Line:
            return self._line(name, there[name])

        if self.place.is_near or len(names) < 2:
            return {name: line(name) for name in names}
        with ThreadPoolExecutor(READERS, "firesteel-ui-index") as pool:
            return dict(zip(names, pool.map(line, names), strict=True))

    def _line(self, name: str, stamp: Stamp) -> Line:
        path = Path(name)
        began = began_in_name(name) or stamp.mtime_ns / 1e9
        try:
            with self.place.open(name) as file:
                found = listed_of(file, path, began, lambda: self.place.is_held(name))
        except OSError as error:
            found = damaged(path, began, error.strerror or str(error))
        more = {"cause": found.cause[:LONGEST_CAUSE], "is_live": found.status == RUNNING}
        return Line(stamp, JobSummary.of(found, id=found.job_id, place=self.place.name, journal=name, **more))

    def _remembered(self) -> dict[str, Line]:
        """Of an earlier run; empty where there is none, or it is not ours."""
        if self._file is not None:
            with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                with self._file.open("rb") as file:
                    if hasattr(os, "geteuid") and os.fstat(file.fileno()).st_uid != os.geteuid():
                        return {}
                    kept = msgspec.msgpack.decode(file.read(), type=_Kept)
                if (kept.format, kept.place) == (FORMAT, self.place.name):
                    return kept.lines
        return {}

    def _keep(self, lines: dict[str, Line]) -> None:
        """As a whole or not at all; that it cannot be kept costs only time."""
        self._new = 0
        if self._file is None:
            return
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        written = msgspec.msgpack.encode(_Kept(FORMAT, self.place.name, lines))
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(written)
            draft.replace(self._file)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def cache_folder() -> Path:
    """Of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "firesteel" / "history"

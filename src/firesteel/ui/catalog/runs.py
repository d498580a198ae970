"""Jobs and streams of this process: told of by a tap while they run, by their journals when they are over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from firesteel.errors import UsageError
from firesteel.journal.listing import RUNNING
from firesteel.ui.begun import Begun
from firesteel.ui.catalog.following import FileFeed, Following, Tap
from firesteel.ui.catalog.handlers import Handler, JobHandler
from firesteel.ui.catalog.places import Folder, Place
from firesteel.ui.catalog.summaries import with_fold
from firesteel.ui.views.structs import JobSummary

MOST_UNSEEN = 1 << 12
"""Records of a job that nobody looks at, until they are taken in together: that costs the job least."""


class OwnRun:
    """``at``: when it began, in seconds since 1970."""

    def __init__(self, begun: Begun, tap: Tap, at: float) -> None:
        kind = "job" if begun.stream is None else "stream"
        self._beginning = JobSummary(
            id=begun.id, kind=kind, name=begun.name, status=RUNNING, began=at, journal=begun.journal.name, is_live=True
        )
        self._last = self._beginning
        self._tap = tap
        self._spark_url, self._stage_url = begun.spark_url, begun.stage_url
        self._handler: Handler | None = begun.stream or JobHandler(begun.cancel)
        self._following: Following | None = Following(tap)
        self.place: Place = Folder(begun.journal.parent, only=begun.journal.name)
        self.file = begun.journal.name

    @property
    def id(self) -> str:
        return self._beginning.id

    @property
    def spark_url(self) -> str:
        """Of Spark's own page; empty: there is none. Also of a run that is over, as long as its Spark is there."""
        return _asked(self._spark_url)

    def stage_url(self, vertex: int) -> str:
        return _asked(partial(self._stage_url, vertex))

    def following(self) -> Following | None:
        """None: its journal tells of it."""
        return None if self._tap.overflowed else self._following

    def handler(self) -> Handler | None:
        return self._handler if self._tap.is_open else None

    def summary(self) -> JobSummary:
        """As it is now; as it was told last, where its records do not tell it any more."""
        followed = self.following()
        if followed is not None:
            self._look(followed)
        return self._last

    def _look(self, followed: Following) -> None:
        with suppress(UsageError, OSError), followed.reading() as fold:
            self._last = with_fold(self._beginning, fold)

    @property
    def is_due(self) -> bool:
        """It is over, or so much waits in its tap that who looks would wait for it, too."""
        return self._following is not None and (not self._tap.is_open or self._tap.waiting >= MOST_UNSEEN)

    def sweep(self) -> None:
        """Takes in what waits in the tap; of one that is over nothing is kept but its line: neither its fold, nor what could cancel it."""
        if self._following is None:
            return
        is_over = not self._tap.is_open
        self._look(Following(FileFeed(self.place, self.file)) if is_over and self._tap.overflowed else self._following)
        if is_over:
            self._following = self._handler = None


def _asked(question: Callable[[], str | None]) -> str:
    """Empty where Spark does not answer: it is stopping, or gone."""
    with suppress(Exception):
        return question() or ""
    return ""


@dataclass(slots=True)
class OwnRuns:
    """All since the process began. May be used from any thread."""

    _runs: list[OwnRun] = field(default_factory=list[OwnRun])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, run: OwnRun) -> None:
        with self._lock:
            self._runs.append(run)

    def all(self) -> list[OwnRun]:
        with self._lock:
            return list(self._runs)

    @property
    def are_due(self) -> bool:
        """There is something for :meth:`sweep` to do. Returns at once."""
        return any(run.is_due for run in self._runs)

    def sweep(self) -> None:
        for run in self.all():
            if run.is_due:
                run.sweep()

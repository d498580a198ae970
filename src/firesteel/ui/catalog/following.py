"""One fold per job, shared by all who look: from a journal's file as it grows, or straight from the job beside the server."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from firesteel.errors import UsageError
from firesteel.journal.file import Reader, masked
from firesteel.journal.pending import Pending
from firesteel.masking import Masker
from firesteel.report.fold import Fold, JobFold, fold_for
from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.ui.catalog.places import Place

FRESH_SECONDS = 0.05
"""A journal that was looked at so shortly ago is not looked at again ..."""
FAR_SECONDS = 5.0
"""... and one that is far away not for so long."""
CHUNK = 1 << 22
MOST_WAITING = 1 << 18
"""Records that wait to be folded; a job that has more is told of by its journal alone from then on."""


class FileFeed:
    """A journal's file, from the beginning, then what is appended. Raises UsageError, OSError."""

    zero = math.inf
    """Value of ``time.monotonic`` at time 0 of the records, at the latest; inf: not known better than from when they are read."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self._reader = Reader(name)
        self._offset = 0
        self._size = 0

    @property
    def fresh_seconds(self) -> float:
        """For so long what was taken in stays fresh."""
        return FRESH_SECONDS if self._place.is_near else FAR_SECONDS

    def restarted(self) -> bool:
        """The file has become shorter, so it is another one: the fold begins again."""
        if self._offset:
            with self._place.open(self._name) as file:
                file.seek(0, 2)
                if file.tell() < self._offset:
                    self._reader, self._offset = Reader(self._name), 0
                    return True
        return False

    def news(self) -> Iterator[JournalRecord]:
        """Yields the records that are new."""
        with self._place.open(self._name) as file:
            file.seek(self._offset)
            while chunk := file.read(CHUNK):
                self._offset += len(chunk)
                yield from self._reader.feed(chunk)

    def runs(self) -> bool:
        """More may come."""
        return self._place.is_held(self._name) is not False


class Tap:
    """An instrument of a job of this process: records wait in it until somebody takes them, which costs the job little more than an append."""

    fresh_seconds = 0.0

    def __init__(self) -> None:
        self._waiting: deque[JournalRecord] = deque()
        self._masker = Masker()
        self.zero = math.inf
        self.is_open = True
        self.overflowed = False

    @property
    def waiting(self) -> int:
        """Records that nobody has taken yet."""
        return len(self._waiting)

    def record(self, record: JournalRecord) -> None:
        if self.overflowed:
            return
        self._waiting.append(record)
        self.zero = min(self.zero, time.monotonic() - record.at)
        if len(self._waiting) > MOST_WAITING:
            self.overflowed = True
            self._waiting.clear()

    def close(self) -> None:
        self.is_open = False

    def news(self) -> list[JournalRecord]:
        """As they stand in the journal: without what looks secret in them, and those of subtasks that report one by one put together."""
        gathered = Pending()
        while self._waiting:
            try:
                record = self._waiting.popleft()
            except IndexError:  # given up meanwhile
                break
            gathered.add(masked(record, self._masker))
        return gathered.take()

    def runs(self) -> bool:
        return self.is_open

    def restarted(self) -> bool:
        return False


class Following:
    """The fold of one job, brought up to date when somebody looks. One that cannot be read stays so."""

    def __init__(self, feed: FileFeed | Tap) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._fold: Fold = JobFold(runs=True)
        self._is_empty = True
        self._broken: UsageError | None = None
        self._looked_at = -1e9

    @property
    def size(self) -> int:
        """Executions that its fold holds."""
        fold = self._fold
        return sum(each.count for each in list(fold.executions.values())) if isinstance(fold, JobFold) else 0

    @contextmanager
    def reading(self) -> Generator[Fold]:
        """The fold as it is now; nobody changes it meanwhile. Raises UsageError for what cannot be read as a journal, OSError."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if time.monotonic() - self._looked_at >= self._feed.fresh_seconds:
                try:
                    self._refresh()
                except UsageError as error:
                    self._broken = error.with_traceback(None)
                    raise
                self._looked_at = time.monotonic()
            yield self._fold

    def _refresh(self) -> None:
        runs = self._feed.runs()  # before its records: what it wrote last is among them
        if self._feed.restarted():
            self._fold, self._is_empty = JobFold(runs=runs), True
        for record in self._feed.news():
            if self._is_empty:
                self._fold, self._is_empty = fold_for(record, runs=runs), False
            try:
                self._fold.apply(record)
            except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
                raise UsageError(f"A record in the journal is not one of a job: {error}.") from None
        self._fold.began_by(self._feed.zero)
        if not runs:
            self._fold.stop()

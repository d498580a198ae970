"""All jobs, streams and scripts that a server knows, by ids that are unique on it: those of its process, and those in the places it was given."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from msgspec import structs

from firesteel.errors import FiresteelError, UsageError
from firesteel.journal.listing import DAMAGED, RUNNING, STATUSES, UNFINISHED
from firesteel.report.fold import Fold
from firesteel.ui.catalog.following import FileFeed, Following
from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.places import Place
from firesteel.ui.catalog.runs import Handler, OwnRun, OwnRuns, handler_of_stream, with_fold
from firesteel.ui.views.structs import USUAL_ITEMS, JobSummary, Page, UnknownThing, page

LISTED_SECONDS = 0.25
"""A list of journals is made no more often."""
MOST_FOLDS = 64
"""Jobs whose folds are kept, the latest looked at ..."""
MOST_EXECUTIONS = 1 << 22
"""... unless they hold more executions than these, together."""
KINDS = ("job", "stream", "script")
_FIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
LIVE = (RUNNING, UNFINISHED)


@dataclass(frozen=True, slots=True)
class Known:
    """One line of the list. ``run``: the run of this process; None: the journal is in ``place``."""

    summary: JobSummary
    place: Place | None
    run: OwnRun | None = None


class Catalog:
    """May be asked from any thread."""

    def __init__(self, indexes: Sequence[Index] = (), own: OwnRuns | None = None) -> None:
        self._indexes = indexes
        self._own = own or OwnRuns()
        self._lock = threading.Lock()
        self._following: OrderedDict[tuple[str, str], Following] = OrderedDict()
        self._listed: tuple[float, int, list[Known]] = (-1e9, 0, [])
        """When the list was made, of how many runs, and the list."""

    @property
    def problems(self) -> list[str]:
        """Sentences on places that could not be looked at."""
        return [f"'{each.place.name}' cannot be read: {each.problem}." for each in self._indexes if each.problem]

    def all(self) -> list[Known]:
        """The one that began last first."""
        made, count, known = self._listed
        runs = self._own.all()
        if not self._indexes or count != len(runs) or time.monotonic() - made >= LISTED_SECONDS:
            known = self._list(runs)
            self._listed = (time.monotonic(), len(runs), known)
        return known

    def _list(self, runs: Sequence[OwnRun]) -> list[Known]:
        found = [Known(run.summary(), None, run) for run in runs]
        for index in self._indexes:
            found += [Known(line.summary, index.place) for line in index.lines().values()]
        found.sort(key=lambda each: (-each.summary.began, each.summary.journal))
        taken: set[str] = set()
        for number, each in enumerate(found):
            id = each.summary.id
            if id in taken or not _FIT.fullmatch(id):
                file = f"{each.summary.place}\0{each.summary.journal}"
                id = sha256(file.encode("utf-8", "surrogateescape")).hexdigest()[:16]
                found[number] = Known(structs.replace(each.summary, id=id), each.place, each.run)
            taken.add(id)
        return found

    def known(self, id: str) -> Known:
        """Raises UnknownThing."""
        found = next((each for each in self.all() if each.summary.id == id), None)
        if found is None:
            raise UnknownThing("There is no such job.", hint="Its journal may have been removed; see the list of all.")
        return found

    def jobs(
        self,
        *,
        text: str = "",
        status: str = "",
        kind: str = "",
        sort: str = "-began",
        offset: int = 0,
        limit: int = USUAL_ITEMS,
    ) -> Page[JobSummary]:
        """``text``: a part of a name or id; ``status``, ``kind``: empty: any. ``sort``: a field of JobSummary, "-" before it:
        descending; what is not known comes last. Raises UsageError, and FiresteelError where there is nothing since no place can be read."""
        if status and status not in STATUSES:
            raise UsageError(f"No job has the status '{status}'.", hint=f"There are: {', '.join(STATUSES)}.")
        if kind and kind not in KINDS:
            raise UsageError(f"There is no kind '{kind}'.", hint=f"There are: {', '.join(KINDS)}.")
        wanted = text.casefold().strip()
        there = self.all()
        if not there and self.problems:
            raise FiresteelError(" ".join(self.problems))
        chosen = [
            each.summary
            for each in there
            if status in ("", each.summary.status)
            and kind in ("", each.summary.kind)
            and (wanted in each.summary.name.casefold() or wanted in each.summary.id.casefold())
        ]
        return page(_sorted(chosen, sort or "-began"), lambda each: each, offset, limit)

    @contextmanager
    def reading(self, id: str) -> Generator[tuple[JobSummary, Fold]]:
        """A job and all that is known of it, which nobody changes meanwhile. Raises UnknownThing, and UsageError for a journal that
        cannot be read."""
        known = self.known(id)
        try:
            with self._followed(known).reading() as fold:
                is_damaged = known.summary.status == DAMAGED  # the fold knows all else better
                yield known.summary if is_damaged else with_fold(known.summary, fold), fold
        except FileNotFoundError:
            raise UnknownThing(f"The journal of '{id}' is gone.") from None
        except OSError as error:
            raise UsageError(f"The journal of '{id}' cannot be read: {error.strerror or error}.") from None

    def _followed(self, known: Known) -> Following:
        if known.run is not None and (followed := known.run.following()) is not None:
            return followed
        place = known.place or (known.run and known.run.place)
        if place is None:
            raise UnknownThing(f"There is no journal of '{known.summary.id}'.")
        file = known.summary.journal
        key = (place.name, file)
        with self._lock:
            followed = self._following.get(key) or Following(FileFeed(place, file))
            self._following[key] = followed
            self._following.move_to_end(key)
            while len(self._following) > MOST_FOLDS or (
                len(self._following) > 1 and sum(each.size for each in self._following.values()) > MOST_EXECUTIONS
            ):
                self._following.popitem(last=False)
        return followed

    def spark_url(self, id: str) -> str:
        """Spark's own page, of a job or stream of this process; empty: there is none."""
        run = self.known(id).run
        return "" if run is None else run.spark_url

    def stage_url(self, id: str, vertex: int) -> str:
        """Of the stage in which the vertex ran last; empty: there is none."""
        run = self.known(id).run
        return "" if run is None else run.stage_url(vertex)

    def handler(self, id: str) -> Handler | None:
        """Changes it, or None: it has ended, or runs where it cannot be reached."""
        known = self.known(id)
        if known.run is not None:
            return known.run.handler()
        summary = known.summary
        if summary.kind == "stream" and summary.status in LIVE and known.place is not None:
            return handler_of_stream(known.place.path(summary.journal))
        return None


def _sorted(known: list[JobSummary], sort: str) -> list[JobSummary]:
    """By a field. Those for which it is not known come last; equal ones stay in their order."""
    name = sort.removeprefix("-")
    if name not in JobSummary.__struct_fields__:
        fields = ", ".join(JobSummary.__struct_fields__)
        raise UsageError(f"Jobs cannot be sorted by '{name}'.", hint=f"There are: {fields}.")
    if name == "began":
        return known if sort.startswith("-") else known[::-1]
    there = [each for each in known if getattr(each, name) is not None]
    there.sort(key=lambda each: _comparable(getattr(each, name)), reverse=sort.startswith("-"))
    return [*there, *(each for each in known if getattr(each, name) is None)]


def _comparable(value: str | float | int | bool) -> str | float | int:
    return value.casefold() if isinstance(value, str) else value

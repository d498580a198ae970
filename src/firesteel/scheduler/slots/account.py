"""The resources that the jobs of a session hold of its workers, added up from the books of each, and seen by each in its own columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Floats, Ints
from firesteel.scheduler.slots.addresses import Held
from firesteel.scheduler.slots.workers import FIRST_EXTERNAL, UNBOUNDED, Workers


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Of one job's workers: ``rows`` and ``columns`` of the session in which its resources and its workers ``own`` (numbers) lie.
    ``totals``: by resource, of all of them; what is not bounded, or not there, is endless.
    """

    rows: Ints
    columns: Ints
    own: Ints
    totals: Floats

    @property
    def cells(self) -> tuple[Ints, Ints]:
        return self.rows[:, None], self.columns[None, :]


class SlotAccount:
    """Of one session, in columns of its own: resources that any job names, workers that any job was told of. Jobs are numbers."""

    def __init__(self) -> None:
        self._workers: dict[int, Workers] = {}
        """As each job sees them."""
        self._rows: dict[str, int] = {}
        """External resources."""
        self._columns: dict[str, int] = {}
        """Workers."""
        self._places: dict[int, tuple[int, Places]] = {}
        """By job: the version of its workers, and where they lie here."""
        self._books: dict[int, tuple[int, Ints, float]] = {}
        """By job: the state of its books, what it holds, and its share."""
        self._seen: dict[int, object] = {}
        """By job: the states of the others' books that its own columns show."""

    def open(self, job: int, workers: Workers) -> None:
        self._workers[job] = workers

    def close(self, job: int) -> None:
        """All that it held is free."""
        for kept in (self._workers, self._places, self._books, self._seen):
            kept.pop(job, None)
        if not self._workers:
            self._rows, self._columns = {}, {}

    def is_alone(self, job: int) -> bool:
        """And has been, since its columns last showed anything of others."""
        return len(self._workers) == 1 and job not in self._seen

    def refresh(self, job: int) -> None:
        """The job's columns show as free what other jobs leave. Unless nothing has changed O(jobs x resources x workers)."""
        if self.is_alone(job):
            return
        own = self._workers[job]
        seen = (own.version, [(other, workers.changes) for other, workers in self._others(job)])
        if self._seen.get(job) == seen:
            return
        self._seen[job] = seen
        held = self.nothing()
        for other, _ in self._others(job):
            held[self.places(other).cells] += self._held_by(other)
        own.share_with(self.seen_by(job, held))
        for name, number in own.numbers.items() if own.addresses else ():
            addresses = own.addresses.get(number)
            if addresses is not None:
                addresses.share_with(self._addresses_held(job, name))

    def held_by(self, other: int, job: int) -> Ints:
        """Returns the amounts that one job holds, in the columns of another."""
        held = self.nothing()
        held[self.places(other).cells] += self._held_by(other)
        return self.seen_by(job, held)

    def share(self, job: int) -> float:
        """Of the resource of which the job holds most, in parts of all there is."""
        return self._book(job)[2]

    def share_of_slot(self, job: int, need: Ints) -> float:
        places = self.places(job)
        each = need[:, places.own].max(axis=1, initial=0) if need.ndim > 1 else need
        return float((each / places.totals).max(initial=0.0))

    def nothing(self) -> Ints:
        """By resource and worker of the session."""
        for job in self._workers:
            self.places(job)
        return np.zeros((FIRST_EXTERNAL + len(self._rows), len(self._columns)), np.int64)

    def seen_by(self, job: int, amounts: Ints) -> Ints:
        """Returns amounts of the session's columns in those of the job's workers."""
        seen, places = np.zeros_like(self._workers[job].free), self.places(job)
        seen[:, places.own] = amounts[places.cells]
        return seen

    def places(self, job: int) -> Places:
        workers, known = self._workers[job], self._places.get(job)
        if known is None or known[0] != workers.version:
            rows = [*range(FIRST_EXTERNAL), *(self._row(name) for name in workers.dimensions.external)]
            there = workers.numbers
            columns = [self._columns.setdefault(name, len(self._columns)) for name in there]
            own = np.fromiter(there.values(), np.int64, len(there))
            totals = _totals(workers.total[:, own])
            known = (workers.version, Places(np.array(rows), np.array(columns, np.int64), own, totals))
            self._places[job] = known
        return known[1]

    def _others(self, job: int) -> Iterator[tuple[int, Workers]]:
        return ((other, workers) for other, workers in self._workers.items() if other != job)

    def _held_by(self, job: int) -> Ints:
        """By resource and worker, of those that it knows to be there."""
        return self._book(job)[1]

    def _book(self, job: int) -> tuple[int, Ints, float]:
        workers, known = self._workers[job], self._books.get(job)
        if known is None or known[0] != workers.changes:
            places = self.places(job)
            held = workers.held[:, places.own]
            share = float((held.sum(axis=1) / places.totals).max(initial=0.0))
            known = self._books[job] = (workers.changes, held, share)
        return known

    def _addresses_held(self, job: int, name: str) -> Held:
        """Of a worker, by other jobs."""
        found: Held = {}
        for _, workers in self._others(job):
            addresses = workers.addresses.get(workers.number(name))
            for key, held in addresses.held.items() if addresses is not None else ():
                found[key] = found[key] + held if key in found else held
        return found

    def _row(self, external: str) -> int:
        return self._rows.setdefault(external, FIRST_EXTERNAL + len(self._rows))


def _totals(total: Ints) -> Floats:
    whole = np.where((total >= UNBOUNDED).any(axis=1), np.inf, total.astype(np.float64).sum(axis=1))
    return np.where(whole > 0, whole, np.inf)

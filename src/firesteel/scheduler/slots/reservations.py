"""Keeps a large request from starving behind a stream of small ones that always fit into what is free (fairness).

A request that got nothing while others, of whatever job of the session, were given as many slots as there were, has waited for
a whole turn of the cluster. Then room for one slot of it (for a region: all its slots) is kept on the worker that lacks least:
others get there only what leaves that room. It is used, or given up, before anything else is kept for the same asker.

Room is only ever kept beside what is kept already, for all jobs of the session, so it can all be used at the same time: what is
kept waits for slots that are held, and those end; never for something else that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.slots.manager import JobSlots
from firesteel.scheduler.slots.workers import Needs, Workers
from firesteel.scheduler.topology.groups import Mask

Asker = tuple[int, bool]
"""A vertex, and whether its executions joined a round."""


@dataclass(slots=True)
class _Ticket:
    """Of a request that waits. ``since``: slots that all jobs had been given by then; ``turn``: how many more are too many."""

    needs: Needs
    since: int
    turn: int = 0
    asked: bool = True
    kept: dict[int, Ints] = field(default_factory=dict)
    """By worker: the room that is kept there."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Room that began to be kept for a vertex, on these workers, after others had been given ``passed`` slots."""

    vertex: int
    workers: list[int]
    passed: int


class Reservations:
    """Of one job."""

    def __init__(self, workers: Workers, session: JobSlots) -> None:
        self._workers = workers
        self._session = session
        self._tickets: dict[Asker, _Ticket] = {}
        self._all_kept: Ints | None = None
        """By resource and worker; None: to be added up."""
        self.kept_now: list[Kept] = []
        """Of the last round."""

    def begin_round(self) -> None:
        for ticket in self._tickets.values():
            ticket.asked = False

    def asked(self, asker: Asker, needs: Needs, asked: int, granted: int) -> None:
        """``needs``: of one unit of the request."""
        if granted:
            self._session.granted(granted)
            if asker in self._tickets and self._tickets.pop(asker).kept:
                self._tell_kept()
        if granted < asked:
            ticket = self._tickets.setdefault(asker, _Ticket(needs, self._session.num_granted))
            ticket.needs, ticket.asked = needs, True

    def end_round(self, usable: Mask, held: int) -> bool:
        """``held``: slots that all jobs hold. True: there is room that was not open to the job when it asked in this round. It
        was kept for who did not ask, or on a worker that is gone; or it is free and kept only now, before any claim on it.
        """
        gone = [asker for asker, ticket in self._tickets.items() if not ticket.asked]
        kept = [self._tickets.pop(asker).kept for asker in gone]
        opened = any(kept)
        self._all_kept, self.kept_now = None, []
        for (vertex, _), ticket in self._tickets.items():
            ticket.turn = ticket.turn or max(1, held)
            if not all(usable[number] and self._holds(number, need) for number, need in ticket.kept.items()):
                ticket.kept, self._all_kept = {}, None
                opened = True
            is_due = not ticket.kept and self._passed(ticket) >= ticket.turn
            if is_due and self._session.may_keep(ticket.since + ticket.turn):
                for number, need in self._workers.pack(ticket.needs, usable, self._kept_from(vertex)) or ():
                    ticket.kept[number] = ticket.kept.get(number, 0) + need
                if ticket.kept:
                    self._all_kept = None
                    opened |= all((self._workers.free[:, at] >= need).all() for at, need in ticket.kept.items())
                    self.kept_now.append(Kept(vertex, sorted(ticket.kept), self._passed(ticket)))
        self._tell_kept()
        return bool(opened and self._tickets)

    @property
    def next_due(self) -> int | None:
        """Room is to be kept once all jobs have been given so many slots, ever; None: nobody waits without."""
        due = [ticket.since + ticket.turn for ticket in self._tickets.values() if not ticket.kept]
        return min(due, default=None)

    def kept_from(self, vertex: int, free: Ints) -> Ints:
        """Returns the part of ``free`` (by resource and worker) that its own job leaves to this vertex. O(workers x resources), however many
        wait."""
        return free - self._kept_for_others(vertex, free)

    def _kept_from(self, vertex: int) -> Ints:
        """Room that is kept for others than this vertex, of all jobs."""
        others = self._session.kept_by_others()
        return others + self._kept_for_others(vertex, others)

    def _kept_for_others(self, vertex: int, like: Ints) -> Ints:
        """By other vertices of the job."""
        if self._all_kept is None or self._all_kept.shape != like.shape:
            self._all_kept = np.zeros_like(like)
            for ticket in self._tickets.values():
                for number, need in ticket.kept.items():
                    self._all_kept[:, number] += need
        kept = self._all_kept.copy()
        for asker in ((vertex, False), (vertex, True)):
            for number, need in self._tickets[asker].kept.items() if asker in self._tickets else ():
                kept[:, number] -= need
        return kept

    def _passed(self, ticket: _Ticket) -> int:
        return self._session.num_granted - ticket.since

    def _tell_kept(self) -> None:
        self._all_kept = None
        self._session.keep(
            [(number, need) for ticket in self._tickets.values() for number, need in ticket.kept.items()]
        )

    def _holds(self, number: int, need: Ints) -> bool:
        """A worker may come back smaller."""
        return bool((self._workers.total[:, number] >= need).all())

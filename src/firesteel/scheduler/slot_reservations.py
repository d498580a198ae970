"""Keeps a large request from starving behind a stream of small ones that always fit into what is free (fairness).

A request that got nothing while others were given as many slots as there were, has waited for a whole turn of the
cluster. Then room for one slot of it (for a region: all its slots) is kept on the worker that lacks least: others get
there only what leaves that room. It is used, or given up, before anything else is kept for the same asker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from firesteel.scheduler.events import Ints
from firesteel.scheduler.groups import Mask
from firesteel.scheduler.workers import Needs, Workers

Asker = tuple[int, bool]
"""A vertex, and whether its executions joined a round."""


@dataclass(slots=True)
class _Ticket:
    """Of a request that waits. ``passed``: slots that others were given since; ``turn``: how many are too many."""

    needs: Needs
    passed: int = 0
    turn: int = 0
    asked: bool = True
    kept: dict[int, Ints] = field(default_factory=dict)
    """By worker: the room that is kept there."""


class Reservations:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._tickets: dict[Asker, _Ticket] = {}
        self._all_kept: Ints | None = None
        """By resource and worker; None: to be added up."""
        self.on_kept: Callable[[int, list[int], int], None] = lambda _vertex, _workers, _passed: None

    def begin_round(self) -> None:
        for ticket in self._tickets.values():
            ticket.asked = False

    def asked(self, asker: Asker, needs: Needs, asked: int, granted: int) -> None:
        """``needs``: of one unit of the request."""
        if granted:
            if asker in self._tickets and self._tickets.pop(asker).kept:
                self._all_kept = None
            for ticket in self._tickets.values():
                ticket.passed += granted
        if granted < asked:
            ticket = self._tickets.setdefault(asker, _Ticket(needs))
            ticket.needs, ticket.asked = needs, True

    def end_round(self, usable: Mask, held: int) -> bool:
        """``held``: slots that are given out. True: room was kept for who did not ask, and others may have it now."""
        gone = [asker for asker, ticket in self._tickets.items() if not ticket.asked]
        kept = [asker for asker in gone if self._tickets.pop(asker).kept]
        self._all_kept = None
        for (vertex, _), ticket in self._tickets.items():
            ticket.turn = ticket.turn or max(1, held)
            if not all(usable[number] and self._holds(number, need) for number, need in ticket.kept.items()):
                ticket.kept = {}
            if not ticket.kept and ticket.passed >= ticket.turn:
                for number, need in self._workers.pack(ticket.needs, usable, self._kept_from(vertex)) or ():
                    ticket.kept[number] = ticket.kept.get(number, 0) + need
                if ticket.kept:
                    self.on_kept(vertex, sorted(ticket.kept), ticket.passed)
        return bool(kept and self._tickets)

    def kept_from(self, vertex: int, free: Ints) -> Ints:
        """What is free (by resource and worker) for this vertex. O(workers x resources), however many wait."""
        if self._all_kept is None or self._all_kept.shape != free.shape:
            self._all_kept = np.zeros_like(free)
            for ticket in self._tickets.values():
                for number, need in ticket.kept.items():
                    self._all_kept[:, number] += need
        free = free - self._all_kept
        for asker in ((vertex, False), (vertex, True)):
            for number, need in self._tickets[asker].kept.items() if asker in self._tickets else ():
                free[:, number] += need
        return free

    def _kept_from(self, vertex: int) -> list[tuple[int, Ints]]:
        others = [ticket for (other, _), ticket in self._tickets.items() if other != vertex and ticket.kept]
        return [(number, need) for ticket in others for number, need in ticket.kept.items()]

    def _holds(self, number: int, need: Ints) -> bool:
        """A worker may come back smaller."""
        return bool((self._workers.total[:, number] >= need).all())

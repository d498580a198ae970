"""Queue for slots: first come, first served, but for executions that are urgent or keep away from some nodes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints

Mask = NDArray[np.bool_]
LOCALITY_WAIT = 3.0
"""Seconds for which executions insist on the nodes that they prefer (Spark: ``spark.locality.wait``)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """``avoid``: a mark for each node; after ``until`` (virtual seconds) any node will do."""

    avoid: Mask
    until: float


@dataclass(slots=True, eq=False)
class _Waiting:
    """Rows in order; ``gangs``: a number per row, rows of a gang (neighbours) start together. None: each on its own."""

    rows: NDArray[np.int32]
    gangs: Ints | None = None
    wish: Wish | None = None

    def next(self, most: int) -> NDArray[np.int32]:
        """Takes up to ``most`` rows, never a part of a gang."""
        count = min(most, len(self.rows))
        if self.gangs is not None and count < len(self.rows):
            count = int(np.searchsorted(self.gangs, self.gangs[count]))
            taken, self.gangs = self.rows[:count], self.gangs[count:]
        else:
            taken = self.rows[:count]
        self.rows = self.rows[count:]
        return taken

    def drop(self, gone: Mask) -> None:
        kept = ~gone[self.rows]
        self.rows = self.rows[kept]
        self.gangs = None if self.gangs is None else self.gangs[kept]

    def wanted(self, free: Ints, node_of: Ints, alive: Mask, now: float) -> Ints:
        """The free slots that will do, the best first."""
        if self.wish is None:
            return free
        avoided = self.wish.avoid[node_of[free]]
        others_live = bool((alive & ~self.wish.avoid).any())
        if now < self.wish.until and others_live:
            return free[~avoided]
        return np.concatenate((free[~avoided], free[avoided]))


class SlotQueue:
    """First come, first served; a gang that does not fit lets nobody pass. Urgent ones come before all others."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[_Waiting], deque[_Waiting]] = (deque(), deque())

    def __len__(self) -> int:
        return sum(len(entry.rows) for lane in self._lanes for entry in lane)

    def put(self, rows: Ints, wish: Wish | None = None, *, urgent: bool = False) -> None:
        self._lanes[0 if urgent else 1].append(_Waiting(rows.astype(np.int32), None, wish))

    def put_gangs(self, rows: Ints, gangs: Ints) -> None:
        """``gangs`` must be ascending."""
        self._lanes[1].append(_Waiting(rows.astype(np.int32), gangs))

    def take(self, free: Ints, node_of: Ints, alive: Mask, now: float) -> tuple[Ints, Ints]:
        """Returns the executions that run next, and the slot of each. ``free``: slots; ``node_of``: of each slot; ``alive``: nodes."""
        taken: list[NDArray[np.int32]] = []
        slots: list[Ints] = []
        for lane in self._lanes:
            passed: list[_Waiting] = []
            while lane and len(free):
                entry = lane.popleft()
                wanted = entry.wanted(free, node_of, alive, now)
                rows = entry.next(len(wanted))
                given = wanted[: len(rows)]
                taken.append(rows)
                slots.append(given)
                free = free[len(rows) :] if entry.wish is None else free[~np.isin(free, given)]
                if len(entry.rows):
                    passed.append(entry)
                    if entry.gangs is not None:
                        break
            lane.extendleft(reversed(passed))
        if not taken:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(taken).astype(np.int64), np.concatenate(slots)

    def drop(self, rows: Ints, size: int) -> None:
        """Drops executions that do not want a slot any more. ``size``: rows of the table."""
        gone = np.zeros(size, np.bool_)
        gone[rows] = True
        for lane in self._lanes:
            for entry in lane:
                entry.drop(gone)

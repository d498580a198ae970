"""Queue for room on workers with resources of their own, served as the pool says, or as Spark would."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement
from firesteel.simulation.cluster.slot_queue import LOCALITY_WAIT, Mask, Wish
from firesteel.simulation.cluster.workers import Worker, Workers
from firesteel.simulation.violation import check


@dataclass(slots=True, eq=False)
class _Waiting:
    """``rows``: of one deployment, ascending; its first is ``first``. ``insists_until``: so long they run only where their
    slots were cut, as long as that worker is there."""

    rows: Ints
    first: int
    grants: SlotGrants
    wish: Wish | None
    insists_until: float

    def place(self, row: int) -> int:
        return row - self.first

    def worker_of(self, row: int) -> str:
        return self.grants.executors[self.place(row)]


class WorkerQueue:
    """First come, first served, but who finds no room lets others pass; urgent ones come before all others."""

    def __init__(self, workers: Workers, shuffled: Callable[[int], Ints]) -> None:
        """``shuffled``: numbers below n in the order in which Spark offers workers."""
        self._workers = workers
        self._shuffled = shuffled
        self._lanes: tuple[deque[_Waiting], deque[_Waiting]] = (deque(), deque())

    def __len__(self) -> int:
        return sum(len(entry.rows) for lane in self._lanes for entry in lane)

    def put(self, rows: Ints, grants: SlotGrants, wish: Wish | None, now: float, *, urgent: bool = False) -> None:
        """All rows of one deployment."""
        entry = _Waiting(rows, int(rows[0]), grants, wish, now + LOCALITY_WAIT if grants.insists else now)
        self._lanes[0 if urgent else 1].append(entry)

    def demand(self) -> dict[ResourceProfile, int]:
        """Returns the number of waiting executions, by what they need."""
        found: dict[ResourceProfile, int] = {}
        for entry in (entry for lane in self._lanes for entry in lane):
            found[entry.grants.profile] = found.get(entry.grants.profile, 0) + len(entry.rows)
        return found

    def take(self, free: Ints, node_of: Ints, alive: Mask, now: float) -> tuple[Ints, Ints]:
        """Returns the executions that run next, and the slot of each, on the node of the worker that holds them from here on.

        ``free``: slots; ``node_of``: of each slot; ``alive``: nodes.
        """
        started = self._start_all_lanes({node: own.tolist() for node, own in _by_node(free, node_of)}, alive, now)
        return np.array([row for row, _ in started], np.int64), np.array([slot for _, slot in started], np.int64)

    def _start_all_lanes(self, room: dict[int, list[int]], alive: Mask, now: float) -> list[tuple[int, int]]:
        """Rows, each with its slot. ``room``: free slots by node, which are taken from it."""
        all_started: list[tuple[int, int]] = []
        for lane in self._lanes:
            for entry in lane:
                started = self._start(entry, room, alive, now)
                all_started += started
                if started:
                    entry.rows = np.setdiff1d(entry.rows, np.array([row for row, _ in started]))
            _sweep(lane)
        return all_started

    def drop(self, rows: Ints, size: int) -> None:
        """Drops executions that do not want to run any more. ``size``: rows of the table."""
        for lane in self._lanes:
            for entry in lane:
                entry.rows = np.setdiff1d(entry.rows, rows)
            _sweep(lane)

    def take_bound(self, worker: str) -> Ints:
        """Returns the executions that can run only there, where the pool alone says what runs where; they wait no more."""
        if self._workers.enforcement is not SlotEnforcement.POOL:
            return np.empty(0, np.int64)
        entries = [entry for lane in self._lanes for entry in lane]
        bound = [row for entry in entries for row in entry.rows.tolist() if entry.worker_of(row) == worker]
        self.drop(np.array(bound, np.int64), 0)
        return np.array(bound, np.int64)

    # --- who runs where ------------------------------------------------------------------------------------------------

    def _start(self, entry: _Waiting, room: dict[int, list[int]], alive: Mask, now: float) -> list[tuple[int, int]]:
        if self._workers.enforcement is SlotEnforcement.POOL:
            return self._start_all(entry, room)
        bound = now < entry.insists_until
        started: list[tuple[int, int]] = []
        if entry.grants.insists:
            started, free = self._start_as_told(entry, room, bound)
            if not len(free):
                return started
        else:
            free = entry.rows
        return started + self._start_anywhere(entry, free, room, alive, now)

    def _start_all(self, entry: _Waiting, room: dict[int, list[int]]) -> list[tuple[int, int]]:
        """Starts all of them at once where the pool says: it must have seen to it that there is room."""
        started: list[tuple[int, int]] = []
        for row in entry.rows.tolist():
            name = entry.worker_of(row)
            worker = self._workers.by_name.get(name)
            check(worker is not None, f"an execution is deployed on worker '{name}', which is not there")
            assert worker is not None
            if room.get(worker.node):
                self._workers.hold(row, worker, entry.grants, entry.place(row))
                started.append((row, room[worker.node].pop()))
        return started

    def _start_as_told(
        self, entry: _Waiting, room: dict[int, list[int]], bound: bool
    ) -> tuple[list[tuple[int, int]], Ints]:
        """Returns the executions whose worker has room for them, and the others that may run elsewhere by now."""
        started: list[tuple[int, int]] = []
        others: list[int] = []
        for row in entry.rows.tolist():
            worker = self._workers.by_name.get(entry.worker_of(row))
            if worker is not None and room.get(worker.node) and self._workers.fits(worker, entry.grants.profile):
                self._workers.hold(row, worker, entry.grants, entry.place(row))
                started.append((row, room[worker.node].pop()))
            elif worker is None or not bound:
                others.append(row)
        return started, np.array(others, np.int64)

    def _start_anywhere(
        self, entry: _Waiting, rows: Ints, room: dict[int, list[int]], alive: Mask, now: float
    ) -> list[tuple[int, int]]:
        left = deque(rows.tolist())
        started: list[tuple[int, int]] = []
        for worker in self._offers(entry.wish, alive, now):
            fits = min(len(left), self._workers.fits(worker, entry.grants.profile), len(room.get(worker.node, ())))
            for _ in range(fits):
                row = left.popleft()
                self._workers.hold(row, worker, entry.grants, entry.place(row), strayed=entry.grants.insists)
                started.append((row, room[worker.node].pop()))
            if not left:
                break
        return started

    def _offers(self, wish: Wish | None, alive: Mask, now: float) -> list[Worker]:
        """The workers that will do, those that are to be avoided last, or not at all while there is time."""
        workers = list(self._workers)
        offered = [workers[k] for k in self._shuffled(len(workers)).tolist()]
        if wish is None:
            return offered
        others = [worker for worker in offered if not wish.avoid[worker.node]]
        if now < wish.until and bool((alive & ~wish.avoid).any()):
            return others
        return others + [worker for worker in offered if wish.avoid[worker.node]]


def _by_node(free: Ints, node_of: Ints) -> list[tuple[int, Ints]]:
    nodes = node_of[free]
    order = np.argsort(nodes, kind="stable")
    starts = np.flatnonzero(np.diff(nodes[order], prepend=-1))
    return [(int(nodes[order[s]]), part) for s, part in zip(starts, np.split(free[order], starts[1:]), strict=True)]


def _sweep(lane: deque[_Waiting]) -> None:
    """Entries without rows are over."""
    kept = [entry for entry in lane if len(entry.rows)]
    lane.clear()
    lane.extend(kept)

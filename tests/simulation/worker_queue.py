"""The queue for room on workers, with regions: executions that start together. (The shipped simulation has no regions whose groups have resources.)"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tests.simulation.workers import Workers

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement
from firesteel.simulation.cluster import worker_queue
from firesteel.simulation.cluster.slot_queue import LOCALITY_WAIT, Mask
from firesteel.simulation.cluster.workers import Worker
from firesteel.simulation.violation import check


@dataclass(frozen=True, slots=True)
class Member:
    """An execution of a region. Those of one ``slot`` share one; ``place``: in the grants of its vertex."""

    row: int
    grants: SlotGrants
    place: int
    slot: int


@dataclass(slots=True, eq=False)
class _Region:
    """Executions that start together, or not at all."""

    members: list[Member]
    insists_until: float

    @property
    def rows(self) -> Ints:
        return np.array([member.row for member in self.members], np.int64)

    @property
    def slots(self) -> list[Member]:
        """One member of each slot."""
        return list({member.slot: member for member in reversed(self.members)}.values())


class WorkerQueue(worker_queue.WorkerQueue):
    _workers: Workers

    def __init__(self, workers: Workers, shuffled: Callable[[int], Ints]) -> None:
        super().__init__(workers, shuffled)
        self._regions: deque[_Region] = deque()

    def __len__(self) -> int:
        return super().__len__() + sum(len(region.rows) for region in self._regions)

    def put_region(self, members: list[Member], now: float) -> None:
        """In topological order. While it finds no room no other region starts."""
        insists = any(member.grants.insists for member in members)
        self._regions.append(_Region(members, now + LOCALITY_WAIT if insists else now))

    def demand(self) -> dict[ResourceProfile, int]:
        found = super().demand()
        for member in (member for region in self._regions for member in region.slots):
            found[member.grants.profile] = found.get(member.grants.profile, 0) + 1
        return found

    def _start_all_lanes(self, room: dict[int, list[int]], alive: Mask, now: float) -> list[tuple[int, int]]:
        all_started = super()._start_all_lanes(room, alive, now)
        while self._regions:
            started = self._start_region(self._regions[0], room, now)
            if started is None:
                break
            all_started += started
            self._regions.popleft()
        return all_started

    def drop(self, rows: Ints, size: int) -> None:
        super().drop(rows, size)
        gone = set(rows.tolist())
        for region in self._regions:
            region.members = [member for member in region.members if member.row not in gone]
        self._regions = deque(region for region in self._regions if region.members)

    def take_bound(self, worker: str) -> Ints:
        bound = super().take_bound(worker).tolist()
        if self._workers.enforcement is SlotEnforcement.POOL:
            for region in self._regions:
                if any(member.grants.executors[member.place] == worker for member in region.members):
                    bound += region.rows.tolist()
            self.drop(np.array(bound, np.int64), 0)
        return np.array(bound, np.int64)

    def _start_region(self, region: _Region, room: dict[int, list[int]], now: float) -> list[tuple[int, int]] | None:
        """None: there is no room for all of it."""
        first_of: dict[int, int] = {}
        started: list[tuple[int, int]] = []
        for member in region.members:
            worker = self._worker_for(member, first_of.get(member.slot), now < region.insists_until)
            if worker is None or not room.get(worker.node):
                for row, slot in started:
                    room[self._workers.node_of(row)].append(slot)
                self._workers.release(np.array([row for row, _ in started], np.int64))
                return None
            if member.slot in first_of:
                self._workers.share(member.row, first_of[member.slot])
            else:
                strayed = member.grants.insists and worker.name != member.grants.executors[member.place]
                self._workers.hold(member.row, worker, member.grants, member.place, strayed=strayed)
                first_of[member.slot] = member.row
            started.append((member.row, room[worker.node].pop()))
        return started

    def _worker_for(self, member: Member, shared: int | None, bound: bool) -> Worker | None:
        """``shared``: an execution that has its slot already. None: there is no room now."""
        told = self._workers.by_name.get(member.grants.executors[member.place])
        pool = self._workers.enforcement is SlotEnforcement.POOL
        if shared is not None:
            own = self._workers.by_name[self._workers.name_of(shared)]
            check(not pool or own is told, f"executions that share a slot on {own.name} are sent to different workers")
            return own
        profile = member.grants.profile
        if pool:
            check(told is not None, "a region is deployed on a worker that is not there")
        if told is not None and (pool or (member.grants.insists and (bound or self._workers.fits(told, profile)))):
            return told if pool or self._workers.fits(told, profile) else None
        workers = list(self._workers)
        offered = (workers[k] for k in self._shuffled(len(workers)).tolist())
        return next((worker for worker in offered if self._workers.fits(worker, profile)), None)

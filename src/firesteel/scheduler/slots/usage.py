"""The slots of each group that were asked for and held over time, for the journal: exact integrals, few records.

A slot is held from the launch of what is in it to its end, as the stamps of the executions say.
A fold of the journal cannot replace this: no record of an execution shows requests or shared slots.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.decisions import RoomKept
from firesteel.scheduler.kernel.records import SlotUsage
from firesteel.scheduler.kernel.states import IS_TERMINAL, ExecutionState
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.reservations import Kept
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.scheduler.topology.executions import Rows

RECORD_SECONDS = 0.5
"""A group's use is written down at most so often ..."""
RECORD_SHARE = 0.01
"""... and not before this part of the job's time has passed again: a long job has few more records than a short one."""
_ENDS = np.flatnonzero(IS_TERMINAL).tolist()


@dataclass(slots=True)
class _Told:
    """Of a group: what the last record said."""

    at: float = -np.inf
    numbers: tuple[int, int] = (0, 0)
    profile: ResourceProfile | None = None


@dataclass(slots=True)
class _Wait:
    """Of a group. ``since``: somebody waits since then; None: nobody does. ``launched``: latest launch this event told of."""

    seconds: float = 0.0
    since: float | None = None
    launched: float = -np.inf

    def look(self, now: float, *, anybody: bool) -> None:
        if self.since is None:
            self.since = now if anybody else None
        elif not anybody:  # who was launched last may be told of late; who was cancelled waited until now
            until = now if self.launched == -np.inf else min(now, self.launched)
            self.seconds += max(0.0, until - self.since)
            self.since = None
        self.launched = -np.inf

    def until(self, now: float) -> float:
        return self.seconds + (0.0 if self.since is None else now - self.since)


class SlotUsageRecorder(Policy):
    def __init__(self, job: Job, pool: SlotPool) -> None:
        self._pool = pool
        pool.usage = self
        self._table = job.executions
        self._recorder = job.recorder
        job.metrics.job.gauge("numSlotsAsked", lambda: self.asked)
        job.metrics.job.gauge("numSlotsHeld", lambda: self.held)
        self._done, self._rate, self._since = np.zeros((3, len(pool.groups), 2))
        """By group, of cores and GiB: used by what is over; held now; that, each times when it was launched."""
        self._told = [_Told() for _ in pool.groups]
        self._waits = [_Wait() for _ in pool.groups]
        self._launched_at: NDArray[np.float64] = np.empty(0)
        """By slot: the launch as it was told; nan: it was not."""
        self._costs: NDArray[np.float64] = np.empty((0, 2))
        """By slot: cores and GiB."""
        self._kept_for = set[int]()
        """Vertices of which it is on record that room is kept for them: from then on it happens again whenever it has to."""

    def event_handled(self) -> None:
        """O(groups + requests that are open)."""
        now, unmet = self._recorder.at, self._unmet()
        for group, told in enumerate(self._told):
            self._waits[group].look(now, anybody=bool(unmet[group] or self._pool.num_pending[group]))
            if now < told.at + max(RECORD_SECONDS, RECORD_SHARE * now):
                continue
            numbers = self._numbers(group, unmet)
            if numbers != told.numbers:
                self._record(group, numbers)

    def job_ends(self) -> None:
        nobody_asks = Counter[int]()
        for group, told in enumerate(self._told):
            self._waits[group].look(self._recorder.at, anybody=False)
            numbers = self._numbers(group, nobody_asks)
            if told.profile is not None or numbers != told.numbers:
                self._record(group, numbers)

    def room_kept(self, kept: Kept) -> None:
        """Once for each vertex."""
        vertex, passed, pool = kept.vertex, kept.passed, self._pool
        if vertex in self._kept_for:
            return
        self._kept_for.add(vertex)
        names = [pool.workers.names[number] for number in kept.workers]
        self._recorder.decision(
            "slot reservation",
            vertex=vertex,
            name=pool.step_names[vertex],
            inputs=RoomKept(group=pool.groups[pool.group_of[vertex]], workers=names, passed=passed),
            rule="fairness",
            result=names,
        )

    @property
    def asked(self) -> int:
        """Executions of all groups that wait: for the pool, or with Spark for their start."""
        return sum(self._pool.unmet.values()) + int(self._pool.num_pending.sum())

    @property
    def held(self) -> int:
        """Slots of all groups in which Spark has started something that is not over."""
        return int((self._pool.num_slots - self._pool.num_pending).sum())

    def totals(self, group: int) -> tuple[float, float]:
        """Core-seconds and GiB-seconds up to now."""
        now = self._recorder.at
        cores, gib = np.maximum(0.0, self._done + self._rate * now - self._since)[group].tolist()
        return cores, gib

    def _unmet(self) -> Counter[int]:
        counts = Counter[int]()
        for request, count in self._pool.unmet.items():
            counts[request.group] += count
        return counts

    def _numbers(self, group: int, unmet: Counter[int]) -> tuple[int, int]:
        """Asked for, and held."""
        pending = int(self._pool.num_pending[group])
        return unmet[group] + pending, int(self._pool.num_slots[group]) - pending

    def _record(self, group: int, numbers: tuple[int, int]) -> None:
        told, profile = self._told[group], self._pool.profiles[group]
        cores, gib = self.totals(group)
        self._recorder.record(
            SlotUsage(
                at=self._recorder.at,
                event=self._recorder.event,
                group=self._pool.groups[group],
                asked=numbers[0],
                held=numbers[1],
                profile=profile.numbers() if profile != told.profile else {},
                core_seconds=round(cores, 4),
                gib_seconds=round(gib, 4),
                waited_seconds=round(self._waits[group].until(self._recorder.at), 4),
            )
        )
        told.at, told.numbers, told.profile = self._recorder.at, numbers, profile

    def begun(self, slots: Rows) -> None:
        """Of shared slots the launch of the execution that names them stands for all."""
        self._reserve(int(slots.max()) + 1)
        times = self._table.times(ExecutionState.DEPLOYING, slots)
        self._launched_at[slots] = np.where(np.isnan(times), self._recorder.at, times)
        self._latest(slots, self._launched_at[slots])
        self._costs[slots] = self._pool.costs(slots)
        self._hold(slots, 1)

    def freed(self, slots: Rows, last: Rows) -> None:
        """``last``: of each slot an execution that was in it to the end. Where none was launched nothing was held."""
        self._reserve(int(slots.max()) + 1)
        seen = ~np.isnan(self._launched_at[slots])
        self._hold(slots[seen], -1)
        self._costs[slots[~seen]] = self._pool.costs(slots[~seen])
        begun, ended = self._table.times(ExecutionState.DEPLOYING, slots), np.full(len(slots), self._recorder.at)
        for state in _ENDS:
            there = self._table.state[last] == state
            ended[there] = self._table.times(state, last[there])
        spans = np.nan_to_num(np.maximum(ended - begun, 0.0))
        np.add.at(self._done, self._pool.groups_of(slots), self._costs[slots] * spans[:, None])
        self._latest(slots[~seen], begun[~seen])
        self._launched_at[slots] = np.nan

    def one_freed(self, slot: int, last: int) -> None:
        """:meth:`freed` in scalars."""
        group, known = self._pool.group_of_slot(slot), slot < len(self._launched_at)
        launched = self._launched_at.item(slot) if known else np.nan
        if np.isnan(launched):
            cost = self._pool.cost_of(slot)
        else:
            cost = self._costs[slot]
            self._rate[group] -= cost
            self._since[group] -= cost * launched
            self._launched_at[slot] = np.nan
        begun, ended = self._table.stamps[ExecutionState.DEPLOYING].item(slot), self._recorder.at
        state = self._table.state.item(last)
        if state in _ENDS:
            ended = self._table.stamps[state].item(last)
        if not np.isnan(begun):
            self._done[group] += cost * max(ended - begun, 0.0)
            if np.isnan(launched):
                self._waits[group].launched = max(self._waits[group].launched, begun)

    def _latest(self, slots: Rows, launched: NDArray[np.float64]) -> None:
        """nan: never launched."""
        groups = self._pool.groups_of(slots)
        for group in set(groups.tolist()):
            own = launched[groups == group]
            self._waits[group].launched = max(self._waits[group].launched, np.nanmax(own, initial=-np.inf))

    def _hold(self, slots: Rows, sign: int) -> None:
        groups = self._pool.groups_of(slots)
        np.add.at(self._rate, groups, sign * self._costs[slots])
        np.add.at(self._since, groups, sign * self._costs[slots] * self._launched_at[slots, None])

    def _reserve(self, size: int) -> None:
        if size > len(self._launched_at):
            more = max(size, self._table.size) - len(self._launched_at)
            self._launched_at = np.concatenate((self._launched_at, np.full(more, np.nan)))
            self._costs = np.concatenate((self._costs, np.zeros((more, 2))))

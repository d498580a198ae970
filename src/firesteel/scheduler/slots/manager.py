"""SlotManager (FLIP-56): one account of a cluster's workers for all jobs of a session, and who goes first where two want the same.

Flink's ResourceManager keeps one account for the cluster, and jobs declare what they require. Here each job's slot pool books its
own slots, in columns that show the workers as this job sees them (how much memory they have for slots is an option of the job).
The manager adds these columns up: what other jobs hold is not free, so nothing is promised twice, and nothing is kept twice. What
is booked is what pools admit; what Spark keeps apart by itself (executors made for a profile) does not come here.

**Fair** (max-min). A job's share is that of the resource of which it holds most. Of K jobs that hold or wait, one below 1/K goes
before those above it, the lowest share first. What such a job could take now is its *claim*, up to 1/K: nobody else gets
that while it is told to ask again. Beyond 1/K a job gets what no claim is on, so nothing is left idle for fairness' sake. Slots are
never taken away: shares even out as slots become free. A request that is too large to find room piece by piece is served by
what is kept for it (``slot_reservations``), and what is kept binds all jobs.

**No deadlock**, of any mix of groups and jobs. (1) Who holds a slot runs, or is about to: its inputs are finished results, and a region
gets all its slots in one step or none; so nobody holds a slot while waiting for another, and what is held ends. (2) A claim
belongs to a job that was told of it and answers with its next event, by using it or not; claims are ordered by (share, since when the job
waits), so no two wait for each other. (3) What is kept is kept beside all else that is kept, so every reservation comes true
when slots that are held have ended, whatever the others do.

One thread at a time may be in here or in the slot pool of a job: whoever runs several jobs keeps a lock around ``handle``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Floats, Ints
from firesteel.scheduler.slots.workers import CORES, FIRST_EXTERNAL, UNBOUNDED, Held, Needs, Workers
from firesteel.scheduler.topology.groups import Mask

LeftToSpark = Callable[[], Sequence[tuple[Ints, int]]]
"""Gives needs, and how many slots of each Spark may start anywhere."""
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """A requirement that waits (Flink: ResourceRequirement): ``units`` of so many slots at once. ``within``: by need, the workers that may give
    them."""

    needs: Needs
    within: Sequence[Mask]
    units: int

    @property
    def is_region(self) -> bool:
        return sum(count for _, count in self.needs) > 1


class JobSlots:
    """One job's side: what its slot pool tells the manager, and asks."""

    def __init__(
        self,
        manager: SlotManager,
        number: int,
        name: str,
        workers: Workers,
        tell: Callable[[], None],
        *,
        left_to_spark: LeftToSpark,
    ) -> None:
        """``tell``: the job may ask again, in an event of its own."""
        self.name = name
        self.number = number
        self.workers = workers
        self._tell = tell
        self.requirements: Sequence[Requirement] = ()
        self.since = 0
        """When it began to wait or last got a slot, among all jobs."""
        self.kept: list[tuple[int, Ints]] = []
        """Room kept for its requests: of a worker, so much."""
        self.next_due: int | None = None
        """It is to ask again once all jobs have been granted so many slots."""
        self.left_to_spark = left_to_spark
        self.admits = False
        """Memory can run out before cores on the workers, for what this job asks for."""
        self.rooms: list[Ints] = []
        """By requirement and need: slots that were open to it, by worker, when it last asked and did not take them."""
        self.kept_seen = self.granted_seen = 0
        """The values of ``SlotManager``'s ``kept_changes`` and ``num_granted`` when it last asked."""
        self.gave_way = False
        """Room was to be kept for it, but first for another job."""
        self.is_told = False
        self._manager = manager

    @property
    def is_alone(self) -> bool:
        return self._manager.num_jobs == 1

    @property
    def others_admit(self) -> bool:
        """Returns whether another job's memory has to be counted, so that everybody's has."""
        return any(other.admits for other in self._manager.others_of(self))

    @property
    def num_granted(self) -> int:
        """Slots that were ever granted, to all jobs."""
        return self._manager.num_granted

    @property
    def num_held_by_others(self) -> int:
        """Slots."""
        return sum(int(other.workers.booked.sum()) for other in self._manager.others_of(self))

    def allowances(self, need: Ints, most: int, *, whole: bool = False) -> list[tuple[int, Ints | None]]:
        """So many slots it may have from what is free less so much (by resource and worker; None: all that is free), then so
        many more from what is free less more. ``whole``: all of them or none."""
        return self._manager.allowances(self, need, most, whole)

    def granted(self, count: int) -> None:
        self.since = self._manager.granted(count)

    def tell(self) -> None:
        """It may ask again: told once, until it has."""
        self.is_told = True
        self._tell()

    def count_memory(self, admits: bool) -> None:
        """``admits``: memory can run out before cores on the workers, for what this job asks for."""
        self.admits = admits

    def begin_round(self) -> None:
        """It is going to ask for all that it waits for: what other jobs leave is free, and it gave way to nobody yet."""
        self._manager.account.refresh(self.number)
        self.gave_way = False

    def may_keep(self, due: int) -> bool:
        """Returns whether room may be kept for a request that was due after so many grants: first come, first served."""
        self.gave_way |= not self._manager.is_first(self, due)
        return not self.gave_way

    def keep(self, kept: list[tuple[int, Ints]]) -> None:
        """This room is kept from all jobs from now on."""
        if [(n, need.tolist()) for n, need in kept] != [(n, need.tolist()) for n, need in self.kept]:
            self._manager.kept_changed()
        self.kept = kept

    def kept_by_others(self) -> Ints:
        """Room that is kept for other jobs, by resource and worker."""
        return self._manager.kept_by_others(self)

    def declare(self, requirements: Sequence[Requirement], next_due: int | None) -> None:
        """Its round of asking is over: this is what it waits for."""
        manager = self._manager
        if requirements and not self.requirements:
            self.since = manager.next_turn()
        self.requirements, self.next_due, self.is_told = requirements, next_due, False
        self.kept_seen, self.granted_seen = manager.kept_changes, manager.num_granted
        self.rooms = [] if self.is_alone else manager.rooms(self)

    def settle(self) -> None:
        """It has dealt with its event: others that could have more now are told to ask."""
        self._manager.settle(self)

    def held_by_others(self, at: Mask) -> list[tuple[str, Ints]]:
        """Jobs that hold something of these workers: the name, and how much by resource."""
        account = self._manager.account
        held = ((other.name, account.held_by(other.number, self.number)) for other in self._manager.others_of(self))
        return [(name, own[:, at].sum(axis=1)) for name, own in held if own[:, at].any()]

    def slots_of_others(self) -> Mapping[str, int]:
        """Slots that other jobs hold, by worker."""
        found: dict[str, int] = {}
        for other in self._manager.others_of(self):
            for name, number in other.workers.numbers.items():
                found[name] = found.get(name, 0) + int(other.workers.booked[number])
        return found

    def close(self) -> None:
        """The job is over, however it ended; what it held is free. Twice is as good as once."""
        self._manager.close(self)


JoinSession = Callable[[str, Workers, LeftToSpark], JobSlots]
"""Registers a job, by its name, its view of the workers and what it leaves to Spark, with the slot manager of its session."""


class SlotManager:
    """Of one session."""

    def __init__(self) -> None:
        self.num_granted = 0
        self.kept_changes = 0
        self.account = SlotAccount()
        self._jobs: dict[int, JobSlots] = {}
        self._came = 0
        self._waits = 0

    def register(
        self, name: str, workers: Workers, tell: Callable[[], None], left_to_spark: LeftToSpark = tuple
    ) -> JobSlots:
        self._came += 1
        job = self._jobs[self._came] = JobSlots(self, self._came, name, workers, tell, left_to_spark=left_to_spark)
        self.account.open(job.number, workers)
        return job

    def close(self, job: JobSlots) -> None:
        if self._jobs.pop(job.number, None) is None:
            return
        self.account.close(job.number)
        if job.kept:
            self.kept_changed()
        for other in self._jobs.values():
            if job.admits and not other.is_told:  # who left all to Spark before may do so again
                other.tell()
        self.settle(job)

    @property
    def num_jobs(self) -> int:
        return len(self._jobs)

    def others_of(self, job: JobSlots) -> Iterator[JobSlots]:
        return (other for other in self._jobs.values() if other is not job)

    # --- who goes first ----------------------------------------------------------------------------------------

    def allowances(self, job: JobSlots, need: Ints, most: int, whole: bool) -> list[tuple[int, Ints | None]]:
        if self.account.is_alone(job.number):
            return [(most, None)]
        self.account.refresh(job.number)
        fair, share = self._fair_share(job), self.account.share(job.number)
        if not any(other.requirements for other in self.others_of(job)):
            return [(most, self._open_to(job, None))]
        if share >= fair - _EPSILON:
            return [(most, self._open_to(job, fair))]
        before = self._open_to(job, fair, (share, job.since if job.requirements else self._waits))
        if whole:
            return [(most, before)]
        up_to = min(most, self._slots_up_to(job, need, fair - share))
        return [(up_to, before), (most - up_to, self._open_to(job, fair))]

    def _open_to(self, job: JobSlots, fair: float | None, before: tuple[float, int] | None = None) -> Ints | None:
        """Returns the part of the free room that is not open to the job (in its own columns): what is kept for others, what may yet be taken by what was
        left to Spark, and claims up to ``fair`` (None: of nobody), of those who come ``before``. None: all is open to it."""
        taken = self._kept_but_for(job)
        for other in self.others_of(job):
            self._add_left_to_spark(other, taken)
        if fair is not None:
            claims = self.account.nothing()
            waiting = [(self.account.share(o.number), o.since, o) for o in self.others_of(job) if o.requirements]
            for share, since, other in sorted(waiting, key=lambda one: one[:2]):
                if share < fair - _EPSILON and (before is None or (share, since) < before):
                    self._add_claim(other, claims, fair - share)
            taken += claims
        return self.account.seen_by(job.number, taken) if taken.any() else None

    def _add_claim(self, job: JobSlots, claims: Ints, share: float) -> None:
        """Adds to ``claims`` what the job could take now beside these, as first fit gives it, up to ``share`` more; one slot at least. Never what is
        kept for another. Regions have no claims, but room is kept for them."""
        self.account.refresh(job.number)
        workers, claim = job.workers, np.zeros_like(job.workers.free)
        free = workers.free - self.account.seen_by(job.number, claims + self._kept_but_for(job))
        left = share
        for requirement in job.requirements:
            if requirement.is_region or (claim.any() and left <= _EPSILON):
                continue
            (need, _), (within,) = requirement.needs[0], requirement.within
            most = self._slots_up_to(job, need, left) if left > _EPSILON else 0
            counts = first_fit(workers.room(need, within, free), min(requirement.units, most))
            each = (need if need.ndim > 1 else need[:, None]) * counts
            claim += each
            free -= each
            left -= int(counts.sum()) * self.account.share_of_slot(job.number, need)
        places = self.account.places(job.number)
        claims[places.cells] += claim[:, places.own]

    def _fair_share(self, job: JobSlots) -> float:
        return 1 / (
            1 + sum(bool(other.requirements) or bool(other.workers.booked.any()) for other in self.others_of(job))
        )

    def _slots_up_to(self, job: JobSlots, need: Ints, share: float) -> int:
        return max(1, int(share / max(self.account.share_of_slot(job.number, need), _EPSILON) + _EPSILON))

    # --- what is kept ------------------------------------------------------------------------------------------

    def kept_by_others(self, job: JobSlots) -> Ints:
        return (
            self.account.seen_by(job.number, self._kept_but_for(job))
            if self.num_jobs > 1
            else np.zeros_like(job.workers.free)
        )

    def _kept_but_for(self, job: JobSlots) -> Ints:
        taken = self.account.nothing()
        for other in self.others_of(job):
            if other.kept:
                kept, places = np.zeros_like(other.workers.free), self.account.places(other.number)
                for number, need in other.kept:
                    kept[:, number] += need
                taken[places.cells] += kept[:, places.own]
        return taken

    def _add_left_to_spark(self, job: JobSlots, taken: Ints) -> None:
        """Slots that Spark may start on any free core: their memory is spoken for on every worker that has one."""
        places = self.account.places(job.number)
        for need, count in job.left_to_spark():
            each = need[:, places.own] if need.ndim > 1 else need[:, None]
            cores = np.maximum(job.workers.free[CORES, places.own], 0)
            slots = np.minimum(cores // np.maximum(each[CORES], 1), count)
            memory = each * slots
            memory[CORES] = memory[FIRST_EXTERNAL:] = 0
            taken[places.cells] += memory

    def is_first(self, job: JobSlots, due: int) -> bool:
        """No other job is to have room kept before it that has not found it impossible as things are."""
        return not any(
            other.next_due is not None and other.next_due < due and self._may_keep(other)
            for other in self.others_of(job)
        )

    def _may_keep(self, job: JobSlots) -> bool:
        """Its turn to have room kept has come, and it was not tried in vain."""
        if job.next_due is None or self.num_granted < job.next_due:
            return False
        return job.gave_way or job.granted_seen < job.next_due or job.kept_seen != self.kept_changes

    # --- who waits, and who is told ----------------------------------------------------------------------------

    def next_turn(self) -> int:
        """A number, among all jobs, for one that begins to wait now or has just got a slot: the least of them goes first."""
        self._waits += 1
        return self._waits

    def granted(self, count: int) -> int:
        """Returns the turn of the job that got them."""
        self.num_granted += count
        return self.next_turn()

    def kept_changed(self) -> None:
        """Other room is kept than before."""
        self.kept_changes += 1

    def settle(self, job: JobSlots) -> None:
        for other in list(self.others_of(job)):
            if other.requirements and not other.is_told and self._could_have_more(other):
                other.tell()

    def _could_have_more(self, job: JobSlots) -> bool:
        """Than was open to it when it last asked; or it is its turn to have room kept."""
        if self._may_keep(job) and self.is_first(job, job.next_due or 0):
            return True
        rooms = self.rooms(job)
        return len(rooms) != len(job.rooms) or any(
            len(now) != len(then) or bool((now > then).any()) for now, then in zip(rooms, job.rooms, strict=True)
        )

    def rooms(self, job: JobSlots) -> list[Ints]:
        """Slots that are open to the job, by worker, of each need of each of its requirements."""
        self.account.refresh(job.number)
        fair, share = self._fair_share(job), self.account.share(job.number)
        before = (share, job.since) if share < fair - _EPSILON else None
        taken = self._open_to(job, fair, before)
        free = job.workers.free if taken is None else job.workers.free - taken
        return [
            np.minimum(job.workers.room(need, within, free), requirement.units * count)
            for requirement in job.requirements
            for (need, count), within in zip(requirement.needs, requirement.within, strict=True)
        ]


def join_nobody(name: str, workers: Workers, left_to_spark: LeftToSpark) -> JobSlots:
    """In a session of its own."""
    return SlotManager().register(name, workers, lambda: None, left_to_spark)


def first_fit(room: Ints, most: int) -> Ints:
    """Returns the number of slots that each worker gives, in their order, of at most ``most`` in all."""
    room = np.minimum(room, most)
    before = np.cumsum(room)
    return np.minimum(room, np.maximum(0, most - (before - room)))


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

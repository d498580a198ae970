"""SlotManager (FLIP-56): one account of a cluster's workers for all jobs of a session, and who goes first where two want the same.

Flink's ResourceManager keeps one account for the cluster, and jobs declare what they require. Here each job's slot pool books its
own slots, in columns that show the workers as this job sees them (how much memory they have for slots is an option of the job).
The manager adds these columns up: what other jobs hold is not free, so nothing is promised twice, and nothing is kept twice. What
is booked is what pools admit; what Spark keeps apart by itself (executors made for a profile) does not come here.

**In turn.** Jobs that wait take turns: who has waited longest since it last got a slot is first. A slot that such a job could take now is
its *claim*: no job behind it gets that while it is told to ask again, and no job gets a second slot on which any claim is. So a
job that waits gets a slot before any other job gets two more. A slot without a claim goes to the first job that asks. Slots are never taken away. A
request that is too large to find room piece by piece is served by what is kept for it (``slot_reservations``), and what is kept
binds all jobs.

**No deadlock** comes of any mix of groups and jobs. (1) An execution that holds a slot runs, or is about to start: its inputs are finished. A region
gets all its slots in one step or none. So no execution holds a slot while it waits for another, and every slot is freed. (2) A job with a
claim was asked, and uses the claim in its next event or gives it up. Claims are ordered by turn, so no two jobs wait for each other.
(3) Reservations never overlap. So each comes true once the slots that are held are free, whatever the other jobs do.

One thread at a time may be in here or in the slot pool of a job: whoever runs several jobs keeps a lock around ``handle``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.slots.workers import CORES, FIRST_EXTERNAL, Held, Needs, Workers
from firesteel.scheduler.topology.groups import Mask

LeftToSpark = Callable[[], Sequence[tuple[Ints, int]]]
"""Gives needs, and how many slots of each Spark may start anywhere."""


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


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Of one job's workers, as of a ``version``: ``rows`` and ``columns`` of the session in which its resources and its workers ``own`` (numbers) lie."""

    version: int
    rows: Ints
    columns: Ints
    own: Ints

    @property
    def cells(self) -> tuple[Ints, Ints]:
        return self.rows[:, None], self.columns[None, :]


class JobSlots:
    """One job's side: what its slot pool tells the session, and asks."""

    def __init__(
        self,
        session: SlotManager,
        name: str,
        workers: Workers,
        tell: Callable[[], None],
        *,
        left_to_spark: LeftToSpark,
    ) -> None:
        """``tell``: the job may ask again, in an event of its own."""
        self.name = name
        self.workers = workers
        self._tell = tell
        self.requirements: Sequence[Requirement] = ()
        self.since = 0
        """Its turn, among all jobs: when it began to wait or last got a slot. The least is first."""
        self.kept: list[tuple[int, Ints]] = []
        """Room kept for its requests: of a worker, so much."""
        self.next_due: int | None = None
        """It is to ask again once all jobs have been granted so many slots."""
        self.left_to_spark = left_to_spark
        self.admits = False
        """Memory can run out before cores on the workers, for what this job asks for."""
        self._rooms: list[Ints] = []
        """By requirement and need: slots that were open to it, by worker, when it last asked and did not take them."""
        self._kept_seen = self._granted_seen = 0
        """The values of ``SlotManager``'s ``kept_changes`` and ``num_granted`` when it last asked."""
        self._gave_way = False
        """Room was to be kept for it, but first for another job."""
        self._is_told = False
        self._session = session
        self._known_places: _Places | None = None
        self._seen: object = None
        """The states of the others' books that its own columns show; None: never any."""

    @property
    def _others(self) -> list[JobSlots]:
        return [other for other in self._session.jobs if other is not self]

    @property
    def is_alone(self) -> bool:
        return len(self._session.jobs) == 1

    @property
    def others_admit(self) -> bool:
        """Returns whether another job's memory has to be counted, so that everybody's has."""
        return any(other.admits for other in self._others)

    @property
    def num_granted(self) -> int:
        """Slots that were ever granted, to all jobs."""
        return self._session.num_granted

    @property
    def num_held_by_others(self) -> int:
        """Slots."""
        return sum(int(other.workers.booked.sum()) for other in self._others)

    def begin_round(self) -> None:
        """It is going to ask for all that it waits for: what other jobs leave is free, and it gave way to nobody yet."""
        self._refresh()
        self._gave_way = False

    def declare(self, requirements: Sequence[Requirement], next_due: int | None) -> None:
        """Its round of asking is over: this is what it waits for."""
        session = self._session
        if requirements and not self.requirements:
            self.took_turn()
        self.requirements, self.next_due, self._is_told = requirements, next_due, False
        self._kept_seen, self._granted_seen = session.kept_changes, session.num_granted
        self._rooms = [] if self.is_alone else self._rooms_now()

    def held_by_others(self, at: Mask) -> list[tuple[str, Ints]]:
        """Jobs that hold something of these workers: the name, and how much by resource."""
        held = ((other.name, self._seen_here(self._held_of([other]))) for other in self._others)
        return [(name, own[:, at].sum(axis=1)) for name, own in held if own[:, at].any()]

    def slots_of_others(self) -> Mapping[str, int]:
        """Slots that other jobs hold, by worker."""
        found: dict[str, int] = {}
        for other in self._others:
            for name, number in other.workers.numbers.items():
                found[name] = found.get(name, 0) + int(other.workers.booked[number])
        return found

    def close(self) -> None:
        """The job is over, however it ended; what it held is free. Twice is as good as once."""
        if self not in self._session.jobs:
            return
        self._session.jobs.remove(self)
        self._session.kept_changes += bool(self.kept)
        for other in self._others:
            if self.admits and not other._is_told:  # who left all to Spark before may do so again
                other._may_ask()
        self.settle()

    # --- who goes first ----------------------------------------------------------------------------------------

    def allowances(self, most: int, *, whole: bool = False) -> list[tuple[int, Ints | None]]:
        """So many slots it may have from what is free less so much (by resource and worker; None: all that is free), then so
        many more from what is free less more. ``whole``: all of them or none."""
        if self.is_alone and self._seen is None:
            return [(most, None)]
        self._refresh()
        first = self._not_open(self.since if self.requirements else self._session.turns + 1)
        return [(most, first)] if whole else [(1, first), (most - 1, self._not_open())]

    def _not_open(self, turn: int | None = None) -> Ints | None:
        """Returns the part of the free room that is not open to the job (in its own columns): what is kept for others, what may yet be taken by what was
        left to Spark, and the claims of those before this turn (None: of all). None: all is open to it."""
        taken, claims = self._kept_by_others(), self._nothing()
        for other in self._others:
            other._add_left_to_spark(taken)
        for other in sorted(self._others, key=lambda one: one.since):
            if other.requirements and (turn is None or other.since < turn):
                other._add_claim(claims)
        taken += claims
        return self._seen_here(taken) if taken.any() else None

    def _add_claim(self, claims: Ints) -> None:
        """Adds to ``claims`` a slot that the job could take now beside these, as first fit gives it. Never what is kept for another. Regions have no
        claims, but room is kept for them."""
        self._refresh()
        places = self._places
        free = self.workers.free - self._seen_here(claims + self._kept_by_others())
        for requirement in self.requirements:
            (need, _), within = requirement.needs[0], requirement.within[0]
            counts = first_fit(self.workers.room(need, within, free), 0 if requirement.is_region else 1)
            if counts.any():
                claims[places.cells] += ((need if need.ndim > 1 else need[:, None]) * counts)[:, places.own]
                return

    def _add_left_to_spark(self, taken: Ints) -> None:
        """Slots that Spark may start on any free core: their memory is spoken for on every worker that has one."""
        places = self._places
        for need, count in self.left_to_spark():
            each = need[:, places.own] if need.ndim > 1 else need[:, None]
            cores = np.maximum(self.workers.free[CORES, places.own], 0)
            memory = each * np.minimum(cores // np.maximum(each[CORES], 1), count)
            memory[CORES] = memory[FIRST_EXTERNAL:] = 0
            taken[places.cells] += memory

    def granted(self, count: int) -> None:
        self._session.num_granted += count
        self.took_turn()

    def took_turn(self) -> None:
        """It got a slot, or a whole region: the others that wait are before it now."""
        self._session.turns += 1
        self.since = self._session.turns

    # --- what is kept ------------------------------------------------------------------------------------------

    def may_keep(self, due: int) -> bool:
        """Returns whether room may be kept for a request that was due after so many grants: first come, first served."""
        self._gave_way |= not self._is_first(due)
        return not self._gave_way

    def keep(self, kept: list[tuple[int, Ints]]) -> None:
        """This room is kept from all jobs from now on."""
        if [(n, need.tolist()) for n, need in kept] != [(n, need.tolist()) for n, need in self.kept]:
            self._session.kept_changes += 1
        self.kept = kept

    def kept_by_others(self) -> Ints:
        """Room that is kept for other jobs, by resource and worker."""
        if self.is_alone:
            return np.zeros_like(self.workers.free)
        return self._seen_here(self._kept_by_others())

    def _kept_by_others(self) -> Ints:
        """In the columns of the session."""
        taken = self._nothing()
        for other in self._others:
            if other.kept:
                kept, places = np.zeros_like(other.workers.free), other._places
                for number, need in other.kept:
                    kept[:, number] += need
                taken[places.cells] += kept[:, places.own]
        return taken

    def _is_first(self, due: int) -> bool:
        """No other job is to have room kept before it that has not found it impossible as things are."""
        return not any(
            other.next_due is not None and other.next_due < due and other._is_to_keep() for other in self._others
        )

    def _is_to_keep(self) -> bool:
        """Its turn to have room kept has come, and it was not tried in vain."""
        if self.next_due is None or self._session.num_granted < self.next_due:
            return False
        return self._gave_way or self._granted_seen < self.next_due or self._kept_seen != self._session.kept_changes

    # --- who is told -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """It has dealt with its event: others that could have more now are told to ask."""
        for other in self._others:
            if other.requirements and not other._is_told and other._could_have_more():
                other._may_ask()

    def _may_ask(self) -> None:
        """Told once, until it has."""
        self._is_told = True
        self._tell()

    def _could_have_more(self) -> bool:
        """Than was open to it when it last asked; or it is its turn to have room kept."""
        if self._is_to_keep() and self._is_first(self.next_due or 0):
            return True
        rooms = self._rooms_now()
        return len(rooms) != len(self._rooms) or any(
            len(now) != len(then) or bool((now > then).any()) for now, then in zip(rooms, self._rooms, strict=True)
        )

    def _rooms_now(self) -> list[Ints]:
        """Slots that are open to it, by worker, of each need of each of its requirements."""
        self._refresh()
        taken = self._not_open(self.since)
        free = self.workers.free if taken is None else self.workers.free - taken
        return [
            np.minimum(self.workers.room(need, within, free), requirement.units * count)
            for requirement in self.requirements
            for (need, count), within in zip(requirement.needs, requirement.within, strict=True)
        ]

    # --- the session's columns: resources that any job names, workers that any job was told of -----------------------

    def _refresh(self) -> None:
        """Its columns show as free what other jobs leave. Unless nothing has changed O(jobs x resources x workers)."""
        own, others = self.workers, self._others
        if not others and self._seen is None:
            return
        seen = (own.version, [(other, other.workers.changes) for other in others])
        if self._seen == seen:
            return
        self._seen = seen
        own.share_with(self._seen_here(self._held_of(others)))
        for name, number in own.numbers.items() if own.addresses else ():
            addresses = own.addresses.get(number)
            if addresses is not None:
                addresses.share_with(_addresses_held(others, name))

    def _held_of(self, others: Sequence[JobSlots]) -> Ints:
        """What these hold, of those workers that they know to be there."""
        held = self._nothing()
        for other in others:
            places = other._places
            held[places.cells] += other.workers.held[:, places.own]
        return held

    def _nothing(self) -> Ints:
        """By resource and worker of the session."""
        session = self._session
        for job in (self, *session.jobs):
            _ = job._places
        return np.zeros((FIRST_EXTERNAL + len(session.rows), len(session.columns)), np.int64)

    def _seen_here(self, amounts: Ints) -> Ints:
        """Returns amounts of the session's columns in those of the job's workers."""
        seen, places = np.zeros_like(self.workers.free), self._places
        seen[:, places.own] = amounts[places.cells]
        return seen

    @property
    def _places(self) -> _Places:
        workers, known = self.workers, self._known_places
        if known is None or known.version != workers.version:
            rows, columns, there = self._session.rows, self._session.columns, workers.numbers
            names = [rows.setdefault(name, FIRST_EXTERNAL + len(rows)) for name in workers.dimensions.external]
            numbers = [columns.setdefault(name, len(columns)) for name in there]
            own = np.fromiter(there.values(), np.int64, len(there))
            known = _Places(
                workers.version, np.array([*range(FIRST_EXTERNAL), *names]), np.array(numbers, np.int64), own
            )
            self._known_places = known
        return known


def _addresses_held(others: Sequence[JobSlots], name: str) -> Held:
    """Of a worker, by these jobs."""
    found: Held = {}
    for other in others:
        addresses = other.workers.addresses.get(other.workers.number(name))
        for key, held in addresses.held.items() if addresses is not None else ():
            found[key] = found[key] + held if key in found else held
    return found


JoinSession = Callable[[str, Workers, LeftToSpark], JobSlots]
"""Registers a job, by its name, its view of the workers and what it leaves to Spark, with the slot manager of its session."""


class SlotManager:
    """Of one session: what its jobs share."""

    def __init__(self) -> None:
        self.jobs: list[JobSlots] = []
        self.rows: dict[str, int] = {}
        self.columns: dict[str, int] = {}
        """Of all jobs: external resources, and workers."""
        self.num_granted = 0
        self.kept_changes = 0
        """Times that the room that is kept has changed."""
        self.turns = 0
        """Jobs that began to wait or got a slot."""

    def register(
        self, name: str, workers: Workers, tell: Callable[[], None], left_to_spark: LeftToSpark = tuple
    ) -> JobSlots:
        if not self.jobs:
            self.rows, self.columns = {}, {}
        self.jobs.append(JobSlots(self, name, workers, tell, left_to_spark=left_to_spark))
        return self.jobs[-1]


def join_nobody(name: str, workers: Workers, left_to_spark: LeftToSpark) -> JobSlots:
    """In a session of its own."""
    return SlotManager().register(name, workers, lambda: None, left_to_spark)


def first_fit(room: Ints, most: int) -> Ints:
    """Returns the number of slots that each worker gives, in their order, of at most ``most`` in all."""
    room = np.minimum(room, most)
    before = np.cumsum(room)
    return np.minimum(room, np.maximum(0, most - (before - room)))

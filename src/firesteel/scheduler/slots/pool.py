"""SlotPool (FLIP-56): slots of their own resources, cut from what the workers have free.

Who makes an execution wait is the ``SlotMode``'s to say: the pool (it stays in CREATED, and is asked for with every
event), or Spark, whose launches the pool then books (a *pending* slot until then). Where an execution really runs is
Spark's word either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, Names, distinct, select
from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.kernel.states import IS_PENDING
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption, RegionDeploymentOption, Slots
from firesteel.scheduler.slots.manager import JoinSession, Requirement, first_fit, join_nobody
from firesteel.scheduler.slots.reservations import Asker, Reservations
from firesteel.scheduler.slots.resource_profile import MEMORY_KINDS, ResourceProfile, SlotEnforcement, SlotMode
from firesteel.scheduler.slots.sharing import SharedSlots, shared_slots
from firesteel.scheduler.slots.workers import UNBOUNDED, UNIT, Dimensions, Taken, Workers
from firesteel.scheduler.topology.executions import ExecutionTable, Rows
from firesteel.scheduler.topology.groups import Mask

if TYPE_CHECKING:
    from firesteel.scheduler.slots.usage import SlotUsageRecorder

NO_SLOT, PENDING = -1, -2
_COST_UNITS = np.array([UNIT, 1 << 30], np.float64)


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request for slots that are not given, or given out and not launched. ``slots``: each need, and how many of them at once:
    more than one only for a region of several tasks. ``vertex``: one of those who ask."""

    group: int
    slots: tuple[tuple[ResourceProfile, int], ...]
    vertex: int = field(compare=False)

    @property
    def is_region(self) -> bool:
        return sum(count for _, count in self.slots) > 1


class SlotPool(Slots):
    """A slot is named by one of the executions in it; nearly always it is the only one."""

    def __init__(
        self,
        job_graph: JobGraph,
        mode: SlotMode | None = None,
        table: ExecutionTable | None = None,
        *,
        avoided: Callable[[], tuple[str, ...]] = tuple,
        in_turn: bool = False,
        join: JoinSession | None = None,
    ) -> None:
        """``avoided``: gives the nodes that give no slots now. ``in_turn``: the cluster serves what came first, so nothing may queue there before a mirror. ``join``: registers it
        with the slot manager of the session; None: no other job uses these workers."""
        self.mode = mode or SlotMode()
        self._in_turn = in_turn
        self._job_graph = job_graph
        groups = [job_graph.group_of(vertex.id) for vertex in job_graph.vertices]
        self.groups = list(dict.fromkeys(group.name for group in groups))
        self.group_of = [self.groups.index(group.name) for group in groups]
        """The number of each vertex' group."""
        self.profiles = [ResourceProfile.UNKNOWN] * len(self.groups)
        """The resources that a slot of each group needs from now on."""
        for group in groups:
            self.profiles[self.groups.index(group.name)] = ResourceProfile.of(group)
        external = (name for p in self.profiles for name, _ in p.external)
        self.workers = Workers(Dimensions(external, self.mode.framework))
        self.session = (join or join_nobody)(job_graph.name, self.workers, self._left_to_spark)
        """This job's side of what all jobs share."""
        self.reservations = Reservations(self.workers, self.session)
        self.unmet: dict[OpenRequest, int] = {}
        """Executions (or regions) that got no slot when they were last asked for."""
        self.step_names = [vertex.name for vertex in job_graph.vertices]
        self.moved = False
        """Spark has chosen where something runs: elsewhere than the pool had thought, or what was left to it before memory
        could bind."""
        self._table = ExecutionTable() if table is None else table
        self._avoided = avoided
        self._worker: NDArray[np.int32] = np.empty(0, np.int32)
        """By slot: the worker's number, or PENDING, or NO_SLOT."""
        self._slot: Rows = np.empty(0, np.int64)
        """By execution: the row that names its slot, NO_SLOT where it has none."""
        self._users: NDArray[np.int32] = np.empty(0, np.int32)
        """By slot: executions in it."""
        self._kind: NDArray[np.int32] = np.empty(0, np.int32)
        """By slot: which need it was cut for (``kinds``)."""
        self._launched: Mask = np.empty(0, np.bool_)
        """By slot."""
        self.kinds: list[tuple[int, ResourceProfile]] = []
        """Group and profile of all slots there ever were; a group's profile changes at most a few times."""
        self._current = [NO_SLOT] * len(self.groups)
        """Of each group the kind of what is cut now."""
        self.num_slots = np.zeros(len(self.groups), np.int64)
        self.num_pending = np.zeros(len(self.groups), np.int64)
        """Of each group: slots given out, and those of them that Spark has not started."""
        self._taken: dict[int, tuple[int, Taken]] = {}
        self._told: dict[int, dict[str, tuple[str, ...]]] = {}
        """By slot: the addresses taken, on which worker, and as they are told."""
        self._binds: tuple[int, bool] | None = None
        self.usage: SlotUsageRecorder | None = None
        """Told of what is given out, for the journal."""

    # --- what is asked for -------------------------------------------------------------------------------------

    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        rows = option.executions
        self._reserve_rows(rows)
        kind = self._kind_of(option.vertex)
        joined = not bool(self._table.opens[rows[0]]) if len(rows) and self._table.size else False
        chosen = self._choose(kind, len(rows), option.vertex, joined)
        n = len(chosen)
        self._hold(rows[:n], kind, chosen)
        self._note((option.vertex, joined), [(kind, 1)], len(rows), n)
        granted = replace(option, subtasks=option.subtasks[:n], executions=rows[:n])
        return self._with_grants(granted) if n else granted

    def allocate_slots_for_regions(self, option: RegionDeploymentOption) -> RegionDeploymentOption:
        """Whole regions only, as many as there are slots for; of executions that share a Spark task one slot."""
        for part in option.parts:
            self._reserve_rows(part.executions)
        slots = shared_slots(option, self._job_graph)
        kind_of = {vertex: self._kind_of(vertex) for vertex in distinct(slots.vertex).tolist()}
        kinds = np.array([kind_of.get(vertex, 0) for vertex in range(max(kind_of) + 1)], np.int64)[slots.vertex]
        asked = distinct(slots.region)
        granted = self._grant_regions(slots, kinds, asked, option.parts[0].vertex)
        of_one = np.bincount(kinds[slots.region == asked[0]], minlength=len(self.kinds))
        slots_of_one = [(kind, int(of_one[kind])) for kind in np.flatnonzero(of_one).tolist()]
        self._note((option.parts[0].vertex, False), slots_of_one, len(asked), len(granted))
        chosen = option.select(granted)
        if not len(granted):
            return chosen
        parts = tuple(self._with_grants(part, shared=True) for part in chosen.parts)
        return RegionDeploymentOption(parts, chosen.regions)

    def _grant_regions(self, slots: SharedSlots, kinds: Ints, regions: Ints, vertex: int) -> Ints:
        """Returns the regions that got all their slots. Equal regions need equally many, so the first of them are asked for at once."""
        if len(regions) == len(slots.region):
            chosen = self._choose(int(kinds[0]), len(regions), vertex, False)
            self._hold_shared(slots.select(np.arange(len(chosen))), int(kinds[0]), chosen)
            return regions[: len(chosen)]
        starts, ends = (np.searchsorted(slots.region, regions, side) for side in ("left", "right"))
        for granted, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            own = np.arange(start, end)
            if not self._hold_region(slots, kinds, own, vertex) and not self._hold_region_alone(slots, kinds, own):
                return regions[:granted]
            self.session.took_turn()
        return regions

    def _hold_region(self, slots: SharedSlots, kinds: Ints, own: Ints, vertex: int) -> bool:
        """All these slots, first fit, or none."""
        held: list[Rows] = []
        for kind in distinct(kinds[own]).tolist():
            mine = own[kinds[own] == kind]
            chosen = self._choose(kind, len(mine), vertex, False, whole=True)
            part = slots.select(mine[: len(chosen)])
            self._hold_shared(part, kind, chosen)
            held.append(part.members)
            if len(chosen) < len(mine):
                self.ended(np.concatenate(held))
                return False
        return True

    def _hold_region_alone(self, slots: SharedSlots, kinds: Ints, own: Ints) -> bool:
        """Places slots as ``could_fulfil`` reckons where nothing is held: what it says can be must not wait for ever."""
        if self.num_slots.any():
            return False
        groups = [(kind, own[kinds[own] == kind]) for kind in distinct(kinds[own]).tolist()]
        needs = [(self._needs(kind), len(mine)) for kind, mine in groups]
        _, taken = self.session.allowances(len(own), whole=True)[0]
        placed = self.workers.pack(needs, self.usable, taken, beside_jobs=True)
        if placed is None:
            return False
        numbers = iter(number for number, _ in placed)
        for kind, mine in groups:
            self._hold_shared(slots.select(mine), kind, np.array(list(islice(numbers, len(mine))), np.int64))
        return True

    def _choose(self, kind: int, n: int, vertex: int, joined: bool, *, whole: bool = False) -> Ints:
        """Workers for at most ``n`` slots, first fit; PENDING where Spark chooses. ``whole``: fewer are of no use."""
        if not self.admits:
            return np.full(n, PENDING, np.int64)
        profile, need = self.kinds[kind][1], self._needs(kind)
        within = self.usable & self.workers.serving(profile)
        counts = np.zeros(len(within), np.int64)
        for most, taken in self.session.allowances(n, whole=whole):
            free = self.workers.free if joined else self.reservations.kept_from(vertex, self.workers.free)
            room = self.workers.room(need, within, free if taken is None else free - taken)
            counts += first_fit(np.maximum(room - counts, 0), most)
        return np.repeat(np.arange(len(counts)), counts)

    @property
    def usable(self) -> Mask:
        """Workers that are there, and not on blocked nodes."""
        return self.workers.usable(self._avoided())

    @property
    def admits(self) -> bool:
        """Returns whether the pool makes executions wait; else Spark does, and any placement it makes keeps the promise."""
        enforcement = self.mode.enforcement
        if enforcement is SlotEnforcement.TASK_PROFILES:
            return self._in_turn or self.memory_binds or self.session.others_admit or not self.workers.is_told
        return enforcement is SlotEnforcement.POOL

    @property
    def memory_binds(self) -> bool:
        """Returns whether a worker's memory can run out before its cores, which Spark counts."""
        version = self.workers.version
        if self._binds is None or self._binds[0] != version:
            self._binds = (version, any(map(self._memory_can_bind, self.profiles)))
            self.session.admits = self._binds[1]
        return self._binds[1]

    def _memory_can_bind(self, profile: ResourceProfile) -> bool:
        """Some worker has less memory, or less of a kind of it, to a core than is asked for; or had: what is left to Spark
        now may start there when it is back."""
        known = self.workers.sizes.astype(np.float64)
        if not profile.is_specified or not known.shape[1]:
            return False
        need = self.workers.dimensions.need(profile).astype(np.float64)
        if not need[0]:
            return True
        sizes = slice(1, 2 + len(MEMORY_KINDS))
        bounded = known[sizes] < UNBOUNDED
        return bool((bounded & (need[sizes, None] * known[0] > known[sizes] * need[0] * (1 + 1e-9))).any())

    def set_profile(self, group: int, profile: ResourceProfile) -> None:
        """Sets the resources that slots of a group need that are cut from now on."""
        self.profiles[group] = profile
        self._current[group] = NO_SLOT
        self._binds = None

    def was_cut(self, group: int) -> bool:
        """Returns whether slots of this group were ever given out."""
        return any(own == group for own, _ in self.kinds)

    def _kind_of(self, vertex: int) -> int:
        group = self.group_of[vertex]
        if self._current[group] == NO_SLOT:
            kind = (group, self.profiles[group])
            if kind not in self.kinds:
                self.kinds.append(kind)
            self._current[group] = self.kinds.index(kind)
        return self._current[group]

    def _needs(self, kind: int) -> Ints:
        return self.workers.needs(self.kinds[kind][1])

    # --- what is held ------------------------------------------------------------------------------------------

    def _hold(self, slots: Rows, kind: int, workers: Ints) -> None:
        """Gives out these slots, of one execution each, cut from these workers."""
        n = len(slots)
        if not n:
            return
        self._worker[slots], self._kind[slots] = workers, kind
        self._slot[slots], self._users[slots] = slots, 1
        group = self.kinds[kind][0]
        self.num_slots[group] += n
        self.num_pending[group] += n
        if workers[0] != PENDING:
            self._book(slots, kind, workers)

    def _hold_shared(self, shared: SharedSlots, kind: int, workers: Ints) -> None:
        self._hold(shared.rows, kind, workers)
        self._slot[shared.members] = shared.rows[shared.place]
        self._users[shared.rows] = np.bincount(shared.place, minlength=len(shared.rows))

    def _book(self, slots: Rows, kind: int, workers: Ints) -> None:
        """All on workers that are there."""
        counts = np.bincount(workers)
        numbers = np.flatnonzero(counts)
        need = self._needs(kind)
        self.workers.take(need, numbers, counts[numbers])
        for number in numbers.tolist() if self.workers.addresses and need.ndim == 1 else ():
            addresses = self.workers.addresses.get(number)
            for slot in slots[workers == number].tolist() if addresses is not None else ():
                assert addresses is not None
                if addresses.room(need):
                    taken, self._told[slot] = addresses.take(need)
                    self._taken[slot] = (number, taken)

    def ended(self, rows: Rows) -> None:
        """A slot is free when nobody is left in it. Twice is as good as once."""
        if len(rows) == 1:
            self._one_ended(rows)
            return
        known = rows[rows < len(self._slot)]
        slots = self._slot[known]
        held = slots != NO_SLOT
        if not held.any():
            return
        self._slot[known[held]] = NO_SLOT
        slots, known = slots[held], known[held]
        np.subtract.at(self._users, slots, 1)
        over = distinct(slots)
        over = over[self._users[over] == 0]
        if len(over):
            order = np.argsort(slots, kind="stable")
            if self.usage is not None:
                self.usage.freed(over, known[order[np.searchsorted(slots[order], over, "right") - 1]])
            self._free(over)

    def _one_ended(self, rows: Rows) -> None:
        """The commonest case by far, in scalars."""
        row = rows.item()
        slot = self._slot.item(row) if row < len(self._slot) else NO_SLOT
        if slot == NO_SLOT:
            return
        self._slot[row] = NO_SLOT
        self._users[slot] -= 1
        if self._users.item(slot):
            return
        if self.usage is not None:
            self.usage.one_freed(slot, row)
        kind, number = self._kind.item(slot), self._worker.item(slot)
        group = self.kinds[kind][0]
        self.num_slots[group] -= 1
        if not self._launched.item(slot):
            self.num_pending[group] -= 1
        if number >= 0:
            self.workers.give_one(self._needs(kind), number)
        if self._taken:
            self._give_addresses(slot)
        self._worker[slot], self._launched[slot] = NO_SLOT, False

    def _free(self, slots: Rows) -> None:
        workers, kinds = self._worker[slots], self._kind[slots]
        for kind in distinct(kinds.astype(np.int64)).tolist():
            own = kinds == kind
            group = self.kinds[kind][0]
            self.num_slots[group] -= int(own.sum())
            self.num_pending[group] -= int((~self._launched[slots[own]]).sum())
            self._give_back(slots[own], kind, workers[own])
        self._worker[slots] = NO_SLOT
        self._launched[slots] = False

    def _give_back(self, slots: Rows, kind: int, workers: NDArray[np.int32]) -> None:
        booked = workers[workers >= 0]
        if len(booked):
            counts = np.bincount(booked)
            numbers = np.flatnonzero(counts)
            self.workers.give(self._needs(kind), numbers, counts[numbers])
        for slot in slots.tolist() if self._taken else ():
            self._give_addresses(slot)

    def _give_addresses(self, slot: int) -> None:
        number, taken = self._taken.pop(slot, (NO_SLOT, []))
        self._told.pop(slot, None)
        addresses = self.workers.addresses.get(number)
        if addresses is not None:
            addresses.give(taken)

    # --- what Spark says ---------------------------------------------------------------------------------------

    def started_on(self, executions: Rows, executors: Sequence[str], nodes: Sequence[str]) -> None:
        """Spark started these: there the slots are, whatever was thought. Both run parallel, or are empty."""
        known = executions < len(self._slot)
        slots = np.where(known, self._slot[np.where(known, executions, 0)] if len(self._slot) else NO_SLOT, NO_SLOT)
        places = np.flatnonzero(slots != NO_SLOT)
        fresh = distinct(slots[places][~self._launched[slots[places]]])
        if len(fresh):
            self._launched[fresh] = True
            np.subtract.at(self.num_pending, self.groups_of(fresh), 1)
        if executors or nodes:
            told = select(executors, places), select(nodes, places)
            self._follow(slots[places], *told)
        if len(fresh) and self.usage is not None:
            self.usage.begun(fresh)

    def _follow(self, slots: Rows, executors: Sequence[str], nodes: Sequence[str]) -> None:
        """Book these (distinct) slots where their executions run."""
        named = Names.of(executors or nodes)
        find = self.workers.number if executors else self.workers.only_one_on
        numbers = np.array([*map(find, named.names), NO_SLOT], np.int64)[named.codes]
        moved = np.flatnonzero((numbers != NO_SLOT) & (numbers != self._worker[slots]))
        slots, numbers = slots[moved], numbers[moved]
        for kind in distinct(self._kind[slots].astype(np.int64)).tolist():
            own = self._kind[slots] == kind
            old = self._worker[slots[own]]
            self.moved = True
            self._give_back(slots[own], kind, old)
            self._worker[slots[own]] = numbers[own]
            counts = np.bincount(numbers[own])
            there = np.flatnonzero(counts)
            self.workers.take(self._needs(kind), there, counts[there])

    # --- rounds of asking --------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Everything that waits is going to be asked for."""
        self.unmet = {}
        self.session.begin_round()
        self.reservations.begin_round()

    def end_round(self) -> bool:
        """True: something was kept for who did not ask any more, so ask again."""
        again = self.reservations.end_round(self.usable, int(self.num_slots.sum()) + self.session.num_held_by_others)
        if self.usage is not None:
            for kept in self.reservations.kept_now:
                self.usage.room_kept(kept)
        self.session.declare(self._requirements(), self.reservations.next_due)
        return again

    def settle(self, *, is_active: bool) -> None:
        """An event was handled. ``is_active``: the job asks for slots, if it has not got all."""
        if self.session.is_alone:
            return
        if not is_active:
            self.session.declare((), None)
        self.session.settle()

    def _left_to_spark(self) -> list[tuple[Ints, int]]:
        """Needs of the slots that Spark may start anywhere, and how many of each."""
        if self.mode.enforcement is SlotEnforcement.POOL:
            return []
        counts = np.bincount(self._kind[self._worker == PENDING], minlength=len(self.kinds))
        return [(self._needs(kind), int(counts[kind])) for kind in np.flatnonzero(counts).tolist()]

    def _requirements(self) -> list[Requirement]:
        """Returns the requests that wait for slots that another job may hold."""
        if self.session.is_alone or not self.admits:
            return []
        return [
            Requirement(
                [(self.workers.needs(profile), count) for profile, count in request.slots],
                [self.usable & self.workers.serving(profile) for profile, _ in request.slots],
                units,
            )
            for request, units in self.unmet.items()
        ]

    def _note(self, asker: Asker, slots: list[tuple[int, int]], asked: int, granted: int) -> None:
        """``slots``: kinds of one unit of the request, and how many of each."""
        if asked > granted:
            request = self._request(asker[0], slots)
            self.unmet[request] = self.unmet.get(request, 0) + asked - granted
        if self.admits:
            self.reservations.asked(asker, [(self._needs(kind), count) for kind, count in slots], asked, granted)

    def _request(self, vertex: int, slots: list[tuple[int, int]]) -> OpenRequest:
        needs = tuple((self.kinds[kind][1], count) for kind, count in slots)
        return OpenRequest(self.group_of[vertex], needs, vertex)

    # --- what is open ------------------------------------------------------------------------------------------

    def open_requests(self) -> list[OpenRequest]:
        """Returns the requests that wait for the pool, and those given out that wait with Spark for their start: of each group once."""
        pending = map(self._request_of, np.flatnonzero(self.num_pending).tolist())
        return [*self.unmet, *(request for request in pending if request not in self.unmet)]

    def group_requests(self) -> list[OpenRequest]:
        """Of each group what it asks for, now or later."""
        return list(map(self._request_of, range(len(self.groups))))

    def _request_of(self, group: int) -> OpenRequest:
        return OpenRequest(group, ((self.profiles[group], 1),), self.group_of.index(group))

    def could_fulfil(self, request: OpenRequest) -> bool:
        """Returns whether the workers that are there could, if nothing were booked on them and no node were blocked."""
        alive = self.workers.alive
        if not request.is_region:
            return bool(self.able_when_empty(request, alive).any())
        needs = [(self.workers.needs(profile), count) for profile, count in request.slots]
        return self.workers.pack(needs, alive, beside_others=False) is not None

    def able_when_empty(self, request: OpenRequest, within: Mask) -> Mask:
        """Returns a mask of the workers among these that would hold a slot of its first need."""
        if self.mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES:
            return within & self.workers.serving(request.slots[0][0])
        return self.workers.could_hold(request.slots[0][0], within) > 0

    def steps_of(self, group: int) -> list[str]:
        return [name for name, own in zip(self.step_names, self.group_of, strict=True) if own == group]

    def validate(self) -> None:
        """Raises AssertionError when the books are wrong. Slow: for tests."""
        table, workers = self._table, self.workers
        rows = np.flatnonzero(self._slot != NO_SLOT)
        assert IS_PENDING[table.state[rows]].all(), "a slot is held by an execution that is over, or was not deployed"
        slots = distinct(self._slot[rows])
        users = np.bincount(self._slot[rows], minlength=len(self._slot))[slots]
        assert (users == self._users[slots]).all(), "executions that share a slot are miscounted"
        for own, counted in ((slots, self.num_slots), (slots[~self._launched[slots]], self.num_pending)):
            counts = np.bincount(self.groups_of(own), minlength=len(self.groups)) if len(own) else 0 * counted
            assert np.array_equal(counts, counted), "the slots of a group are miscounted"
        booked = np.zeros_like(workers.total)
        for slot in slots.tolist():
            number, need = int(self._worker[slot]), self._needs(int(self._kind[slot]))
            if number >= 0:
                booked[:, number] += need[:, number] if need.ndim > 1 else need
        occupied = workers.total - workers.free - workers.others - booked
        alive = workers.alive
        assert not occupied[1:, alive].any(), "a worker's books do not add up"
        assert (occupied[0, alive] >= 0).all(), "a worker's books do not add up"
        # Where Spark chooses it may have started the next one before we hear that one is over.
        exact = self.admits and not self.moved
        assert not exact or (booked <= workers.total)[:, alive].all(), "a worker holds more than it has"
        free = workers.total - booked - workers.others
        assert not exact or self.session.is_alone or (free >= 0)[:, alive].all(), "two jobs hold more than a worker has"
        assert all(addresses.is_sound() for addresses in workers.addresses.values()), "an address is given out twice"

    # --- what is told ------------------------------------------------------------------------------------------

    def _with_grants(self, option: ExecutionDeploymentOption, *, shared: bool = False) -> ExecutionDeploymentOption:
        """``shared``: they also say which slot each execution is in, for one of another vertex may be in it too."""
        slots = self._slot[option.executions]
        workers = self._worker[slots]
        numbers = distinct(workers[workers >= 0].astype(np.int64))
        codes = np.where(workers >= 0, np.searchsorted(numbers, workers), -1).astype(np.int32)
        names = Names(tuple(self.workers.names[number] for number in numbers.tolist()), codes)
        group, profile = self.kinds[int(self._kind[slots[0]])]
        told = [self._told.get(slot, {}) for slot in slots.tolist()] if self._told else []
        insists = self.admits and len(self.workers.names) > 1 and bool(len(numbers))
        addresses = told if any(told) else ()
        grants = SlotGrants(self.groups[group], profile, names, insists, addresses, slots if shared else None)
        return replace(option, slots=grants)

    def slots_at_once(self, vertex: int) -> int:
        """Returns the number of slots of its group that the workers that can be used would hold if they were empty."""
        return int(self.workers.could_hold(self.profiles[self.group_of[vertex]], self.usable).sum())

    def group_of_slot(self, slot: int) -> int:
        return self.kinds[self._kind.item(slot)][0]

    def groups_of(self, slots: Rows) -> Ints:
        """The number of each slot's group."""
        return np.array([group for group, _ in self.kinds], np.int64)[self._kind[slots]]

    def costs(self, slots: Rows) -> NDArray[np.float64]:
        """Cores and GiB of each slot. Of one of any size that is nobody knows where: what one of a worker's would have."""
        costs = np.zeros((len(slots), 2))
        for kind in distinct(self._kind[slots].astype(np.int64)).tolist():
            own, need = self._kind[slots] == kind, self._needs(kind)
            if need.ndim > 1:
                usual = int(np.argmax(self.workers.alive)) if self.workers.alive.any() else NO_SLOT
                where = np.where(self._worker[slots[own]] >= 0, self._worker[slots[own]], usual)
                costs[own] = need[:2, where].T if len(self.workers.names) else 0.0
            else:
                costs[own] = need[:2]
        return costs / _COST_UNITS

    def cost_of(self, slot: int) -> NDArray[np.float64]:
        kind = self._kind.item(slot)
        if not self.kinds[kind][1].is_specified:
            return self.costs(np.array([slot]))[0]
        return self._needs(kind)[:2] / _COST_UNITS

    def workers_of(self, rows: Rows) -> list[str]:
        """Names, empty where a row holds no slot or Spark has not said where; for tests and sentences."""
        slots = np.where(rows < len(self._slot), rows, 0)
        found = [int(self._worker[s]) if s != NO_SLOT else NO_SLOT for s in self._slot[slots].tolist()]
        return [self.workers.names[number] if number >= 0 else "" for number in found]

    def _reserve_rows(self, rows: Rows) -> None:
        size = int(rows.max()) + 1 if len(rows) else 0
        if size > len(self._slot):
            size = max(size, self._table.size, len(self._slot) + len(self._slot) // 4)
            more = size - len(self._slot)
            self._slot = np.concatenate((self._slot, np.full(more, NO_SLOT, np.int64)))
            self._worker = np.concatenate((self._worker, np.full(more, NO_SLOT, np.int32)))
            self._users, self._kind = (np.concatenate((c, np.zeros(more, np.int32))) for c in (self._users, self._kind))
            self._launched = np.concatenate((self._launched, np.zeros(more, np.bool_)))

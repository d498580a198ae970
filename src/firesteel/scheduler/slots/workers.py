"""The workers' resources as columns: what each has, and what of it is free. A worker is what gives slots.

Amounts are whole numbers (millionths of a core or of an external resource, bytes), so ten times 0.1 is 1, and what was
taken and given back leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.events import ExecutorChanged
from firesteel.scheduler.slots.resource_profile import MEMORY_KINDS, ResourceProfile, WorkerResources
from firesteel.scheduler.topology.groups import Mask

Item = TypeVar("Item", np.bool_, np.int64)
UNIT = 1_000_000
"""Parts of a core, and of one piece of an external resource."""
UNBOUNDED = 1 << 60
CORES, MEMORY = 0, 1
Needs = Sequence[tuple[NDArray[np.int64], int]]
"""The parts of a request: a need, and how many slots of it."""
FIRST_EXTERNAL = MEMORY + 1 + len(MEMORY_KINDS)
"""Place of the first external resource in a row."""


def units(amount: float) -> int:
    """Rounded down, so that as many thirds fit as there are in one; what is less than a unit away counts as whole."""
    return int(amount * UNIT + 1e-3)


class Dimensions:
    """The columns of a row of resources: cores, memory as one pot, each kind of memory, each external resource."""

    def __init__(self, external: Iterable[str], framework: int = 0) -> None:
        """``framework``: as in ``SlotMode``."""
        self.external = tuple(sorted(set(external)))
        self._framework = framework
        self.count = FIRST_EXTERNAL + len(self.external)

    def need(self, profile: ResourceProfile) -> Ints:
        """Of a specified profile."""
        amounts = dict(profile.external)
        kinds = [getattr(profile, kind) for kind in MEMORY_KINDS]
        external = [units(amounts.get(name, 0.0)) for name in self.external]
        memory = profile.memory + self._framework
        return np.array([units(profile.cpu_cores), memory, *kinds, *external], np.int64)

    def total(self, resources: WorkerResources) -> Ints:
        kinds = [_bounded(getattr(resources, kind)) for kind in MEMORY_KINDS]
        external = [units(resources.external.get(name, 0.0)) for name in self.external]
        return np.array([units(resources.cpu_cores), _bounded(resources.memory), *kinds, *external], np.int64)

    def told(self, amounts: Ints) -> WorkerResources:
        """A row of amounts, for sentences."""
        external = dict(zip(self.external, (amounts[FIRST_EXTERNAL:] / UNIT).tolist(), strict=True))
        some = {name: amount for name, amount in external.items() if amount}
        return WorkerResources(float(amounts[CORES]) / UNIT, int(amounts[MEMORY]), some)

    def place(self, external: str) -> int:
        return FIRST_EXTERNAL + self.external.index(external)


def _bounded(size: int | None) -> int:
    return UNBOUNDED if size is None else min(size, UNBOUNDED)


class Workers:
    """A worker keeps its number while anything is booked on it; one that is gone gives nothing, and takes nothing back."""

    def __init__(self, dimensions: Dimensions) -> None:
        self.dimensions = dimensions
        self.names: list[str] = []
        self.nodes: list[str] = []
        self.resources: list[WorkerResources] = []
        self.profiles: list[ResourceProfile | None] = []
        """The only need a worker was made for; None: it serves any."""
        self.addresses: dict[int, Addresses] = {}
        """By worker, where the pool hands them out."""
        self.alive: Mask = np.zeros(0, np.bool_)
        self.total: Ints = np.zeros((dimensions.count, 0), np.int64)
        """By resource and worker."""
        self.free: Ints = self.total.copy()
        """Less than nothing where Spark gave more than there is."""
        self.others: Ints = self.total.copy()
        """Held by other jobs of the session; not free."""
        self.changes = 0
        """Differs when anything was booked or given back, or a worker has changed."""
        self.share: Ints = self.total.copy()
        """The resources of a slot of which nothing was specified: cores and memory over the number of slots."""
        self.booked: Ints = np.zeros(0, np.int64)
        """Slots that are held, of each worker."""
        self.is_told = False
        """Somebody has spoken of workers."""
        self.version = 0
        self._occupied: Ints = np.zeros(0, np.int64)
        self._numbers: dict[str, int] = {}
        self._alone: tuple[int, dict[str, int]] | None = None
        self._usable: tuple[int, Collection[str], Mask] | None = None
        self.sizes: Ints = self.total.copy()
        """Of each size that a worker ever had, by resource: what is gone may come back."""
        self._needs: dict[ResourceProfile, Ints] = {}
        self._purposes: dict[ResourceProfile, int] = {}
        """Needs that workers were made for, without network memory, numbered from 1 ..."""
        self._made_for: Ints = np.zeros(0, np.int64)
        """... by worker; 0: it serves any."""

    # --- who is there ------------------------------------------------------------------------------------------

    def change(self, event: ExecutorChanged) -> None:
        """Twice the same is as good as once; one that comes with other resources has those from now on."""
        self.is_told = True
        self.changes += 1
        number = self._numbers.get(event.executor)
        if not event.added:
            if number is not None:
                del self._numbers[event.executor]
                self.alive[number] = False
                self.version += 1
            return
        resources = event.resources or WorkerResources(float(event.slots), UNBOUNDED)
        told = (event.node or event.host, resources, event.profile)
        if number is not None and told == (self.nodes[number], self.resources[number], self.profiles[number]):
            return
        if number is None:
            number = self._numbers[event.executor] = self._vacant()
            self.booked[number] = self._occupied[number] = 0
            self.free[:, number] = self.total[:, number] = self.others[:, number] = 0
            self.names[number] = event.executor
            self.addresses.pop(number, None)
        self._equip(number, resources, max(1, event.slots))
        self.nodes[number], self.resources[number], self.profiles[number] = told
        self._made_for[number] = 0 if event.profile is None else self._purpose(event.profile)
        self.alive[number] = True
        self.version += 1

    def number(self, name: str) -> int:
        """-1: no such worker is there."""
        return self._numbers.get(name, -1)

    def only_one_on(self, node: str) -> int:
        """The worker of a node that has no other, else -1."""
        if self._alone is None or self._alone[0] != self.version:
            count = Counter(self.nodes[number] for number in self._numbers.values())
            alone = {self.nodes[n]: n for n in self._numbers.values() if count[self.nodes[n]] == 1}
            self._alone = (self.version, alone)
        return self._alone[1].get(node, -1)

    def occupy(self, cores: Mapping[str, float]) -> None:
        """So many cores of these workers, and none of the others, are taken by what is not ours."""
        occupied = np.zeros(len(self.names), np.int64)
        for name, count in cores.items():
            number = self.number(name)
            if number >= 0:
                occupied[number] = units(count)
        self.free[CORES] += self._occupied - occupied
        self._occupied = occupied

    @property
    def numbers(self) -> Mapping[str, int]:
        """By name, of those that are there."""
        return self._numbers

    @property
    def held(self) -> Ints:
        """Returns the resources that the job's own slots hold, by resource and worker."""
        held = self.total - self.free - self.others
        held[CORES] -= self._occupied
        return held

    def share_with(self, others: Ints) -> None:
        """``others``: what other jobs hold from now on, by resource and worker."""
        self.free += self.others - others
        self.others = others

    def usable(self, avoided: Collection[str] = ()) -> Mask:
        """Returns a mask of the workers that give slots: they are there, and not on a node to be avoided."""
        if self._usable is None or self._usable[:2] != (self.version, avoided):
            usable = self.alive.copy()
            for number in self._numbers.values() if avoided else ():
                usable[number] &= self.nodes[number] not in avoided
            self._usable = (self.version, avoided, usable)
        return self._usable[2]

    def serving(self, profile: ResourceProfile) -> Mask:
        """Returns a mask of the workers that were not made for another need. Network memory does not count: there is room for a little more of it."""
        return (self._made_for == 0) | (self._made_for == self._purposes.get(profile.with_network_memory(0), 0))

    # --- what fits ---------------------------------------------------------------------------------------------

    def needs(self, profile: ResourceProfile) -> Ints:
        """By resource; of an unspecified profile by resource and worker."""
        if not profile.is_specified:
            return self.share
        if profile not in self._needs:
            self._needs[profile] = self.dimensions.need(profile)
        return self._needs[profile]

    def room(self, need: Ints, within: Mask, free: Ints | None = None) -> Ints:
        """Returns the number of slots that fit into what is free, by worker. ``free``: by resource and worker; None: as it is now."""
        return self._room(need, within, self.free if free is None else free, Addresses.room)

    def _room(self, need: Ints, within: Mask, free: Ints, at_addresses: Callable[[Addresses, Ints], int]) -> Ints:
        asked = np.flatnonzero(need.reshape(len(need), -1).any(axis=1))
        room = np.full(len(within), UNBOUNDED, np.int64)
        for k in asked.tolist():
            each = np.maximum(need[k], 1) if need.ndim > 1 else need[k]
            np.minimum(room, free[k] // each, out=room)
        room[~within | (room < 0)] = 0
        for number, addresses in self.addresses.items() if need.ndim == 1 else ():
            room[number] = min(int(room[number]), at_addresses(addresses, need))
        return room

    def could_hold(self, profile: ResourceProfile, within: Mask) -> Ints:
        """Returns the number of slots that each worker would hold if it were empty."""
        need = self.needs(profile)
        return self._room(need, within & self.serving(profile), self.total, Addresses.most)

    def spare(self, profile: ResourceProfile) -> int | None:
        """Bytes by which each slot (of a specified profile) could be larger without a worker holding fewer, of whatever size
        there ever was: what is gone may come back. None: none could hold any."""
        need, network = self.needs(profile), MEMORY + len(MEMORY_KINDS)
        asked = np.flatnonzero(need)
        slots = (self.sizes[asked] // need[asked, None]).min(axis=0, initial=UNBOUNDED)
        able = np.flatnonzero(slots)
        if not len(able):
            return None
        left = [(self.sizes[k, able] - slots[able] * need[k]) // slots[able] for k in (MEMORY, network)]
        return int(np.minimum(*left).min())

    @property
    def least_memory_per_core(self) -> float:
        """Bytes, of all sizes that a worker ever had; 0: there was none."""
        cores = np.maximum(self.sizes[CORES], 1) / UNIT
        return float((self.sizes[MEMORY] / cores).min(initial=np.inf)) if self.sizes.shape[1] else 0.0

    def ever_held(self, profile: ResourceProfile) -> bool:
        """Returns whether any worker that there ever was could hold such a slot."""
        if not profile.is_specified:
            return self.is_told
        need = self.needs(profile)
        return bool((self.sizes >= need[:, None]).all(axis=0).any())

    def pack(
        self,
        needs: Needs,
        within: Mask,
        taken: Ints | None = None,
        *,
        beside_others: bool = True,
        beside_jobs: bool = False,
    ) -> list[tuple[int, Ints]] | None:
        """Returns workers on which all these slots could be together if nothing were booked but ``taken`` (by resource and worker): of each, in
        this order, the worker and what it takes there. Each goes where least is lacking now. None: they do not fit.

        ``beside_others``: what is not ours keeps the cores that it has now. ``beside_jobs``: other jobs keep their slots.
        """
        empty, free, found = self.total.copy(), self.free.copy(), list[tuple[int, Ints]]()
        if beside_others:
            empty[CORES] -= self._occupied
        if beside_jobs:
            empty -= self.others
        if taken is not None:
            empty -= taken
            free -= taken
        scale = np.maximum(self.total, 1)
        for need, count in needs:
            each = need if need.ndim > 1 else need[:, None]
            placed = Counter[int]()
            for _ in range(count):
                able = within & (empty >= each).all(axis=0)
                for number, addresses in self.addresses.items() if need.ndim == 1 else ():
                    able[number] &= (addresses.room if beside_jobs else addresses.most)(need) > placed[number]
                if not able.any():
                    return None
                lacking = np.where(able, ((each - free) / scale).max(axis=0), np.inf)
                number = int(np.argmin(lacking))
                own = each[:, number if need.ndim > 1 else 0].copy()
                empty[:, number] -= own
                free[:, number] -= own
                placed[number] += 1
                found.append((number, own))
        return found

    def nearest(self, profiles: Sequence[ResourceProfile]) -> WorkerResources | None:
        """Of the workers that are there the one that lacks least for one of these; None: there is none."""
        there = np.flatnonzero(self.alive)
        if not len(there):
            return None
        need = np.max([self.dimensions.need(p) for p in profiles if p.is_specified] or [self.total[:, 0]], axis=0)
        ratio = need[:, None] / np.maximum(self.total[:, there], 1)
        # The worst of its resources first; of equal ones the larger worker.
        order = np.lexsort((-self.total[MEMORY, there], -self.total[CORES, there], ratio.max(axis=0).round(6)))
        return self.resources[int(there[order[0]])]

    # --- what is taken -----------------------------------------------------------------------------------------

    def take(self, need: Ints, numbers: Sequence[int] | Ints, counts: Ints) -> None:
        """So many slots of each of these (distinct) workers."""
        each = need[:, numbers] if need.ndim > 1 else need[:, None]
        self.free[:, numbers] -= each * counts
        self.booked[numbers] += counts
        self.changes += 1

    def give(self, need: Ints, numbers: Sequence[int] | Ints, counts: Ints) -> None:
        self.take(need, numbers, -counts)

    def give_one(self, need: Ints, number: int) -> None:
        self.free[:, number] += need[:, number] if need.ndim > 1 else need
        self.booked[number] -= 1
        self.changes += 1

    def _vacant(self) -> int:
        """The number of a worker that is gone and forgotten, else a new one."""
        vacant = np.flatnonzero(~self.alive & (self.booked == 0))
        if len(vacant):
            return int(vacant[0])
        self.names.append("")
        self.nodes.append("")
        self.resources.append(WorkerResources(0.0, 0))
        self.profiles.append(None)
        self.alive = _longer(self.alive)
        self.booked, self._occupied = _longer(self.booked), _longer(self._occupied)
        self._made_for = _longer(self._made_for)
        self.total, self.free = _longer(self.total), _longer(self.free)
        self.others, self.share = _longer(self.others), _longer(self.share)
        return len(self.names) - 1

    def _purpose(self, profile: ResourceProfile) -> int:
        return self._purposes.setdefault(profile.with_network_memory(0), len(self._purposes) + 1)

    def _equip(self, number: int, resources: WorkerResources, slots: int) -> None:
        total = self.dimensions.total(resources)
        self.free[:, number] += total - self.total[:, number]
        self.total[:, number] = total
        if not self.booked[number]:  # what is booked is given back as it was taken
            self.share[:, number] = np.where(total < UNBOUNDED, total // slots, 0)
            self.share[FIRST_EXTERNAL:, number] = 0  # who specified nothing is told of no external resource either
        if number not in self.addresses and resources.addresses:
            self.addresses[number] = Addresses(self.dimensions.place, self._known(resources.addresses))
        if not (self.sizes == total[:, None]).all(axis=0).any():
            self.sizes = np.concatenate((self.sizes, total[:, None]), axis=1)

    def _known(self, addresses: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {name: held for name, held in addresses.items() if name in self.dimensions.external}


def _longer(column: NDArray[Item]) -> NDArray[Item]:
    """One more entry, of nothing, along the last axis."""
    return np.concatenate((column, np.zeros((*column.shape[:-1], 1), column.dtype)), axis=-1)


_WHOLE = 1_000_000
Held = dict[tuple[str, tuple[str, ...]], Ints]
"""By resource and its addresses: units of each."""
Taken = list[tuple[int, int, int]]
"""The addresses that a slot holds: resource, place of the address, units of it."""


class Addresses:
    """Of one worker. A part of a resource is a part of one address; from one on, whole addresses are taken."""

    def __init__(self, place: Callable[[str], int], addresses: Mapping[str, tuple[str, ...]]) -> None:
        """``place``: of a resource's name in a row of needs."""
        self._names = {place(name): name for name in addresses}
        self._addresses = {place(name): held for name, held in addresses.items()}
        self._free = {place(name): np.full(len(held), _WHOLE, np.int64) for name, held in addresses.items()}
        self._others = {k: np.zeros_like(free) for k, free in self._free.items()}
        """Held by other jobs of the session; not free."""

    @property
    def held(self) -> Held:
        """By the job's own slots."""
        return {(self._names[k], self._addresses[k]): _WHOLE - free - self._others[k] for k, free in self._free.items()}

    def share_with(self, others: Held) -> None:
        """``others``: what other jobs hold from now on."""
        for k, free in self._free.items():
            now = others.get((self._names[k], self._addresses[k]), np.zeros_like(free))
            np.add(free, self._others[k] - now, out=free)
            self._others[k] = now

    def room(self, need: Ints) -> int:
        """Returns the number of slots of this need that the free addresses suffice for."""
        return min((_fits(free, int(need[k])) for k, free in self._free.items() if need[k]), default=1 << 60)

    def most(self, need: Ints) -> int:
        """Returns the number of such slots when nothing is taken."""
        return min(
            (_fits(np.full_like(free, _WHOLE), int(need[k])) for k, free in self._free.items() if need[k]),
            default=1 << 60,
        )

    def take(self, need: Ints) -> tuple[Taken, dict[str, tuple[str, ...]]]:
        """For one slot that fits. Of those with room the fullest, so that others stay whole."""
        taken: Taken = []
        told: dict[str, tuple[str, ...]] = {}
        for k, free in self._free.items():
            amount = int(need[k])
            if not amount:
                continue
            each = min(amount, _WHOLE)
            able = np.flatnonzero(free >= each)
            chosen = able[np.argsort(free[able], kind="stable")][: _pieces(amount)]
            free[chosen] -= each
            taken += [(k, place, each) for place in chosen.tolist()]
            told[self._names[k]] = tuple(self._addresses[k][place] for place in np.sort(chosen).tolist())
        return taken, told

    def give(self, taken: Taken) -> None:
        for k, place, amount in taken:
            self._free[k][place] += amount

    def is_sound(self) -> bool:
        return all(bool(((free >= 0) & (free <= _WHOLE)).all()) for free in self._free.values())


def _pieces(amount: int) -> int:
    """Addresses that so much is spread over."""
    return -(-amount // _WHOLE)


def _fits(free: Ints, amount: int) -> int:
    if amount < _WHOLE:
        return int((free // amount).sum())
    return int((free == _WHOLE).sum()) // _pieces(amount)

"""Slots of a stream, the places of its partitions: how many the executors have room for (FLIP-56, FLIP-169).

A stream is one slot sharing group, for Spark gives all tasks of a session alike. A coarse one takes a core for several
partitions, which take turns there; of one with resources each partition has a slot that is cut just so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from firesteel.humanize import format_bytes, plural
from firesteel.model.group_options import other_groups
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import MAX_PARTITIONS_PER_CORE, PARTITIONS_PER_CORE, Options
from firesteel.scheduler.slots.workers import UNIT, units
from firesteel.scheduler.streaming.events import ClusterChanged, ExecutorOffer
from firesteel.scheduler.streaming.settings import StreamSettings


@dataclass(frozen=True, slots=True)
class Resources:
    """Cores that count, and whether more can come. ``offers``: of the executors, where a slot takes more than cores."""

    cores: int = 0
    executors: int = 0
    excluded: int = 0
    complete: bool = False
    dynamic: bool = False
    known: bool = False
    limited: bool = False
    guessed: bool = False
    """Dynamic allocation has made no executor yet: one core is taken to come."""
    offers: tuple[ExecutorOffer, ...] = ()

    def changed(self, event: ClusterChanged) -> Resources:
        """As ``event`` tells. What Spark's dynamic allocation adds and takes for this very query is not a signal: or two
        loops would chase each other. Its limit is."""
        return Resources(
            cores=max(event.cores, 1) if event.dynamic else event.cores,
            executors=event.executors,
            excluded=event.excluded,
            complete=event.complete,
            dynamic=event.dynamic,
            known=True,
            limited=event.limited,
            guessed=event.dynamic and event.cores == 0,
            offers=event.offers,
        )

    def says_more_than(self, before: Resources) -> bool:
        """More than dynamic allocation at work."""
        if not before.known or self.dynamic != before.dynamic:
            return True
        if not self.dynamic:
            return True
        return not self.guessed and (before.guessed or (self.limited and self.cores != before.cores))

    def counted_as(self, before: Resources) -> Resources:
        """Returns these resources, with the cores that were there before."""
        return replace(self, cores=before.cores, offers=before.offers)

    def needed(self, load: int | None) -> int:
        """Cores, of those that are there. ``load``: that it needs; None: nobody says."""
        return self.cores if load is None else min(self.cores, load)


class Slots(Protocol):
    """``load``: cores that the load needs; None: nobody says."""

    group: str
    """Name and resources, as in sentences; empty: none were said."""
    bound: bool
    """There are never more partitions than slots."""

    def there(self, resources: Resources) -> int: ...

    def needed(self, resources: Resources, load: int | None) -> int:
        """Of those that are there."""
        ...

    def still_suffice(self, parallelism: int, resources: Resources, load: int | None) -> str:
        """Why so many partitions are as good as any other number, half a sentence; empty: they are not."""
        ...

    def busy(self, parallelism: int, resources: Resources) -> int:
        """Cores that so many partitions can keep busy."""
        ...

    def told(self, resources: Resources) -> str:
        """``8 cores give 32 slots``."""
        ...


class CoarseSlots:
    """A core, or as many as Spark gives to a task (``task_cpus``), gives as many slots as the options say."""

    group = ""
    bound = False

    def __init__(self, settings: StreamSettings, task_cpus: int = 1) -> None:
        self._settings = settings
        self._cpus = task_cpus

    def there(self, resources: Resources) -> int:
        return self._tasks(resources.cores) * self._settings.partitions_per_core

    def needed(self, resources: Resources, load: int | None) -> int:
        return self._tasks(resources.needed(load)) * self._settings.partitions_per_core

    def still_suffice(self, parallelism: int, resources: Resources, load: int | None) -> str:
        # Where executors come as tasks ask for them, partitions that the load does not need hold some.
        frugal = load is not None and resources.dynamic
        most = self._settings.partitions_per_core if frugal else self._settings.max_partitions_per_core
        tasks = self._tasks(resources.needed(load))
        core = "core" if self._cpus == 1 else f"{self._cpus} cores"
        fits = tasks <= parallelism <= tasks * most
        return f"every {core} has at least one and none more than {most}" if fits else ""

    def busy(self, parallelism: int, resources: Resources) -> int:
        return min(parallelism * self._cpus, resources.cores)

    def told(self, resources: Resources) -> str:
        each = "" if self._cpus == 1 else f", {self._cpus} for each task,"
        return f"{plural(resources.cores, 'core')}{each} {_give(resources)} {plural(self.there(resources), 'slot')}"

    def _tasks(self, cores: int) -> int:
        """Returns how many partitions run at once on so many cores."""
        return max(1, cores // self._cpus) if cores else 0


class ProfileSlots:
    """Each slot has the resources of ``group``; an executor gives as many as fit.

    Spark gives whole cores to a task: more than one are rounded up, and partitions whose slots are parts of a core take
    turns on it. Memory is that of a partition with its state, so all slots have theirs at once.
    """

    bound = True

    def __init__(self, group: SlotSharingGroup) -> None:
        self.group = str(group)
        self._resources = group.resources
        self._name = group.name
        self._cpus = task_cpus(group)
        self._cores = units(group.cpu_cores if group.cpu_cores <= 1 else self._cpus)
        self._needs = {
            "heap": group.task_heap_memory,
            "memory beside the heap": memory_beside_heap(group),
        }
        self._external = {name: units(amount) for name, amount in group.external_resources.items()}

    def there(self, resources: Resources) -> int:
        if resources.guessed:
            return 1
        return sum(offer.count * min(self._room(offer).values()) for offer in resources.offers)

    def needed(self, resources: Resources, load: int | None) -> int:
        there = self.there(resources)
        if load is None or load >= resources.cores:
            return there
        return min(there, max(1, -(-load * UNIT // self._cores)))

    def still_suffice(self, parallelism: int, resources: Resources, load: int | None) -> str:
        there = self.there(resources)
        tasks = -(-resources.needed(load) // self._cpus)
        if load is None or load >= resources.cores:
            tasks = sum(offer.count * (offer.cores // self._cpus) for offer in resources.offers)
        # Where executors come as tasks ask for them, partitions that the load does not need hold some.
        most = self.needed(resources, load) if load is not None and resources.dynamic else there
        fits = min(tasks, there) <= parallelism <= most
        return "each has its slot, and no core is left without one" if fits else ""

    def busy(self, parallelism: int, resources: Resources) -> int:
        return min(parallelism * self._cpus, resources.cores)

    def told(self, resources: Resources) -> str:
        there = self.there(resources)
        text = f"{plural(resources.cores, 'core')} {_give(resources)} {plural(there, 'slot')} of {self._resources}"
        text += f" (slot sharing group '{self._name}')"
        scarce = self._scarce(resources)
        return f"{text}, for no executor has {scarce} for more" if scarce else text

    def _room(self, offer: ExecutorOffer) -> dict[str, int]:
        """Slots of one executor by what they need."""
        room = {"cores": offer.cores * UNIT // self._cores}
        has = {"heap": offer.heap, "memory beside the heap": offer.beside_heap}
        room |= {kind: has[kind] // need for kind, need in self._needs.items() if need}
        external = dict(offer.external)
        room |= {name: units(external.get(name, 0.0)) // need for name, need in self._external.items()}
        return room

    def _scarce(self, resources: Resources) -> str:
        """Returns the names of the resources that limit the slots to fewer than the cores allow; empty: none does."""
        rooms = [self._room(offer) for offer in resources.offers]
        short = {kind for room in rooms for kind, n in room.items() if n < room["cores"] and n == min(room.values())}
        return " or ".join(sorted(short))


def slots_of_stream(group: SlotSharingGroup, settings: StreamSettings, cpus: int) -> Slots:
    """``cpus``: cores that Spark gives to each task of the session."""
    return ProfileSlots(group) if group.has_resources else CoarseSlots(settings, cpus)


def task_cpus(group: SlotSharingGroup) -> int:
    """Cores that Spark is to give to a task of the group: whole ones."""
    return max(1, math.ceil(group.cpu_cores))


def memory_beside_heap(group: SlotSharingGroup) -> int:
    """Bytes of a slot that are not of the JVM's heap: Python workers, and the state in RocksDB."""
    return group.task_off_heap_memory + group.managed_memory


def kept_by(group: SlotSharingGroup) -> str:
    """Returns a sentence on what of a slot is enforced, and by whom."""
    cpus = task_cpus(group)
    turns = ", and partitions take turns on it" if group.cpu_cores < 1 else ""
    text = f"Spark gives each task {plural(cpus, 'core')} (spark.task.cpus){turns}"
    named = [f"{amount:g} {name}" for name, amount in group.external_resources.items()]
    text += f", and {', '.join(named)}" if named else ""
    memory = f"{format_bytes(group.task_heap_memory)} of heap"
    beside = memory_beside_heap(group)
    memory += f" and {format_bytes(beside)} beside it" if beside else ""
    return f"{text}; memory ({memory} for each partition, with its state) is counted, but not enforced."


def said_in_vain(group: SlotSharingGroup, options: Options) -> Iterator[str]:
    """Yields a sentence for each option on slots that changes nothing for a stream of this group."""
    for other, key in other_groups(group.name, options).items():
        yield (
            f"{key}, from {options.origin(key).where}, gives slot sharing group '{other}' resources, and changes nothing here: the "
            f"whole stream is in '{group.name}'."
        )
    for option in (PARTITIONS_PER_CORE, MAX_PARTITIONS_PER_CORE) if group.has_resources else ():
        if options.is_set(option):
            yield (
                f"{option.key}, from {options.origin(option).where}, changes nothing here: the CPU cores of slot sharing group "
                f"'{group.name}' say how many slots a core gives."
            )


def _give(resources: Resources) -> str:
    return "gives" if resources.cores == 1 else "give"

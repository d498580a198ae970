"""Slots of a stream on Spark: whether the session's tasks are what its slot sharing group asks for, and what executors offer.

A streaming query has no resource profile: Spark gives each of its tasks what it gives all tasks of the session
(``spark.task.cpus``, ``spark.task.resource.*``), on executors of no profile. So the group must ask for just that. A session
that is made for a stream is made so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, plural
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import EXECUTOR_MEMORY, MIB, Options
from firesteel.scheduler.slots.workers import UNIT, units
from firesteel.scheduler.streaming.events import ClusterChanged, ExecutorOffer
from firesteel.scheduler.streaming.slots import memory_beside_heap, task_cpus
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.placement.status_store import SparkStatus
from firesteel.spark.session.sessions import grows, is_local
from firesteel.spark.session.task_memory import machine_memory, spark_bytes
from firesteel.spark.slots.workers import beside_heap, counts_overhead

CPUS = "spark.task.cpus"
RESERVED = 300 * MIB
"""Of each heap, which Spark keeps for itself (``UnifiedMemoryManager``)."""
_TASK, _AMOUNT = "spark.task.resource.", ".amount"


class Offers:
    """Of one session. ``heap``, ``beside_heap``: bytes of each executor."""

    def __init__(self, heap: int, beside_heap: int) -> None:
        self._heap = heap
        self._beside_heap = beside_heap

    def of(self, executors: Iterable[ExecutorInfo]) -> tuple[ExecutorOffer, ...]:
        """Alike ones together."""
        kinds = Counter(
            (info.cores, tuple((name, float(len(addresses))) for name, addresses in info.external))
            for info in executors
        )
        return tuple(
            ExecutorOffer(count, cores, self._heap, self._beside_heap, external)
            for (cores, external), count in sorted(kinds.items())
        )


def settings_for(group: SlotSharingGroup) -> dict[str, str]:
    """Spark's, for a session that is made for a stream of this group."""
    if not group.has_resources:
        return {}
    external = {f"{_TASK}{name}{_AMOUNT}": _amount(amount) for name, amount in group.external_resources.items()}
    return {CPUS: str(task_cpus(group)), **external}


def session_cpus(context: Any) -> int:
    """Cores that Spark gives to each task."""
    return int(context.getConf().get(CPUS, "1"))


def offers_of(context: Any, group: SlotSharingGroup, options: Options) -> Offers | None:
    """None: the stream's slots need nothing but cores. Raises UsageError where no task, or no executor, of this session is what a slot of the group needs."""
    if not group.has_resources:
        return None
    _check_cpus(context, group)
    _check_external(context, group)
    conf, side = context.getConf(), "driver" if is_local(context) else "executor"
    heap = spark_bytes(conf.get(f"spark.{side}.memory", "1g"), "m")
    free = max(0, heap - RESERVED)
    if group.task_heap_memory > free:
        raise UsageError(
            f"No slot of {group} fits into an executor: spark.{side}.memory is {format_bytes(heap)}, of which Spark keeps "
            f"{format_bytes(RESERVED)} for itself.",
            hint=f"Start the session with a larger spark.{side}.memory, or give the group less task heap memory.",
        )
    return Offers(free, _beside_heap(context, group, options, heap))


def _check_cpus(context: Any, group: SlotSharingGroup) -> None:
    need, gives = task_cpus(group), session_cpus(context)
    if need != gives:
        raise UsageError(
            f"A slot of {group} needs tasks of {plural(need, 'core')}, and Spark gives {plural(gives, 'core')} to each task of "
            f"this session ({CPUS}): a streaming query cannot have a resource profile of its own.",
            hint=f"Start the session with {CPUS}={need}, leave it to Firesteel to make one (no session runs, none is given), or "
            "change the group's CPU cores.",
        )


def _check_external(context: Any, group: SlotSharingGroup) -> None:
    """Raises UsageError unless Spark hands to each task what the group asks for."""
    if group.external_resources and is_local(context):
        raise UsageError(
            f"Slots of {group} cannot be had on '{context.master}': Spark hands external resources to the tasks of a streaming query "
            "on a cluster only.",
            hint="Run the stream on a cluster, or remove the external resources from the group.",
        )
    given = {
        key.removeprefix(_TASK).removesuffix(_AMOUNT): float(value)
        for key, value in context.getConf().getAll()
        if key.startswith(_TASK) and key.endswith(_AMOUNT) and float(value)
    }
    for name in sorted(given.keys() | group.external_resources.keys()):
        need, gives = group.external_resources.get(name, 0.0), given.get(name, 0.0)
        if units(need) != units(gives):
            raise UsageError(
                f"A slot of {group} needs {need:g} {name}, and Spark hands {gives:g} to each task of this session "
                f"({_TASK}{name}{_AMOUNT}): a streaming query cannot have a resource profile of its own.",
                hint=f"Start the session with {_TASK}{name}{_AMOUNT}={_amount(need)} and spark.executor.resource.{name}{_AMOUNT}, or "
                "change the group's external resources.",
            )


def _amount(amount: float) -> str:
    """As Spark is told it, and as slots are counted: rounded down, for of six sixths Spark gives six only so."""
    return f"{units(amount) / UNIT:.12g}"


def _beside_heap(context: Any, group: SlotSharingGroup, options: Options, heap: int) -> int:
    """Bytes of an executor that are not its heap's, as far as they are asked for."""
    need = memory_beside_heap(group)
    if not need:
        return 0
    said = options[EXECUTOR_MEMORY]
    if said is not None:
        has, source = said, EXECUTOR_MEMORY.key
    elif is_local(context):
        has, source = max(0, machine_memory() - heap), "this machine's memory"
    elif counts_overhead(context):
        has, source = beside_heap(context.getConf()), "spark.executor.memoryOverhead"
    else:
        raise UsageError(
            f"A slot of {group} needs {format_bytes(need)} beside the heap, and how much of it the executors have is not known "
            "here.",
            hint=f"Give it with {EXECUTOR_MEMORY.key}, or remove off-heap and managed memory from the group.",
        )
    if need > has:
        raise UsageError(
            f"No slot of {group} fits into an executor: beside its heap there are {format_bytes(has)} ({source}).",
            hint=f"Make that more ({EXECUTOR_MEMORY.key} says how much it is), or give the group less off-heap and managed memory.",
        )
    return has


LOOK_SECONDS = 1.0
_MOST = "spark.dynamicAllocation.maxExecutors"
_UNLIMITED = 1 << 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """Executors by id, those on excluded nodes in ``excluded``."""

    executors: Mapping[str, ExecutorInfo]
    excluded: frozenset[str] = frozenset()

    @property
    def cores(self) -> int:
        return sum(info.cores for executor, info in self.executors.items() if executor not in self.excluded)

    def compared(self, before: Cluster | None) -> str:
        """Returns what has changed, half a sentence; empty: nothing."""
        if before is None:
            return "the stream was started"
        gone = [
            f"executor {e} on {before.executors[e].host} was lost"
            for e in sorted(before.executors.keys() - self.executors)
        ]
        come = [
            f"executor {e} on {self.executors[e].host} came" for e in sorted(self.executors.keys() - before.executors)
        ]
        shut = [f"Spark excluded executor {e}" for e in sorted(self.excluded - before.excluded) if e in self.executors]
        open_ = [
            f"Spark uses executor {e} again" for e in sorted(before.excluded - self.excluded) if e in self.executors
        ]
        return ", ".join(gone + come + shut + open_)


class ClusterWatch:
    """Of one stream. ``look`` is called in one thread, about each LOOK_SECONDS."""

    def __init__(self, context: Any, offers: Offers | None) -> None:
        self._context = context
        self._offers = offers
        self._status = SparkStatus(context)
        self._local = is_local(context)
        self._dynamic = not self._local and grows(context)
        self._excludes = str(context.getConf().get("spark.excludeOnFailure.enabled", "false")).lower() == "true"
        self._ids: set[str] | None = None
        self._seen: set[str] = set()
        """Executors that have said what they are, whether they are for us or not."""
        self._known: Cluster | None = None

    @property
    def is_complete(self) -> bool:
        """Nothing will ever change."""
        return self._local and self._known is not None

    def look(self, at: float) -> ClusterChanged | None:
        """None: as it was. Raises when Spark is stopping."""
        if self.is_complete:
            return None
        ids = self._status.executor_ids()
        if ids == self._ids and not self._excludes:
            return None
        found = self._found(ids)
        if not self._local and self._seen == ids:  # one that is just coming has no cores yet
            self._ids = ids
        what = found.compared(self._known)
        self._known = found
        return self._event(found, what, at) if what else None

    def _found(self, ids: set[str]) -> Cluster:
        if self._local:
            cores = int(self._context.defaultParallelism)
            return Cluster({"driver": ExecutorInfo("this machine", cores, cores)})
        listed = {e: info for e, info in self._status.executors().items() if e in ids and info.host and info.cores}
        self._seen = set(listed)
        # Spark starts no task of a query on executors that were made for a resource profile.
        listed = {executor: info for executor, info in listed.items() if not info.profile_id}
        return Cluster(listed, self._status.excluded() if self._excludes else frozenset())

    def _event(self, found: Cluster, what: str, at: float) -> ClusterChanged:
        usable = [info for executor, info in found.executors.items() if executor not in found.excluded]
        cores, limited, usable_then = found.cores, False, usable
        if self._dynamic:
            most = int(self._context.getConf().get(_MOST, str(_UNLIMITED)))
            limited = most < _UNLIMITED
            each = max((info.cores for info in usable), default=0)
            cores = max(cores, most * each) if limited else cores
            if limited and usable:  # those to come are like the largest that is there
                largest = max(usable, key=lambda info: info.cores)
                usable_then = [*usable, *[largest] * (most - len(usable))]
        return ClusterChanged(
            at=at,
            cores=cores,
            executors=len(usable),
            excluded=sum(found.executors[e].cores for e in found.excluded if e in found.executors),
            complete=self._local,
            dynamic=self._dynamic,
            limited=limited,
            offers=() if self._offers is None else self._offers.of(usable_then),
            what=what,
        )

"""Resources of workers for slots: cores and external resources as Spark's status store tells, memory as executors were
asked for it, or as their machines have it.

Memory of a worker is, in this order: ``firesteel.executor.memory``; the executor's environment variable
``FIRESTEEL_EXECUTOR_MEMORY``; what YARN or Kubernetes was asked for besides the heap; or what the machine or container has
besides the heaps of its executors, shared among these by their cores. The last two hold the framework memory of Python workers, too.
On a machine a worker per core is subtracted. What YARN and Kubernetes give is often less than that: there each slot takes the framework
memory of its own worker (``SlotMode.framework``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firesteel.humanize import format_bytes
from firesteel.options import EXECUTOR_MEMORY, FRAMEWORK_MEMORY, MIB, Options
from firesteel.scheduler.slots.resource_profile import ResourceProfile, WorkerResources
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.session.probe import EXECUTOR_MEMORY_VARIABLE, Findings
from firesteel.spark.session.sessions import grows, is_local
from firesteel.spark.session.task_memory import machine_memory, spark_bytes
from firesteel.spark.session.versions import installed_pyspark, version_of

OVERHEAD_FACTOR, LEAST_OVERHEAD = "0.1", "384m"
"""Spark's, where nothing was said of the overhead."""
LEAST_OVERHEAD_IS_SET = (4, 0)
"""From this Spark on ``spark.executor.minMemoryOverhead`` is read."""


@dataclass(eq=False)
class _Told:
    """``machines``: bytes by host; ``executors``: what the variable said, by id."""

    machines: dict[str, int] = field(default_factory=dict)
    executors: dict[str, int] = field(default_factory=dict)


_told: dict[str, _Told] = {}
"""By Spark application, for the jobs to come."""


def learn(application: str, findings: Iterable[Findings]) -> None:
    """Keeps what executors say of their memory before a job."""
    told = _told.setdefault(application, _Told())
    for found in findings:
        if found.memory:
            told.machines[found.host] = found.memory
        if found.said_memory and found.place is not None and found.place.executor:
            told.executors[found.place.executor] = spark_bytes(found.said_memory)


class Workers:
    """Of one job. ``profiles``: what the executors of a Spark resource profile give, by its id."""

    def __init__(self, context: Any, options: Options) -> None:
        conf = context.getConf()
        self._conf = conf
        self._option: int | None = options[EXECUTOR_MEMORY]
        self._framework: int = options[FRAMEWORK_MEMORY]
        self._local = is_local(context)
        self._overhead = counts_overhead(context)
        self._told = _told.setdefault(context.applicationId, _Told())
        is_said = self._option is not None or bool(self._told.executors)
        self.framework_by_slot = 0 if is_said or not self._overhead or grows(context) else self._framework
        """As in ``SlotMode``. 0 also where it was said what slots may take, for that leaves the framework memory out."""
        self._heap = heap_of(conf, "driver" if self._local else "executor")
        self._addresses = _driver_resources(context) if self._local else {}
        self._made_for: dict[int, tuple[ResourceProfile, int]] | None = None
        """By Spark resource profile, where Spark makes executors for them: need and bytes for slots; None: it does not."""

    def profile_made(self, number: int, need: ResourceProfile, slots_memory: int) -> None:
        """Spark makes executors for this Spark resource profile; ``slots_memory``: bytes that each has for slots."""
        self._made_for = {**(self._made_for or {}), number: (need, slots_memory)}

    def described(self, listed: Mapping[str, ExecutorInfo]) -> dict[str, ExecutorInfo]:
        """The same executors, with what they can give to slots."""
        cores, executors = Counter[str](), Counter[str]()
        for info in listed.values():
            cores[info.host] += info.cores
            executors[info.host] += 1
        return {
            executor: replace(
                info,
                resources=self._resources(executor, info, info.cores / max(1, cores[info.host]), executors[info.host]),
                profile=self._profile(info.profile_id),
            )
            for executor, info in listed.items()
        }

    def _profile(self, number: int) -> ResourceProfile | None:
        if self._made_for is None:
            return None
        return self._made_for[number][0] if number in self._made_for else ResourceProfile.UNKNOWN

    def source(self) -> str:
        """Returns the source of the workers' memory, in words."""
        if self._option is not None:
            return f"{EXECUTOR_MEMORY.key} says {format_bytes(self._option)}"
        if self._told.executors:
            return f"the executors' {EXECUTOR_MEMORY_VARIABLE}"
        if self._local:
            return "what this machine has besides the JVM's heap"
        if self._overhead:
            return "the memory besides the heap that executors were asked for"
        return "what the executors' machines have besides the JVMs' heaps, shared by cores"

    def _resources(self, executor: str, info: ExecutorInfo, share: float, neighbours: int) -> WorkerResources:
        if self._made_for is not None and info.profile_id and info.profile_id not in self._made_for:
            return WorkerResources(0.0, 0)  # another job's: Spark gives it nothing of ours
        external = {name: float(len(addresses)) for name, addresses in info.external}
        if self._local:
            external = {name: float(len(addresses)) for name, addresses in self._addresses.items()}
        return WorkerResources(
            float(info.cores), self._memory(executor, info, share, neighbours), external, addresses=self._addresses
        )

    def _memory(self, executor: str, info: ExecutorInfo, share: float, neighbours: int) -> int:
        if self._made_for is not None and info.profile_id in self._made_for:
            return self._made_for[info.profile_id][1]
        if self._option is not None:
            return self._option
        framework = self._framework * info.cores
        if executor in self._told.executors:
            return self._told.executors[executor] + (framework if self.framework_by_slot else 0)
        if self._overhead:
            return max(0, beside_heap(self._conf) - (0 if self.framework_by_slot else framework))
        known = self._told.machines
        machine = known.get(info.host) or min(known.values(), default=0) or machine_memory()
        return max(0, int((machine - neighbours * self._heap) * share) - framework)


def heap_of(conf: Any, side: str) -> int:
    """Bytes of the JVM of an executor or driver: heap, and off-heap memory where Spark may use it."""
    heap = spark_bytes(conf.get(f"spark.{side}.memory", "1g"), "m")
    return heap + (spark_bytes(conf.get("spark.memory.offHeap.size", "0")) if has_off_heap(conf) else 0)


def has_off_heap(conf: Any) -> bool:
    return str(conf.get("spark.memory.offHeap.enabled", "false")).lower() == "true"


def default_overhead(conf: Any) -> int:
    """Returns the memory overhead, in bytes, that YARN or Kubernetes is asked for with an executor without a profile.

    Spark reckons in whole MiB. A given overhead counts as it is; else it is a part of the heap, and no less than the least.
    """
    given = conf.get("spark.executor.memoryOverhead", None)
    if given is not None:
        return _whole_mib(given)
    factor = conf.get("spark.executor.memoryOverheadFactor", None)
    if factor is None:  # in cluster mode Spark sets Kubernetes' own to 0.4 for a Python program
        is_kubernetes = str(conf.get("spark.master", "")).startswith("k8s")
        factor = (
            conf.get("spark.kubernetes.memoryOverheadFactor", OVERHEAD_FACTOR) if is_kubernetes else OVERHEAD_FACTOR
        )
    heap = _whole_mib(conf.get("spark.executor.memory", "1g"))
    least = LEAST_OVERHEAD
    if (version_of(installed_pyspark()) or LEAST_OVERHEAD_IS_SET) >= LEAST_OVERHEAD_IS_SET:
        least = conf.get("spark.executor.minMemoryOverhead", LEAST_OVERHEAD)
    return max(_whole_mib(least), int(float(factor) * (heap // MIB)) * MIB)


def beside_heap(conf: Any) -> int:
    """Returns the bytes that YARN or Kubernetes gives an executor without a profile besides heap and off-heap memory.

    ``spark.executor.pyspark.memory`` is asked for in addition to the overhead, where Spark knows that the program is Python's: on YARN,
    and in cluster mode on Kubernetes.
    """
    given = conf.get("spark.executor.pyspark.memory", None)
    is_python = (
        str(conf.get("spark.yarn.isPython", "")).lower() == "true"
        if str(conf.get("spark.master", "")).startswith("yarn")
        else conf.get("spark.kubernetes.resource.type", "") == "python"
    )
    return default_overhead(conf) + (_whole_mib(given) if given is not None and is_python else 0)


def _whole_mib(text: str) -> int:
    return spark_bytes(text, "m") // MIB * MIB


def counts_overhead(context: Any) -> bool:
    """Returns True if the cluster manager bounds heap and overhead together. A standalone master counts the heap alone."""
    return context.master.startswith(("yarn", "k8s"))


def _driver_resources(context: Any) -> dict[str, tuple[str, ...]]:
    """Addresses by name, of a local master: ``spark.driver.resource.*``."""
    return {name: tuple(found.addresses) for name, found in context.resources.items()}

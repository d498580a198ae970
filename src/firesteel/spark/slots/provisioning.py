"""Slots of slot sharing groups on Spark: who keeps them apart in this session, Spark's resource profiles, and what a batch needs to run in them.

On a local master Spark knows no resource profiles, and the slot pool alone decides what runs at once. On a cluster a group becomes
a Spark resource profile: with dynamic allocation one that Spark makes executors for, without one of tasks only.

Tried on Spark 4.3.0:

* Profiles of tasks work on standalone, YARN, Kubernetes and ``local-cluster``. ``local[n]`` refuses them.
* A stage waits for ever for more CPUs than any executor has, or more memory than any node has. So the pool fails such a job before.
* One RDD of a stage with a profile is enough; two different ones are an error. ``mapInArrow(...).rdd.withResources`` works, too.
* Spark takes fractions of a CPU, but ``TaskContext`` then says 1, and the status store two tasks to a core. So they are rounded up here.
* Spark sets ``OMP_NUM_THREADS`` to the task's CPUs over any other value. PySpark reads the environment when it wraps a function, so each
  batch's RDD has a context of its own.
* A standalone master counts an executor's heap and not its overhead. So Python's memory is added to the heap's size there.
* With dynamic allocation, executors of a profile come within seconds, and go ``executorIdleTimeout`` after their last task.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from firesteel.errors import UsageError
from firesteel.model.job_graph import JobGraph
from firesteel.options import EXECUTOR_MEMORY, EXTERNAL_IDLE_TIMEOUT, FRAMEWORK_MEMORY, MEMORY_WATCH, MIB, Options
from firesteel.scheduler.kernel.commands import Deploy, SlotGrants
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.session.sessions import grows, is_local
from firesteel.spark.session.task_memory import spark_bytes
from firesteel.spark.slots.workers import Workers, counts_overhead, default_overhead, has_off_heap
from firesteel.task.executor.slots.slot import SlotInformation, thread_environment

REGISTERING_SECONDS = 10.0
"""Seconds after the session's start in which executors are taken to be still registering."""
REGISTERING_PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class BatchSlots:
    """``profile``: a ``pyspark.resource.ResourceProfile``; None: the session's. ``information``: None for a coarse group.
    ``environment``: of the Python workers. ``places``: runs of tasks in order, how many and where Spark is to start them,
    as it writes an executor; empty: anywhere.
    """

    profile: Any = None
    information: SlotInformation | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    places: Sequence[tuple[int, str]] = ()


class SlotProvisioning:
    """Of a job none of whose groups has resources: every task gets one of Spark's slots."""

    mode: SlotMode | None = None
    """For the scheduler; None: no group has resources."""

    def described(self, listed: Mapping[str, ExecutorInfo]) -> dict[str, ExecutorInfo]:
        """The executors, with what they give to slots. Called in the watcher's thread."""
        return dict(listed)

    def awaits_executors(self) -> bool:
        """Before the job starts: whether it had better wait for executors that are about to register."""
        return False

    def slots_of(self, deploys: Sequence[Deploy], budget: int) -> BatchSlots | None:
        """Of executions that share tasks; None: Spark's own. Raises UsageError where Spark has none like it."""
        return None

    def decisions(self) -> list[Decision]:
        return []


def slot_mode_of(context: Any) -> SlotMode:
    """Returns the session's slot mode: who keeps slots apart, and whether executors may come that are not there yet."""
    if is_local(context):
        return SlotMode(SlotEnforcement.POOL)
    if grows(context):
        return SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True)
    return SlotMode(SlotEnforcement.TASK_PROFILES)


def shares_slots(mode: SlotMode | None) -> bool:
    """Returns True if slot pools, of all jobs of the session together, decide what runs at once."""
    return mode is not None and mode.enforcement is not SlotEnforcement.EXECUTOR_PROFILES


def slot_provisioning_of(
    context: Any, graph: JobGraph, options: Options, dataframes: Mapping[int, Any]
) -> SlotProvisioning:
    """``dataframes``: the vertices that are DataFrames.

    Raises UsageError, with Spark's reason, for a group to which this session's Spark cannot give slots.
    """
    groups = [graph.group_of(vertex.id) for vertex in graph.vertices]
    if not any(group.has_resources for group in groups):
        return SlotProvisioning()
    made = SparkSlotProvisioning(context, options, {groups[vertex].name for vertex in dataframes})
    for group in {group.name: group for group in groups}.values():
        made.check(group.name, ResourceProfile.of(group))
    return made


class SparkSlotProvisioning(SlotProvisioning):
    """Of one job. ``with_dataframes``: names of groups that have DataFrame steps."""

    def __init__(self, context: Any, options: Options, with_dataframes: set[str]) -> None:
        self._workers = Workers(context, options)
        self.mode: SlotMode | None = replace(slot_mode_of(context), framework=self._workers.framework_by_slot)
        self._context, self._conf = context, context.getConf()
        self._options = options
        self._with_dataframes = with_dataframes
        self._framework: int = options[FRAMEWORK_MEMORY]
        self._hosts: dict[str, str] = {}
        self._asked: list[ResourceProfile] = []
        self._there: list[WorkerResources] = []

    def check(self, group: str, profile: ResourceProfile) -> None:
        """Tries whether Spark gives such slots. Raises UsageError if not."""
        self._spark_profile(group, profile)
        if profile.is_specified:
            self._asked.append(profile)

    def awaits_executors(self) -> bool:
        """Returns True if the session has only just begun, and the executors that have registered are too small for some
        group: larger ones may be about to."""
        if self.mode is None or self.mode.enforcement is not SlotEnforcement.TASK_PROFILES:
            return False
        if time.time() - self._context.startTime / 1000.0 > REGISTERING_SECONDS:
            return False
        framework = self.mode.framework
        return not all(any(_holds(worker, profile, framework) for worker in self._there) for profile in self._asked)

    def described(self, listed: Mapping[str, ExecutorInfo]) -> dict[str, ExecutorInfo]:
        found = self._workers.described(listed)
        self._hosts = {executor: info.host for executor, info in found.items()}
        self._there = [info.resources for info in found.values() if info.resources is not None]
        return found

    def slots_of(self, deploys: Sequence[Deploy], budget: int) -> BatchSlots | None:
        granted = [(deploy, deploy.slots) for deploy in deploys if deploy.slots is not None]
        if not granted:
            return None
        deploy, grants = granted[0]
        places = self._places(grants) if grants.insists else ()
        if not grants.profile.is_specified:
            return BatchSlots(places=places)
        information = self._information(deploy, grants, budget)
        environment = thread_environment(information.threads)
        return BatchSlots(self._spark_profile(grants.group, grants.profile), information, environment, places)

    def decisions(self) -> list[Decision]:
        assert self.mode is not None
        rule, kept = _KEPT[self.mode.enforcement]
        source = self._workers.source()
        inputs = {
            "master": self._context.master,
            "memory of workers": source,
            FRAMEWORK_MEMORY.key: self._framework,
            EXECUTOR_MEMORY.key: self._options[EXECUTOR_MEMORY],
        }
        return [
            Decision(
                at=0.0,
                what="slots",
                inputs=inputs,
                rule=rule,
                result=self.mode.enforcement.value,
                reason=f"{kept} Memory of a worker: {source}.",
            )
        ]

    def _information(self, deploy: Deploy, grants: SlotGrants, budget: int) -> SlotInformation:
        profile = grants.profile
        others = profile.memory - profile.managed_memory
        managed = profile.managed_memory or min(budget, others // 2)
        addresses = dict(zip(deploy.subtasks.tolist(), grants.addresses, strict=True)) if grants.addresses else {}
        return SlotInformation(
            grants.group,
            profile.cpu_cores,
            profile.memory - profile.network_memory,
            profile.memory + self._framework if self._options[MEMORY_WATCH] else 0,
            managed,
            max(1, int(profile.cpu_cores)),
            dict(profile.external),
            addresses,
            self._options[EXTERNAL_IDLE_TIMEOUT],
        )

    def _places(self, grants: SlotGrants) -> list[tuple[int, str]]:
        """Empty where any worker is not known (pending)."""
        names = [grants.executors.names[code] if code >= 0 else "" for code in grants.executors.codes.tolist()]
        if not all(name in self._hosts for name in names):
            return []
        return [(len(list(run)), f"executor_{self._hosts[name]}_{name}") for name, run in groupby(names)]

    def _spark_profile(self, group: str, profile: ResourceProfile) -> Any:
        assert self.mode is not None
        if self.mode.enforcement is SlotEnforcement.POOL or not profile.is_specified:
            return None
        need = self._need(group, profile)
        made = spark_profile(self._context, need, group)
        if need.executor is not None:
            self._workers.profile_made(made.id, profile, need.executor.slots_memory)
        return made

    def _need(self, group: str, profile: ResourceProfile) -> Need:
        if self.mode is None or self.mode.enforcement is SlotEnforcement.TASK_PROFILES:
            return task_need(profile)
        return executor_need(
            profile,
            self._conf,
            framework=self._framework,
            dataframes=group in self._with_dataframes,
            overhead_counts=counts_overhead(self._context),
        )


def _holds(worker: WorkerResources, profile: ResourceProfile, framework: int) -> bool:
    external = all(worker.external.get(name, 0.0) >= amount for name, amount in profile.external)
    return external and worker.cpu_cores >= profile.cpu_cores and worker.memory >= profile.memory + framework


_KEPT = {
    SlotEnforcement.POOL: (
        "a local master",
        "Spark knows no resource profiles on a local master: the slot pool admits by cores, memory and external resources, and "
        "hands out addresses; a watch in the worker enforces memory.",
    ),
    SlotEnforcement.TASK_PROFILES: (
        "executors that are there (no dynamic allocation)",
        "Spark enforces cores and external resources of a slot by a resource profile of tasks; memory is admitted by the slot "
        "pool and enforced by a watch in the worker.",
    ),
    SlotEnforcement.EXECUTOR_PROFILES: (
        "dynamic allocation",
        "Spark makes executors that fit a slot's resource profile, and enforces cores and external resources; a watch in the "
        "worker enforces memory.",
    ),
}


_STEP = 64 * MIB
_lock = threading.Lock()
_made: dict[tuple[str, Need], Any] = {}
"""By Spark application and need."""


@dataclass(frozen=True, slots=True)
class ExecutorNeed:
    """``memory``, ``off_heap`` and ``overhead``: MiB; ``slots_memory``: bytes of them that are for slots.
    ``external``: (name, amount, discovery script, vendor)."""

    cores: int
    memory: int
    off_heap: int
    overhead: int
    external: tuple[tuple[str, int, str, str], ...] = ()
    slots_memory: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """Resources that Spark is asked for. ``executor``: None on the executors that there are."""

    cpus: int
    external: tuple[tuple[str, float], ...] = ()
    executor: ExecutorNeed | None = None


def task_need(profile: ResourceProfile) -> Need:
    return Need(max(1, math.ceil(profile.cpu_cores)), profile.external)


def executor_need(
    profile: ResourceProfile, conf: Any, *, framework: int, dataframes: bool, overhead_counts: bool
) -> Need:
    """``conf``: the session's. ``framework``: bytes per slot that no profile tells of. ``dataframes``: the group has
    DataFrame steps. ``overhead_counts``: the cluster manager counts the overhead.

    Raises UsageError for an external resource that the session has no discovery script for.
    """
    task = task_need(profile)
    external = [_external(conf, name, amount) for name, amount in profile.external]
    slots = max(1, int(conf.get("spark.executor.cores", "1")) // task.cpus)
    for (_, amount), (_, addresses, _, _) in zip(profile.external, external, strict=True):
        slots = min(slots, max(1, int(addresses / amount)))
    offered = tuple(
        (name, math.ceil(slots * amount), script, vendor)
        for (_, amount), (name, _, script, vendor) in zip(profile.external, external, strict=True)
    )
    heap = spark_bytes(conf.get("spark.executor.memory", "1g"), "m")
    jvm = off_heap = 0
    if dataframes:
        jvm, off_heap = slots * profile.task_heap_memory, slots * profile.task_off_heap_memory * has_off_heap(conf)
    python = _rounded(slots * (profile.memory + framework) - jvm - off_heap)
    heap = max(heap, jvm)
    overhead = default_overhead(conf) + python if overhead_counts else 0
    memory = heap if overhead_counts else heap + python
    executor = ExecutorNeed(
        slots * task.cpus, _mib(memory), _mib(off_heap), _mib(overhead), offered, jvm + off_heap + python
    )
    return Need(task.cpus, task.external, executor)


def spark_profile(context: Any, need: Need, group: str) -> Any:
    """A ``pyspark.resource.ResourceProfile``: the same object for the same need. Tried once whether this session's Spark takes it.

    ``group``: for whom, in the words of an error. Raises UsageError with Spark's reason.
    """
    key = context.applicationId, need
    with _lock:
        if key not in _made:
            try:
                made = _build(need)
                context._jsc.sc().resourceProfileManager().isSupported(made._java_resource_profile)
            except Exception as error:
                raise UsageError(
                    f"Spark cannot give slots to the group '{group}' on '{context.master}': {_reason(error)}",
                    hint="Remove the resources of the group (a group without any runs anywhere), or change the session's settings.",
                ) from error
            _made[key] = made
        return _made[key]


def _build(need: Need) -> Any:
    from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests

    task = TaskResourceRequests().cpus(need.cpus)
    for name, amount in need.external:
        task.resource(name, amount)
    builder = ResourceProfileBuilder().require(task)
    if need.executor is not None:
        asked = ExecutorResourceRequests().cores(need.executor.cores).memory(f"{need.executor.memory}m")
        if need.executor.off_heap:
            asked.offheapMemory(f"{need.executor.off_heap}m")
        if need.executor.overhead:
            asked.memoryOverhead(f"{need.executor.overhead}m")
        for name, amount, script, vendor in need.executor.external:
            asked.resource(name, amount, script, vendor)
        builder.require(asked)
    return builder.build


def _external(conf: Any, name: str, amount: float) -> tuple[str, int, str, str]:
    """(name, addresses that an executor may have, discovery script, vendor)."""
    key = f"spark.executor.resource.{name}"
    script = conf.get(f"{key}.discoveryScript", "")
    if not script and not str(conf.get("spark.master", "")).startswith("spark://"):
        raise UsageError(
            f"The session has no discovery script for the external resource '{name}'.",
            hint=f"Set {key}.discoveryScript to a script that every node has and that prints its addresses as JSON.",
        )
    addresses = int(conf.get(f"{key}.amount", "0")) or max(1, math.ceil(amount))
    return name, addresses, script, conf.get(f"{key}.vendor", "")


def _reason(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage()).partition("\n")[0]
    return text if text.endswith(".") else f"{text}."


def _rounded(nbytes: int) -> int:
    """Up to the next multiple of 64 MiB, or of an eighth of the greatest power of two in it."""
    step = max(_STEP, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // step) * step


def _mib(nbytes: int) -> int:
    return -(-nbytes // MIB)

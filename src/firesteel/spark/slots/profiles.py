"""Spark resource profiles for slots: one per distinct need, used by all jobs of a session, for Spark never forgets one.

A slot's CPU cores, rounded up (Spark counts whole cores), and its external resources are what a task asks for. With dynamic
allocation the profile also says what executors to make: as many slots each as the session's ``spark.executor.cores`` allow (one,
where that is not set, or a slot is larger), and for external resources no more than the session's executors have.

Memory of executors. Steps that are batch functions live in Python workers: all their memory, and the framework's per slot, go
to the overhead, and the heap stays the session's. With DataFrame steps, heap goes to the executor's memory and off-heap
memory to Spark's (where it may use any), the rest to the overhead. A standalone master counts the heap alone: there the
overhead is added to it, for a promise that nobody counts is none. Overhead is rounded up by an eighth at most, so
that a little more of it (network memory) needs no other executors.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

from firesteel.errors import UsageError
from firesteel.options import MIB
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.spark.session.task_memory import spark_bytes
from firesteel.spark.slots.workers import default_overhead, has_off_heap

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

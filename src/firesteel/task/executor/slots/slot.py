"""The slot of a running execution, as its worker knows it, and as functions of users are told. Stdlib only, for executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from firesteel.errors import UsageError

THREADS_VARIABLE = "FIRESTEEL_SLOT_THREADS"
"""For our workers, which set OMP_NUM_THREADS by it: Spark sets that itself, to the CPUs of a task of no profile."""
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)
"""Sizes of thread pools that are read when a library is loaded."""


def thread_environment(threads: int) -> dict[str, str]:
    """Of Python workers whose thread pools have this size. Spark keeps separate workers for each environment."""
    return dict.fromkeys((THREADS_VARIABLE, *THREAD_VARIABLES), str(threads))


@dataclass(frozen=True, slots=True)
class SlotInformation:
    """The same for all executions of a batch, but for ``addresses``. A batch without one runs in Spark's own slots.

    ``memory``: bytes that its group asked for. ``limit``: most resident bytes of the worker, its interpreter counted; 0: not
    watched. ``managed_memory``: what operators, readers and writers hold before they spill; 0: as usual. ``threads``: of
    thread pools. ``idle_seconds``: so long a process that holds external resources is kept for tasks to come.
    """

    group: str
    cpu_cores: float
    memory: int
    limit: int
    managed_memory: int
    threads: int
    external: Mapping[str, float] = field(default_factory=dict)
    addresses: Mapping[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Subtask to the addresses of its external resources, where the slot pool hands them out; else Spark's own task says."""
    idle_seconds: float = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class TaskResources:
    """Resources that a running task may use. Immutable.

    ``group``: its slot sharing group. ``cpu_cores``: of its slot; of a coarse group, what Spark gives each task.
    ``memory``: bytes that the group asked for, of all kinds; 0: of a coarse group. ``managed_memory``: the bytes of it that
    Firesteel's own operators, readers and writers may hold; 0: as ``firesteel`` decides by itself. ``memory_limit``: most
    resident bytes of its Python worker, beyond which it is stopped: ``memory``, network memory and
    ``firesteel.memory.framework`` together, for the interpreter, libraries and child processes are counted; 0: not limited.
    ``external``: amount by name. ``addresses``: by name, for example ``{"gpu": ("0",)}``; no other task on the same machine
    holds these while this one runs (but shares of one, where the amount is a fraction).
    """

    group: str
    cpu_cores: float
    memory: int = 0
    managed_memory: int = 0
    memory_limit: int = 0
    external: Mapping[str, float] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "external", MappingProxyType(dict(self.external)))
        object.__setattr__(self, "addresses", MappingProxyType(dict(self.addresses)))

    def __repr__(self) -> str:
        return f"TaskResources({', '.join(f'{name}={value!r}' for name, value in self._plain().items())})"

    def __reduce__(self) -> tuple[Any, ...]:  # views of dictionaries cannot be pickled
        return TaskResources, tuple(self._plain().values())

    def _plain(self) -> dict[str, Any]:
        held = {one.name: getattr(self, one.name) for one in fields(self)}
        return held | {"external": dict(self.external), "addresses": dict(self.addresses)}


@dataclass(frozen=True, slots=True)
class _Task:
    group: str
    subtask: int
    slot: SlotInformation | None


_current: _Task | None = None


def task_resources() -> TaskResources:
    """Returns what the calling task was given: CPU cores, memory, external resources and their addresses.

    For functions of steps, sources and sinks while they run in a task, in any thread of the worker. Raises UsageError
    elsewhere. Source: FLIP-169, as Flink's RuntimeContext.getExternalResourceInfos.
    """
    if _current is None:
        raise UsageError(
            "firesteel.task_resources() was called outside of a task: there is no slot.",
            hint="Call it inside the function of a step, in a source's read or in a sink's writer.",
        )
    slot, addresses = _current.slot, addresses_of(_current.slot, _current.subtask)
    if slot is None:
        held = {name: float(len(own)) for name, own in addresses.items()}
        return TaskResources(_current.group, float(_spark_task().cpus()), external=held, addresses=addresses)
    memory = slot.memory, slot.managed_memory, slot.limit
    return TaskResources(slot.group, slot.cpu_cores, *memory, slot.external, addresses)


def addresses_of(slot: SlotInformation | None, subtask: int) -> dict[str, tuple[str, ...]]:
    """Of external resources, by name: those the slot pool handed out, else what Spark gave the task at hand."""
    if slot is not None:
        if not slot.external:
            return {}
        if subtask in slot.addresses:
            return dict(slot.addresses[subtask])
    return {name: tuple(given.addresses) for name, given in (_spark_task().resources() or {}).items()}


def begin_slot(group: str, subtask: int, slot: SlotInformation | None) -> None:
    """From now on the task at hand is this one."""
    global _current  # noqa: PLW0603
    _current = _Task(group, subtask, slot)


def end_slot() -> None:
    global _current  # noqa: PLW0603
    _current = None


def _spark_task() -> Any:
    from pyspark import TaskContext

    return TaskContext.get()

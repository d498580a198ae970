"""The slot of a running execution, as its worker knows it. Stdlib only, for executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

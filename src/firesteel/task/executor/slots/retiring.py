"""Retiring of reused Python workers: the executions that a worker may still take, and the exit of one that may take none.

CUDA and OpenMP keep what they saw first, and a heap that has grown does not shrink for sure. So a worker that began with other
external resources or other threads, or that holds so much since earlier tasks that one like those would pass the limit,
takes no execution in a slot: it hands it back and goes, and Spark forks another. (What a worker keeps on purpose, a model that
was loaded once, does no harm as long as its tasks fit beside it; functions with a set-up go first.)
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from firesteel.task.executor.slots.memory_watch import Resident
from firesteel.task.executor.slots.slot import THREAD_VARIABLES, THREADS_VARIABLE, SlotInformation
from firesteel.task.functions import instances

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""Variable that names the devices CUDA's libraries may use; set for the resource "gpu", unless the worker's environment has it."""
Addresses = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Began:
    addresses: Addresses
    threads: int


_began: _Began | None = None
"""With what this process took its first execution in a slot."""
_passing = 0
"""Most bytes that an execution in a slot held here for a time: its peak, less what was left at its end."""
_growth: int | None = None
"""Least bytes by which an execution in a slot grew this process to its peak; but not the first, which loads what stays."""
_ended = 0
"""Executions in a slot that finished here."""
_environment: dict[str, str] | None = None
"""Of this process, as it was before its first execution in a slot."""
_before = 0
"""Bytes held when the execution at hand began."""


def take(slot: SlotInformation, addresses: Addresses, resident: Resident | None) -> str:
    """Makes this process ready for an execution in ``slot``; else why it cannot be, in words.

    To be called before anything of the user's is loaded.
    """
    global _began, _before  # noqa: PLW0603
    _before = 0 if resident is None else resident.look()
    if _began is None:
        _began = _Began(addresses, slot.threads)
        _set_environment(slot, addresses)
        return ""
    if _began.addresses != addresses:
        return "it began with other external resources"
    if _began.threads != slot.threads and os.environ.get(THREADS_VARIABLE) != str(slot.threads):
        return "it began with other threads"
    if resident is not None and slot.limit and _is_full(slot.limit, resident):
        return "it holds too much since earlier tasks"
    return ""


def environment() -> dict[str, str]:
    """Of this process, without what an execution in a slot has set: for a process that holds other addresses, or has other threads."""
    return dict(os.environ) if _environment is None else dict(_environment)


def has_ended(peak: int, resident: Resident) -> None:
    """An execution in a slot has finished here."""
    global _ended, _growth, _passing  # noqa: PLW0603
    _passing = max(_passing, peak - resident.look())
    if _ended:
        grown = max(0, peak - _before)
        _growth = grown if _growth is None else min(_growth, grown)
    _ended += 1


def retire() -> None:
    """Spark throws this worker away when the task at hand has ended.

    As it does with one that left some of its input unread, which a task that has read all of it cannot do any more: at its end
    PySpark's worker compares what it reads then with this number, and tells Spark that they differ.
    """
    from pyspark.serializers import SpecialLengths

    setattr(SpecialLengths, "END_OF_STREAM", _NEVER_READ)  # noqa: B010 (the class is typed)


_NEVER_READ = -(1 << 20)


def _is_full(limit: int, resident: Resident) -> bool:
    wanted = max(_passing, _growth or 0)
    if resident.look() + wanted <= limit:
        return False
    instances.let_go()
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    return resident.look() + wanted > limit


def _set_environment(slot: SlotInformation, addresses: Addresses) -> None:
    """For what the user's code loads later on; what is loaded already was told when the process was started."""
    global _environment  # noqa: PLW0603
    _environment = dict(os.environ)
    os.environ["OMP_NUM_THREADS"] = str(slot.threads)
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(slot.threads))
    if addresses.get("gpu"):
        os.environ.setdefault(VISIBLE_DEVICES, ",".join(addresses["gpu"]))

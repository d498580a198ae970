"""Which executions a reused Python worker may still take, and how one that may not is thrown away.

CUDA and OpenMP keep what they saw first, and a heap that has grown does not shrink for sure. So a worker that began with other
external resources or other threads, or that still holds much of what an earlier task asked for, takes no execution in a
slot: it hands it back and goes, and Spark forks another.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from firesteel.spark.resident import Resident
from firesteel.spark.slot import THREAD_VARIABLES, THREADS_VARIABLE, SlotInformation

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""What CUDA's libraries may use; set for the resource "gpu", unless the worker's environment sets it already."""
LEFT_OVER = 0.25
"""Of the slot's limit: a worker that holds so much more than when it was new is not reused."""
Addresses = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Began:
    addresses: Addresses
    threads: int
    resident: int


_began: _Began | None = None
"""With what this process took its first execution in a slot."""


def take(slot: SlotInformation, addresses: Addresses, resident: Resident | None) -> str:
    """Makes this process ready for an execution in ``slot``; else why it cannot be, in words.

    To be called before anything of the user's is loaded.
    """
    global _began  # noqa: PLW0603
    if _began is None:
        _began = _Began(addresses, slot.threads, 0 if resident is None else resident.look())
        _set_environment(slot, addresses)
        return ""
    if _began.addresses != addresses:
        return "it began with other external resources"
    if _began.threads != slot.threads and os.environ.get(THREADS_VARIABLE) != str(slot.threads):
        return "it began with other threads"
    if resident is not None and slot.memory and _left_over(_began, slot, resident):
        return "it still holds memory of an earlier task"
    return ""


def retire() -> None:
    """Spark throws this worker away when the task at hand has ended.

    As it does with one that left some of its input unread, which a task that has read all of it cannot do any more: at its end
    PySpark's worker compares what it reads then with this number, and tells Spark that they differ.
    """
    from pyspark.serializers import SpecialLengths

    setattr(SpecialLengths, "END_OF_STREAM", _NEVER_READ)  # noqa: B010 (the class is typed)


_NEVER_READ = -(1 << 20)


def _left_over(began: _Began, slot: SlotInformation, resident: Resident) -> bool:
    most = began.resident + LEFT_OVER * max(0, slot.memory - began.resident)
    if resident.look() <= most:
        return False
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    return resident.look() > most


def _set_environment(slot: SlotInformation, addresses: Addresses) -> None:
    """For what the user's code loads later on; what is loaded already was told when the process was started."""
    os.environ["OMP_NUM_THREADS"] = str(slot.threads)
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(slot.threads))
    if addresses.get("gpu"):
        os.environ.setdefault(VISIBLE_DEVICES, ",".join(addresses["gpu"]))

"""Memory that one task may hold by default: from the machine or container, the heap and the slots."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from firesteel.options import GIB, MIB
from firesteel.spark.session.sessions import setting

MOST = 1 * GIB
LEAST = 16 * MIB
"""Below this, buffers of a few batches no longer fit; a machine that small has other troubles."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Bytes this process may use: the container's limit if it has one, else the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


@lru_cache(maxsize=1)
def memory_beside_heap(context: Any) -> int:
    """Bytes that the driver's machine or container has beside the heap of its JVM."""
    return max(0, machine_memory() - spark_bytes(setting(context, "spark.driver.memory", "1g"), "m"))


def budget_per_task(memory: int, heap: int, slots: int) -> int:
    """Half of what the heap leaves, divided by the task slots that share it; bytes. The other half is for user functions."""
    return max(LEAST, min(MOST, (memory - heap) // 2 // max(1, slots)))


def spark_bytes(text: str, unit: str = "b") -> int:
    """Bytes of a size as Spark writes it (``1g``, ``512m``). ``unit``: of a plain number; Spark counts heaps and overheads in MiB ("m")."""
    match = re.fullmatch(r"\s*(\d+)\s*([bkmgtp]?)b?\s*", text.lower())
    if match is None:
        return GIB
    return int(match[1]) << {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}[match[2] or unit]

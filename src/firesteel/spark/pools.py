"""Names of FAIR scheduler pools. Spark never forgets a pool, so names are lent out and used again."""

from __future__ import annotations

import heapq
import threading
from typing import Any

URGENT = "firesteel-urgent"
"""Defined in fairscheduler.xml, in sessions that we make: Spark serves it before all others."""
_lock = threading.Lock()
_free: list[int] = []
_made = 0
_urgent: dict[str, bool] = {}
"""By application, whether it has that pool."""


def borrow() -> str:
    """A pool that no other batch uses at the moment: what is in it shares the slots fairly with all other pools."""
    global _made  # noqa: PLW0603
    with _lock:
        if _free:
            return f"firesteel-{heapq.heappop(_free)}"
        _made += 1
        return f"firesteel-{_made - 1}"


def urgent(context: Any) -> str:
    """The pool for what must not queue. In a session that lacks it a fresh one, which comes first since nothing of it runs.

    In a FIFO session no pool helps: there work is handed to Spark only when a slot is free.
    """
    application = context.applicationId
    if application not in _urgent:
        pool = context._jsc.sc().getPoolForName(URGENT)
        _urgent[application] = bool(pool.isDefined() and int(pool.get().minShare()) > 0)
    return URGENT if _urgent[application] else borrow()


def give_back(name: str) -> None:
    if name != URGENT:
        with _lock:
            heapq.heappush(_free, int(name.rpartition("-")[2]))


def is_fair(context: Any) -> bool:
    """Whether Spark shares its slots among jobs; else (FIFO) they go to the oldest first."""
    return context._jsc.sc().getSchedulingMode().toString() == "FAIR"

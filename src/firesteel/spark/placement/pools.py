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

    In a FIFO session no pool helps, see ``queueing``.
    """
    return URGENT if has_urgent(context) else borrow()


def has_urgent(context: Any) -> bool:
    """Returns True if this session has the pool for urgent batches. Asked once per session."""
    application = context.applicationId
    if application not in _urgent:
        pool = context._jsc.sc().getPoolForName(URGENT)
        _urgent[application] = bool(pool.isDefined() and int(pool.get().minShare()) > 0)
    return _urgent[application]


def is_fair(context: Any) -> bool:
    """Returns True if the session shares its slots among pools (FAIR); else its jobs are served in the order they came."""
    return str(context._jsc.sc().getSchedulingMode().toString()) == "FAIR"


def give_back(name: str) -> None:
    if name != URGENT:
        with _lock:
            heapq.heappush(_free, int(name.rpartition("-")[2]))

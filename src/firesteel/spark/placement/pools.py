"""Names of FAIR scheduler pools. Spark never forgets a pool, so names are lent out and used again."""

from __future__ import annotations

import heapq
import threading
from typing import Any

from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.session.sessions import grows

URGENT = "firesteel-urgent"
"""Defined in fairscheduler.xml, in sessions that we make: Spark serves it before all others."""
BOUNDED = "no more than there are slots"
ALL = "all that can run"
_URGENT = "mirrors go to Spark's pool of what is urgent, which it serves first"
_FRESH = "each mirror goes to a pool in which nothing else runs, which Spark serves first"
_SLOTS = (
    "this session serves its jobs in the order they came (FIFO), and a mirror would wait for all that was sent before it: "
    "so no more is sent than there are slots"
)
_GROWS = (
    "this session serves its jobs in the order they came (FIFO), so a mirror waits for what was sent before it; that "
    "is not held back all the same, since the session asks for executors by what waits (spark.dynamicAllocation)"
)
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

    In a FIFO session no pool helps, see :func:`queue_of`.
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


def queue_of(context: Any) -> Decision:
    """Decides how much of a job that speculates is sent to Spark at once, so that mirrors get past what their own job has queued: ``result``, and why."""
    fair = is_fair(context)
    growing = grows(context)
    if fair:
        result, reason = ALL, _URGENT if has_urgent(context) else _FRESH
    else:
        result, reason = (ALL, _GROWS) if growing else (BOUNDED, _SLOTS)
    inputs = {"spark.scheduler.mode": "FAIR" if fair else "FIFO", "spark.dynamicAllocation.enabled": growing}
    return Decision(
        at=0.0, what="queue", inputs=inputs, rule="spark.scheduler.mode", result=result, reason=f"{reason}."
    )

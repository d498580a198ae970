"""Queueing of mirrors: how they get past what their own job has queued in Spark, by how the session serves its jobs."""

from __future__ import annotations

from typing import Any

from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.placement import pools
from firesteel.spark.session.sessions import grows

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


def queue_of(context: Any) -> Decision:
    """Decides how much of a job that speculates is sent to Spark at once: ``result``, and why."""
    fair = pools.is_fair(context)
    growing = grows(context)
    if fair:
        result, reason = ALL, _URGENT if pools.has_urgent(context) else _FRESH
    else:
        result, reason = (ALL, _GROWS) if growing else (BOUNDED, _SLOTS)
    inputs = {"spark.scheduler.mode": "FAIR" if fair else "FIFO", "spark.dynamicAllocation.enabled": growing}
    return Decision(
        at=0.0, what="queue", inputs=inputs, rule="spark.scheduler.mode", result=result, reason=f"{reason}."
    )

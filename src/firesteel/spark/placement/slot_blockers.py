"""Keeps the free slots of blocked nodes occupied, so that what waits for a slot waits for one elsewhere.

Spark cannot leave a node out: whatever is queued when a node is blocked would start there as soon as it has a free slot, and be
rejected, one execution after another. So the first that is rejected makes its driver send a slot blocker there: a task
which sleeps until its node is not blocked any more. It goes to the urgent pool, hence to that slot before all that waits.

Jobs that run at once in a session block nodes of their own, and each feels the others' slot blockers: together they leave a slot free.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from firesteel.spark.driver.threads import cancel_jobs, local_properties
from firesteel.spark.placement import pools
from firesteel.spark.placement.node_names import NodeNames, preferring
from firesteel.task.executor.information import Blob
from firesteel.task.executor.spark_task import is_blocked_here

LOOK_SECONDS = 0.25
_lock = threading.Lock()
_log = logging.getLogger("firesteel.spark")


class SlotBlockerFunction:
    """The function that Spark runs: ends at once where it is not needed. Picklable by name, carries bytes only."""

    def __init__(self, job: Blob) -> None:
        self.job = job

    def __call__(self, rows: Iterator[bytes]) -> Iterator[bytes]:
        for _ in rows:
            while is_blocked_here(self.job):
                time.sleep(LOOK_SECONDS)
        return iter(())


@dataclass(eq=False)
class _SlotBlocker:
    tag: str
    node: str
    ended: threading.Event = field(default_factory=threading.Event)


_standing: dict[str, list[_SlotBlocker]] = {}
"""By application, those of all jobs that were not seen to end."""


class SlotBlockers:
    """Of one job. Used by its thread only."""

    def __init__(self, context: Any, job: Blob, job_id: str, nodes: NodeNames) -> None:
        self._context, self._job, self._job_id, self._nodes = context, job, job_id, nodes
        self._number = 0
        self._standing: dict[str, list[_SlotBlocker]] = {}
        """By node, those that were not seen to end."""

    def occupy_slot(self, node: str) -> bool:
        """A slot of this node is free: it gets a blocker, unless there is one for each of its slots, or one
        for each other slot of the session already. Returns at once."""
        executors = self._nodes.executors_of([node])
        standing = self._standing[node] = [p for p in self._standing.get(node, ()) if not p.ended.is_set()]
        if len(standing) >= sum(one.slots for one in executors.values()):
            return False
        blocker = _SlotBlocker(f"firesteel-{self._job_id}-slot-blocker-{self._number + 1}", node)
        if not _stand(self._context.applicationId, blocker, sum(one.slots for one in self._nodes.executors().values())):
            return False
        self._number += 1
        standing.append(blocker)
        self._start(blocker, [f"executor_{one.host}_{executor}" for executor, one in executors.items()])
        return True

    def stop(self, seconds: float) -> None:
        """Asks Spark to cancel those that stand, and waits for that, but not for ever."""
        left = [blocker for standing in self._standing.values() for blocker in standing if not blocker.ended.is_set()]
        for blocker in left:
            cancel_jobs(self._context, blocker.tag, blocker.ended)
        until = time.monotonic() + seconds
        for blocker in left:
            blocker.ended.wait(max(0.0, until - time.monotonic()))

    def _start(self, blocker: _SlotBlocker, locations: list[str]) -> None:
        def body() -> None:
            try:
                inherit()
                self._run(blocker, locations)
            except Exception:  # cancelled, or its executor is gone: nothing depends on it
                _log.debug("slot blocker %s ended early", blocker.tag, exc_info=True)
            finally:
                blocker.ended.set()

        try:
            inherit = local_properties(self._context)
            threading.Thread(target=body, name=blocker.tag, daemon=True).start()
        except Exception:  # Spark is gone, or there are too many threads
            blocker.ended.set()

    def _run(self, blocker: _SlotBlocker, locations: list[str]) -> None:
        context, pool = self._context, pools.urgent(self._context)
        try:
            context.addJobTag(blocker.tag)
            context.setJobDescription(f"firesteel: keeps a slot of {blocker.node}, which is blocked")
            context.setLocalProperty("spark.scheduler.pool", pool)
            context.runJob(
                preferring(context, context.parallelize([b""], 1), 1, locations), SlotBlockerFunction(self._job)
            )
        finally:
            pools.give_back(pool)


def _stand(application: str, blocker: _SlotBlocker, slots: int) -> bool:
    """Counts one more blocker and returns True, if a slot of the session stays without one."""
    with _lock:
        standing = _standing[application] = [p for p in _standing.get(application, ()) if not p.ended.is_set()]
        if len(standing) + 1 >= slots:
            return False
        standing.append(blocker)
        return True

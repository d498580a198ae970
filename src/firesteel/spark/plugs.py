"""Keeps the free slots of blocked nodes occupied, so that what waits for a slot waits for one elsewhere.

Spark cannot leave a node out: whatever is queued when a node is blocked would start there as soon as it has a free slot, and be
handed back, one execution after another. So the first that is handed back makes its driver send a plug there: a task
which sleeps until its node is not blocked any more. It goes to the urgent pool, hence to that slot before all that waits.

Jobs that run at once in a session block nodes of their own, and each feels the others' plugs: together they leave a slot free.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from firesteel.spark import pools
from firesteel.spark.information import Blob
from firesteel.spark.nodes import NodeNames
from firesteel.spark.placing import preferring
from firesteel.spark.task import is_blocked_here
from firesteel.spark.threads import cancel_jobs, local_properties

LOOK_SECONDS = 0.25
_lock = threading.Lock()
_log = logging.getLogger("firesteel.spark")


class PlugFunction:
    """What Spark runs: ends at once where it is not needed. Picklable by name, carries bytes only."""

    def __init__(self, job: Blob) -> None:
        self.job = job

    def __call__(self, rows: Iterator[bytes]) -> Iterator[bytes]:
        for _ in rows:
            while is_blocked_here(self.job):
                time.sleep(LOOK_SECONDS)
        return iter(())


@dataclass(eq=False)
class _Plug:
    tag: str
    node: str
    ended: threading.Event = field(default_factory=threading.Event)


_standing: dict[str, list[_Plug]] = {}
"""By application, those of all jobs that were not seen to end."""


class Plugs:
    """Of one job. Used by its thread only."""

    def __init__(self, context: Any, job: Blob, job_id: str, nodes: NodeNames) -> None:
        self._context, self._job, self._job_id, self._nodes = context, job, job_id, nodes
        self._number = 0
        self._standing: dict[str, list[_Plug]] = {}
        """By node, those that were not seen to end."""

    def hold(self, node: str) -> bool:
        """A slot of this node is free: it gets a plug, unless there is one for each of its slots, or one
        for each other slot of the session already. Returns at once."""
        executors = self._nodes.executors_of([node])
        standing = self._standing[node] = [p for p in self._standing.get(node, ()) if not p.ended.is_set()]
        if len(standing) >= sum(one.slots for one in executors.values()):
            return False
        plug = _Plug(f"firesteel-{self._job_id}-plug-{self._number + 1}", node)
        if not _stand(self._context.applicationId, plug, sum(one.slots for one in self._nodes.executors().values())):
            return False
        self._number += 1
        standing.append(plug)
        self._start(plug, [f"executor_{one.host}_{executor}" for executor, one in executors.items()])
        return True

    def stop(self, seconds: float) -> None:
        """Asks Spark to cancel those that stand, and waits for that, but not for ever."""
        left = [plug for standing in self._standing.values() for plug in standing if not plug.ended.is_set()]
        for plug in left:
            cancel_jobs(self._context, plug.tag, plug.ended)
        until = time.monotonic() + seconds
        for plug in left:
            plug.ended.wait(max(0.0, until - time.monotonic()))

    def _start(self, plug: _Plug, locations: list[str]) -> None:
        def body() -> None:
            try:
                inherit()
                self._run(plug, locations)
            except Exception:  # cancelled, or its executor is gone: nothing depends on it
                _log.debug("plug %s was given up", plug.tag, exc_info=True)
            finally:
                plug.ended.set()

        try:
            inherit = local_properties(self._context)
            threading.Thread(target=body, name=plug.tag, daemon=True).start()
        except Exception:  # Spark is gone, or there are too many threads
            plug.ended.set()

    def _run(self, plug: _Plug, locations: list[str]) -> None:
        context, pool = self._context, pools.urgent(self._context)
        try:
            context.addJobTag(plug.tag)
            context.setJobDescription(f"firesteel: keeps a slot of {plug.node}, which is blocked")
            context.setLocalProperty("spark.scheduler.pool", pool)
            context.runJob(preferring(context, context.parallelize([b""], 1), 1, locations), PlugFunction(self._job))
        finally:
            pools.give_back(pool)


def _stand(application: str, plug: _Plug, slots: int) -> bool:
    """One more plug, if a slot of the session stays without one."""
    with _lock:
        standing = _standing[application] = [p for p in _standing.get(application, ()) if not p.ended.is_set()]
        if len(standing) + 1 >= slots:
            return False
        standing.append(plug)
        return True

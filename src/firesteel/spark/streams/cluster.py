"""The cores that a stream's tasks can use, as Spark tells of its executors; looked at now and then, told when it changed.

Nothing hurries: a change waits for a checkpoint anyway. A local master has what it has, and is told once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.scheduler.streaming.events import ClusterChanged
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.placement.status_store import SparkStatus
from firesteel.spark.session.sessions import grows, is_local
from firesteel.spark.streams.offers import Offers

LOOK_SECONDS = 1.0
_MOST = "spark.dynamicAllocation.maxExecutors"
_UNLIMITED = 1 << 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """Executors by id, those on excluded nodes in ``excluded``."""

    executors: Mapping[str, ExecutorInfo]
    excluded: frozenset[str] = frozenset()

    @property
    def cores(self) -> int:
        return sum(info.cores for executor, info in self.executors.items() if executor not in self.excluded)

    def compared(self, before: Cluster | None) -> str:
        """Returns what has changed, half a sentence; empty: nothing."""
        if before is None:
            return "the stream was started"
        gone = [
            f"executor {e} on {before.executors[e].host} was lost"
            for e in sorted(before.executors.keys() - self.executors)
        ]
        come = [
            f"executor {e} on {self.executors[e].host} came" for e in sorted(self.executors.keys() - before.executors)
        ]
        shut = [f"Spark excluded executor {e}" for e in sorted(self.excluded - before.excluded) if e in self.executors]
        open_ = [
            f"Spark uses executor {e} again" for e in sorted(before.excluded - self.excluded) if e in self.executors
        ]
        return ", ".join(gone + come + shut + open_)


class ClusterWatch:
    """Of one stream. ``look`` is called in one thread, about each LOOK_SECONDS."""

    def __init__(self, context: Any, offers: Offers | None) -> None:
        self._context = context
        self._offers = offers
        self._status = SparkStatus(context)
        self._local = is_local(context)
        self._dynamic = not self._local and grows(context)
        self._excludes = str(context.getConf().get("spark.excludeOnFailure.enabled", "false")).lower() == "true"
        self._ids: set[str] | None = None
        self._seen: set[str] = set()
        """Executors that have said what they are, whether they are for us or not."""
        self._known: Cluster | None = None

    @property
    def is_complete(self) -> bool:
        """Nothing will ever change."""
        return self._local and self._known is not None

    def look(self, at: float) -> ClusterChanged | None:
        """None: as it was. Raises when Spark is stopping."""
        if self.is_complete:
            return None
        ids = self._status.executor_ids()
        if ids == self._ids and not self._excludes:
            return None
        found = self._found(ids)
        if not self._local and self._seen == ids:  # one that is just coming has no cores yet
            self._ids = ids
        what = found.compared(self._known)
        self._known = found
        return self._event(found, what, at) if what else None

    def _found(self, ids: set[str]) -> Cluster:
        if self._local:
            cores = int(self._context.defaultParallelism)
            return Cluster({"driver": ExecutorInfo("this machine", cores, cores)})
        listed = {e: info for e, info in self._status.executors().items() if e in ids and info.host and info.cores}
        self._seen = set(listed)
        # Spark starts no task of a query on executors that were made for a resource profile.
        listed = {executor: info for executor, info in listed.items() if not info.profile_id}
        return Cluster(listed, self._status.excluded() if self._excludes else frozenset())

    def _event(self, found: Cluster, what: str, at: float) -> ClusterChanged:
        usable = [info for executor, info in found.executors.items() if executor not in found.excluded]
        cores, limited, usable_then = found.cores, False, usable
        if self._dynamic:
            most = int(self._context.getConf().get(_MOST, str(_UNLIMITED)))
            limited = most < _UNLIMITED
            each = max((info.cores for info in usable), default=0)
            cores = max(cores, most * each) if limited else cores
            if limited and usable:  # those to come are like the largest that is there
                largest = max(usable, key=lambda info: info.cores)
                usable_then = [*usable, *[largest] * (most - len(usable))]
        return ClusterChanged(
            at=at,
            cores=cores,
            executors=len(usable),
            excluded=sum(found.executors[e].cores for e in found.excluded if e in found.executors),
            complete=self._local,
            dynamic=self._dynamic,
            limited=limited,
            offers=() if self._offers is None else self._offers.of(usable_then),
            what=what,
        )

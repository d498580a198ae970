"""Names of nodes on the driver: what can be slow, be blocked or die as one, alike in all that the scheduler hears.

A node is a host; an executor, where several share the one and only host (``host (executor 3)``); or what an environment
variable of the executors says (``firesteel.node.environment-variable``), which only they can tell. An executor that was
named keeps its name.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.scheduler.slots.resource_profile import ResourceProfile, WorkerResources
from firesteel.task.executor.place import Place

_labels: dict[tuple[str, str], dict[str, str]] = {}
"""Spark application and variable to what its executors have said, for the jobs to come."""


def learn(application: str, variable: str, places: Iterable[Place]) -> None:
    """Keeps what executors say of themselves before a job."""
    known = _labels.setdefault((application, variable), {})
    known.update({place.executor: place.label for place in places if place.label and place.executor})


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """``external``: addresses by name; ``profile_id``: of the Spark resource profile it was made for. ``resources`` and
    ``profile``: what it gives to slots, where slots are more than Spark's own."""

    host: str
    slots: int
    cores: int = 0
    external: tuple[tuple[str, tuple[str, ...]], ...] = ()
    profile_id: int = 0
    resources: WorkerResources | None = None
    profile: ResourceProfile | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An executor came (or has another name than was told), or went."""

    executor: str
    info: ExecutorInfo
    node: str
    added: bool


class NodeNames:
    """Of one job. Used by its thread and by the watcher's."""

    def __init__(self, application: str = "", variable: str | None = None) -> None:
        self._labels = _labels.setdefault((application, variable), {}) if variable else None
        self._lock = threading.Lock()
        self._executors: dict[str, ExecutorInfo] = {}
        self._names: dict[str, str] = {}
        self._told: dict[str, tuple[ExecutorInfo, str]] = {}

    @property
    def by_label(self) -> bool:
        """A variable names them: an executor may get its name long after it came."""
        return self._labels is not None

    def update(self, listed: Mapping[str, ExecutorInfo]) -> list[Change]:
        """Takes all executors that there are now. Returns what the scheduler has to be told, the lost ones first."""
        with self._lock:
            self._executors = dict(listed)
            now = {executor: (info, self._name(executor, info.host)) for executor, info in listed.items()}
            before, self._told = self._told, now
        gone = [Change(e, *before[e], added=False) for e in sorted(before.keys() - now.keys())]
        return gone + [Change(e, *now[e], added=True) for e in sorted(now) if before.get(e) != now[e]]

    def of(self, executor: str, host: str) -> str:
        """The node of an executor, as Spark tells of it."""
        with self._lock:
            info = self._executors.get(executor)
            return self._name(executor, host if info is None else info.host)

    def of_place(self, text: str) -> str:
        """The node of a worker, as its message tells of it (``Place.encoded``)."""
        place = Place.decode(text)
        with self._lock:
            executor = place.executor or self._alone_on(place.host)
            if not executor:
                return place.label or place.host
            if self._labels is not None and place.label:
                self._labels[executor] = place.label
            info = self._executors.get(executor)
            return self._name(executor, place.host if info is None else info.host)

    def executors(self) -> dict[str, ExecutorInfo]:
        """All that are there now."""
        with self._lock:
            return dict(self._executors)

    def executors_of(self, nodes: Collection[str]) -> dict[str, ExecutorInfo]:
        """Returns the executors that are there now."""
        with self._lock:
            return {e: info for e, info in self._executors.items() if self._name(e, info.host) in nodes}

    def signs(self, nodes: Collection[str]) -> tuple[str, ...]:
        """By which a worker knows that it is on one of these nodes: one of its ``Place.signs`` is among them."""
        executors = [f"executor {executor}" for executor in self.executors_of(nodes)]
        labels = [f"label {node}" for node in nodes] if self._labels is not None else []
        return tuple(sorted(executors) + sorted(labels))

    def _name(self, executor: str, host: str) -> str:
        if self._labels is not None and executor in self._labels:
            return self._labels[executor]
        name = self._names.get(executor)
        if name is None:
            others = self._executors.keys() - {executor}
            shared = others and all(self._executors[other].host == host for other in others)
            name = f"{host} (executor {executor})" if shared else host
            if executor in self._executors:
                self._names[executor] = name
        return name

    def _alone_on(self, host: str) -> str:
        """The executor of a worker that does not know it: the only one there is, or the only one of its host."""
        own = [executor for executor, info in self._executors.items() if info.host == host]
        found = list(self._executors) if len(self._executors) == 1 else own
        return found[0] if len(found) == 1 else ""


MAX_WISHES = 20_000
"""Tasks times locations of one batch. Spark keeps a list per location and task; a larger batch goes where it may."""


def locations(nodes: NodeNames, avoid: Collection[str]) -> list[str]:
    """Of all other nodes, as Spark writes them: their hosts, or executors on a host that has an avoided node too.

    Empty where there is nothing to choose.
    """
    avoided = nodes.executors_of(avoid)
    if not avoided:
        return []
    hosts = {info.host for info in avoided.values()}
    others = {executor: info.host for executor, info in nodes.executors().items() if executor not in avoided}
    return sorted({f"executor_{host}_{executor}" if host in hosts else host for executor, host in others.items()})


def preferring(context: Any, rdd: Any, count: int, locations: Collection[str]) -> Any:
    """The RDD, each of its ``count`` partitions of one element preferring ``locations``; as it is where that is too much.

    A second RDD, of one element repeated, carries the wish, and the two are zipped inside the JVM: a handful of py4j
    calls, where telling a partition's locations one by one takes several for each.
    """
    if not locations or count * len(locations) > MAX_WISHES:
        return rdd
    return _carried(context, rdd, context._jvm.java.util.Collections.nCopies(count, _element(context, locations)))


def placed(context: Any, rdd: Any, runs: Sequence[tuple[int, str]]) -> Any:
    """The RDD, its first partitions of one element preferring the first location, as many as its run says, and so on: a few
    py4j calls for each run."""
    util = context._jvm.java.util
    elements = util.ArrayList()
    known: dict[str, Any] = {}
    for count, location in runs:
        if location not in known:
            known[location] = _element(context, [location])
        elements.addAll(util.Collections.nCopies(count, known[location]))
    return _carried(context, rdd, elements)


def _element(context: Any, locations: Collection[str]) -> Any:
    wish = context._jvm.java.util.ArrayList()
    for location in locations:
        wish.add(location)
    return context._jvm.scala.Tuple2("", context._jvm.PythonUtils.toSeq(wish))


def _carried(context: Any, rdd: Any, elements: Any) -> Any:
    from pyspark import RDD

    jvm = context._jvm
    listed = jvm.PythonUtils.toSeq(elements)
    carrier = context._jsc.sc().makeRDD(listed, jvm.scala.reflect.ClassTag.AnyRef()).toJavaRDD()
    return RDD(rdd._jrdd.zip(carrier).keys(), context, rdd._jrdd_deserializer)

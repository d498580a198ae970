"""A batch: executions that run as one Spark job, with its own tag, pool and description. They are of one vertex, or of the
vertices of pipelined regions, whose executions share tasks.

An ordinary vertex gets an RDD with exactly one partition per deployed subtask. A DataFrame vertex runs on the
partitions of its DataFrame, a subset of them where only some are deployed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.descriptors import encode_executions
from firesteel.scheduler.kernel.commands import Deploy, DeployRegions
from firesteel.spark.driver.serialise import dumps_splits
from firesteel.spark.driver.threads import cancel_jobs, local_properties
from firesteel.spark.placement import pools
from firesteel.spark.placement.node_names import placed, preferring
from firesteel.spark.placement.status_store import vertex_tag
from firesteel.spark.session.own_workers import AS_THEY_ARE, OwnWorkers
from firesteel.spark.session.sessions import with_settings
from firesteel.spark.session.versions import rows_of
from firesteel.spark.slots.provisioning import BatchSlots
from firesteel.spark.storage.blob_server import BlobServer
from firesteel.task.executor.information import Blob, VertexPart
from firesteel.task.executor.spark_task import BatchFunction, DataFrameFunction

Execution = tuple[int, int]
"""Vertex and subtask."""
_wrapping = threading.Lock()
"""Held while a function is wrapped for Python workers: PySpark reads ``SparkContext.environment`` then."""


@dataclass(eq=False)
class Batch:
    """``open``: the executions that have not reported yet, (vertex, subtask) to attempt. Touched by the job's thread only."""

    id: int
    deploys: tuple[Deploy, ...]
    """One; of pipelined regions one per vertex, of the same subtasks: a task runs one execution of each."""
    tag: str
    vertex_tags: tuple[str, ...]
    """For those who look for the Spark jobs of a vertex."""
    description: str
    pool: str
    open: dict[Execution, int]
    by_partition: bool = False
    """A DataFrame vertex: Spark's partition number is the subtask, not its position in the batch."""
    cancelled: bool = False
    let_go: bool = False
    """Some executions were cancelled alone: they may still run, but nobody waits for them, or only those ``leaving``."""
    exclusive: bool = False
    """No two attempts of a subtask may run at once: one that was cancelled counts until it is surely gone."""
    leaving: set[Execution] = field(default_factory=set)
    """Exclusive: open executions that were cancelled alone."""
    doomed: set[int] = field(default_factory=set)
    """Subtasks that were cancelled and had no result by then: what their tasks wrote is deleted once these are gone."""
    lingered: bool = False
    standing: bool = False
    """Its executions run in standing tasks (``spark.standing``): it has no Spark job of its own."""
    ended: threading.Event = field(default_factory=threading.Event)
    thread: Any = None

    @classmethod
    def of(
        cls, number: int, deploys: Sequence[Deploy], job_id: str, description: str, pool: str | None = None
    ) -> Batch:
        """Messages of the k-th vertex carry ``number + k``. ``pool``: None for one of its own."""
        executions = {
            (deploy.vertex, subtask): attempt
            for deploy in deploys
            for subtask, attempt in zip(deploy.subtasks.tolist(), deploy.attempts.tolist(), strict=True)
        }
        tag, vertex_tags = f"firesteel-{job_id}-{number}", tuple(vertex_tag(job_id, each.vertex) for each in deploys)
        return cls(number, tuple(deploys), tag, vertex_tags, description, pool or pools.borrow(), executions)

    @property
    def vertices(self) -> list[int]:
        return [deploy.vertex for deploy in self.deploys]

    @property
    def numbers(self) -> range:
        """Returns the batch numbers that its messages carry, one for each vertex."""
        return range(self.id, self.id + len(self.deploys))

    @property
    def subtasks(self) -> Ints:
        return self.deploys[0].subtasks

    def close(self, execution: Execution, attempt: int) -> bool:
        """The execution has reported. False: it had before, or is none of ours."""
        if self.open.get(execution) != attempt:
            return False
        del self.open[execution]
        return True

    def close_all(self, vertex: int, subtasks: Sequence[int], attempts: Sequence[int]) -> None:
        """The same for many of one vertex."""
        for subtask, attempt in zip(subtasks, attempts, strict=True):
            self.close((vertex, subtask), attempt)

    def close_task(self, subtask: int) -> None:
        """One execution of the task has failed: the others ended with it, and will not report."""
        for vertex in self.vertices:
            self.open.pop((vertex, subtask), None)

    @property
    def is_left(self) -> bool:
        """Nothing runs any more but what was cancelled alone."""
        return self.let_go and self.open.keys() <= self.leaving

    def position_to_subtask(self, position: int) -> int:
        return int(self.subtasks[position])

    def subtask_of(self, partition: int) -> int:
        """Of a Spark task, by its RDD partition; -1: none of ours."""
        if self.by_partition:
            return partition
        return self.position_to_subtask(partition) if partition < len(self.subtasks) else -1

    @property
    def own_tag(self) -> str:
        """Of the Spark job that runs the executions: a DataFrame's plan may run others before it, under ``tag`` only."""
        return f"{self.tag}-tasks" if self.by_partition else self.tag

    def first_open(self, subtask: int) -> Execution | None:
        """Of a task."""
        return next(((vertex, subtask) for vertex in self.vertices if (vertex, subtask) in self.open), None)

    def remaining(self) -> list[tuple[int, Ints, Ints]]:
        """(vertex, subtasks, attempts) of what is open, by vertex."""
        found: list[tuple[int, Ints, Ints]] = []
        for vertex in self.vertices:
            own = [(subtask, attempt) for (v, subtask), attempt in self.open.items() if v == vertex]
            if own:
                columns = np.array(own, dtype=np.int64).T
                found.append((vertex, columns[0], columns[1]))
        return found


def fused(command: Deploy | DeployRegions, producers: Sequence[int]) -> list[tuple[Deploy, ...]]:
    """The parts whose executions share tasks: those joined by pipelined gates. ``producers``: vertex by data set.

    Raises ValueError where parts that share tasks are not of the same subtasks: they could not stream to each other.
    """
    parts = command.parts if isinstance(command, DeployRegions) else (command,)
    group: dict[int, int] = {}
    for part in parts:
        group[part.vertex] = part.vertex
        for gate in part.gates:
            if gate.pipelined:
                joined = group[producers[gate.dataset]]
                group = {vertex: part.vertex if own == joined else own for vertex, own in group.items()}
    found: dict[int, list[Deploy]] = {}
    for part in parts:
        found.setdefault(group[part.vertex], []).append(part)
    for first, *others in found.values():
        for other in others:
            if not np.array_equal(first.subtasks, other.subtasks):
                raise ValueError(
                    f"Vertices {first.vertex} and {other.vertex} share tasks, but not of the same subtasks."
                )
    return [tuple(together) for together in found.values()]


@dataclass(frozen=True, slots=True)
class BatchCode:
    """All that a batch's tasks need beside their deployment: per vertex its information and all of its splits.

    ``dataframe``: for a SparkHead. ``locations``: where the tasks should run, as Spark writes it; empty: anywhere.
    """

    job: Blob
    vertices: tuple[Blob, ...]
    splits: tuple[Sequence[Any], ...]
    accumulator: Any
    blobs: BlobServer
    dataframe: Any = None
    locations: Sequence[str] = ()
    slots: BatchSlots | None = None
    """None: each task gets one of Spark's own."""


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """``results``: all messages once more; ``error``: what the submitting call raised."""

    batch: Batch
    results: Sequence[bytes]
    error: BaseException | None


class BatchRunner:
    """Submits batches of one job, each in a thread of its own. ``report`` is called in those threads."""

    def __init__(
        self, context: Any, report: Callable[[BatchEnded], None], own_workers: OwnWorkers = AS_THEY_ARE
    ) -> None:
        self._context = context
        self._report = report
        self._own_workers = own_workers

    def start(self, batch: Batch, code: BatchCode) -> None:
        """Whatever goes wrong, now or later, is reported as the batch's end."""

        def body() -> None:
            results: Sequence[bytes] = ()
            error: BaseException | None = None
            try:
                inherit()
                results = self._run(batch, code)
            except BaseException as raised:
                error = raised
            finally:
                batch.ended.set()
                self._report(BatchEnded(batch, results, error))

        try:
            inherit = local_properties(self._context)
            batch.thread = threading.Thread(target=body, name=batch.tag, daemon=True)
            batch.thread.start()
        except Exception as error:  # Spark is gone, or there are too many threads
            batch.ended.set()
            self._report(BatchEnded(batch, (), error))

    def cancel(self, batch: Batch) -> None:
        """Asks Spark to cancel the batch until its thread has ended; returns at once."""
        if batch.cancelled:
            return
        batch.cancelled = True
        cancel_jobs(self._context, batch.tag, batch.ended)

    def _run(self, batch: Batch, code: BatchCode) -> Sequence[bytes]:
        parts = tuple(
            VertexPart(vertex, tuple(map(code.blobs.carry, deploy.gates)))
            for vertex, deploy in zip(code.vertices, batch.deploys, strict=True)
        )
        placement = batch.deploys[0].placement
        may_reject = placement is not None and placement.may_reject
        slots = code.slots or BatchSlots()
        function = BatchFunction(
            batch.id,
            code.job,
            parts,
            code.blobs.dropped,
            code.accumulator,
            may_reject=may_reject,
            slot=slots.information,
        )
        self._name_job(batch)
        if batch.cancelled:
            return ()
        by_part = [descriptors_of(deploy, own) for deploy, own in zip(batch.deploys, code.splits, strict=True)]
        with self._own_workers.workers(slots.environment) as variables:
            slots = replace(slots, environment=variables)
            if code.dataframe is not None:
                by_subtask = dict(zip(batch.subtasks.tolist(), by_part[0], strict=True))
                return self._run_dataframe(batch, DataFrameFunction(function, by_subtask), code.dataframe, slots)
            return self._run_tasks(batch, function, by_part, code.locations, slots)

    def _run_tasks(
        self,
        batch: Batch,
        function: BatchFunction,
        by_part: Sequence[Sequence[bytes]],
        locations: Sequence[str],
        slots: BatchSlots,
    ) -> Sequence[bytes]:
        descriptors = [descriptor for task in zip(*by_part, strict=True) for descriptor in task]
        n = len(batch.subtasks)
        rdd = self._context.parallelize(descriptors, n)
        rdd = placed(self._context, rdd, slots.places) if slots.places else preferring(self._context, rdd, n, locations)
        if slots.profile is not None:
            rdd = rdd.withResources(slots.profile)
        if slots.environment:
            rdd.ctx = WithEnvironment(self._context, slots.environment)
        return self._context.runJob(rdd, function, java_range(self._context, n))

    def _run_dataframe(
        self, batch: Batch, function: DataFrameFunction, dataframe: Any, slots: BatchSlots
    ) -> Sequence[bytes]:
        """Runs inside ``mapInArrow`` without a second Python worker: the JVM hands the messages over itself."""
        with environment(self._context, slots.environment):
            rdd = dataframe.mapInArrow(function, "message binary").rdd
        if slots.profile is not None:
            rdd = rdd.withResources(slots.profile)
        partitions: Any = [int(k) for k in batch.subtasks]
        if partitions == list(range(len(partitions))):
            partitions = java_range(self._context, len(partitions))
        self._context.addJobTag(batch.own_tag)
        with with_settings(dataframe.sparkSession), rows_of(self._context, rdd, partitions) as stream:
            return [bytes(row[0]) for row in stream]

    def _name_job(self, batch: Batch) -> None:
        context = self._context
        for tag in (batch.tag, *batch.vertex_tags):
            context.addJobTag(tag)
        context.setJobDescription(batch.description)
        context.setLocalProperty("spark.scheduler.pool", batch.pool)


def descriptors_of(deploy: Deploy, splits: Sequence[Any]) -> list[bytes]:
    """The partition data of each deployed execution."""
    own = None
    if deploy.splits is not None and splits:
        own = [[splits[k] for k in numbers.tolist()] for numbers in map(deploy.splits.of, range(len(deploy.subtasks)))]
    ranges = [r.columns for r in deploy.ranges]
    columns = deploy.subtasks, deploy.attempts, ranges, own, dumps_splits
    return encode_executions(*columns, input_bytes=deploy.input_bytes)


def java_range(context: Any, n: int) -> Any:
    """``[0, n)`` as a Java ArrayList in a handful of py4j calls; a Python list costs one call per element."""
    util = context._jvm.java.util
    return util.ArrayList(util.stream.IntStream.range(0, n).boxed().toList())


class WithEnvironment:
    """A SparkContext with more variables for Python workers, which Spark keeps apart for each environment.

    For an RDD made of it (``rdd.ctx``) and what is derived from that.
    """

    def __init__(self, context: Any, variables: Mapping[str, str]) -> None:
        self._context = context
        self.environment = {**context.environment, **variables}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


@contextmanager
def environment(context: Any, variables: Mapping[str, str]) -> Generator[None]:
    """The same for a DataFrame's functions, which ask the session for its context: one batch at a time wraps them."""
    with _wrapping:
        before = context.environment
        if variables:
            context.environment = {**before, **variables}
        try:
            yield
        finally:
            context.environment = before

"""Runs merges of small results as Spark jobs: one task per group of partitions. Whatever fails only leaves a group out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.results.storage.store import ResultStore, merged_name, merged_token
from firesteel.scheduler.kernel.commands import MergePartitions, ReleaseMerged
from firesteel.scheduler.kernel.events import PartitionsMerged
from firesteel.spark.driver.batch import java_range
from firesteel.spark.driver.spark_errors import read_error
from firesteel.spark.driver.threads import cancel_jobs, local_properties
from firesteel.spark.placement import pools
from firesteel.spark.storage.cleaning import quietly
from firesteel.task.executor.failures import describe_failure
from firesteel.task.executor.information import TASK_BITS, Blob, JobInformation
from firesteel.task.executor.spark_task import extend_module_path

_log = logging.getLogger("firesteel.spark")


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """A task's report on its group. ``reason``: why it could not be merged. ``again``: Spark ran the task once more."""

    group: int
    token: int
    stored_bytes: int = 0
    reason: str = ""
    again: bool = False


class MergeFunction:
    """The function that Spark runs on each partition: merges the group of that number. Picklable by name, carries bytes only."""

    def __init__(self, job: Blob, given: Blob, bounds: tuple[int, ...]) -> None:
        """``given``: (data set, schema, subpartitions, attempts, tokens)."""
        self.job, self.given, self.bounds = job, given, bounds

    def __call__(self, groups: Iterator[int]) -> Iterator[MergedGroup]:
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        job: JobInformation = self.job.load()
        token, again = job.token_of(task.taskAttemptId()), task.attemptNumber() > 0
        for group in groups:
            try:
                yield MergedGroup(group, token, self.merge(group, token), again=again)
            except Exception as error:
                yield MergedGroup(group, token, reason=describe_failure(error).message, again=again)

    def merge(self, group: int, token: int) -> int:
        """The merged object's size in bytes."""
        from firesteel.results.merging import MergeInput, merge_objects

        if pa.cpu_count() != 1:
            pa.set_cpu_count(1)  # Spark gives a task one core
        job: JobInformation = self.job.load()
        extend_module_path(job.module_paths)
        dataset, schema, subpartitions, attempts, tokens = self.given.load()
        first, end = self.bounds[group], self.bounds[group + 1]
        given = MergeInput(dataset, schema, subpartitions, attempts, tokens, first, end)
        name = merged_name(dataset, first, end, token)
        return merge_objects(job.store, given, name, memory_budget=job.memory_budget, codec=job.codec)


@dataclass(eq=False)
class _Running:
    tag: str
    cancelled: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


class Merger:
    """Carries out the merges of one job. ``report`` is called in their threads, once for each, with the answer."""

    def __init__(
        self,
        context: Any,
        store: ResultStore,
        job: Blob,
        job_id: str,
        *,
        token_of: Callable[[int], int] = int,
        schema_of: Callable[[int], Any],
        report: Callable[[Any], None],
        now: Callable[[], float],
    ) -> None:
        self._context, self._store, self._job, self._job_id = context, store, job, job_id
        self._token_base = token_of(0)
        self._schema_of, self._report, self._now = schema_of, report, now
        self._running: list[_Running] = []
        self._broken = False

    @property
    def has_zombies(self) -> bool:
        """Tasks may be running still: a merge was not answered yet, or its Spark job was given up."""
        return self._broken or any(not one.ended.is_set() for one in self._running)

    def start(self, merge: MergePartitions) -> None:
        """Returns at once; the answer comes whatever goes wrong."""
        running = _Running(f"firesteel-{self._job_id}-merge-{merge.merge}")
        self._running.append(running)

        def body() -> None:
            groups: Sequence[MergedGroup] = ()
            reason = ""
            try:
                inherit()
                groups = self._run(merge, running)
            except BaseException as error:
                _log.debug("merge %s was given up", running.tag, exc_info=error)
                self._broken = True
                reason = "the job is over" if running.cancelled else read_error(error).sentence
            answer = _answer(merge, groups, reason, self._now())
            try:
                if reason or any(group.again for group in groups):
                    quietly(partial(self._remove_losers, merge, answer))
            finally:
                running.ended.set()
                self._report(answer)

        try:
            inherit = local_properties(self._context)
            threading.Thread(target=body, name=running.tag, daemon=True).start()
        except Exception as error:  # Spark is gone, or there are too many threads
            running.ended.set()
            self._report(_answer(merge, (), f"{type(error).__name__}: {error}", self._now()))

    def stop(self, seconds: float) -> None:
        """Asks Spark to cancel what runs still, and waits for that, but not for ever."""
        for running in self._running:
            if not running.ended.is_set():
                running.cancelled = True
                cancel_jobs(self._context, running.tag, running.ended)
        until = time.monotonic() + seconds
        for running in self._running:
            running.ended.wait(max(0.0, until - time.monotonic()))

    def _run(self, merge: MergePartitions, running: _Running) -> Sequence[MergedGroup]:
        gate, count = merge.gate, len(merge.bounds) - 1
        schema = self._schema_of(gate.dataset)
        given = Blob.of((gate.dataset, schema, gate.num_subpartitions, gate.attempts, gate.tokens))
        function = MergeFunction(self._job, given, tuple(merge.bounds.tolist()))
        pool = pools.borrow()
        try:
            self._context.addJobTag(running.tag)
            partitions = len(gate.attempts)
            self._context.setJobDescription(f"firesteel: merges {partitions} small results into {count}")
            self._context.setLocalProperty("spark.scheduler.pool", pool)
            if running.cancelled:
                return ()
            rdd = self._context.parallelize(range(count), count)
            return self._context.runJob(rdd, function, java_range(self._context, count))
        finally:
            pools.give_back(pool)

    def _remove_losers(self, merge: MergePartitions, answer: PartitionsMerged) -> None:
        """Objects of this driver's tasks that were lost, or run once more, or whose word was lost with the Spark job."""
        bounds, dataset = merge.bounds.tolist(), merge.gate.dataset
        columns = zip(answer.groups.tolist(), answer.tokens.tolist(), strict=True)
        keep = {merged_name(dataset, bounds[g], bounds[g + 1], token) for g, token in columns}
        own = [
            name
            for name in self._store.list()
            if (token := merged_token(name, dataset)) is not None and self._is_own(token)
        ]
        self._store.delete([name for name in own if name not in keep])

    def _is_own(self, token: int) -> bool:
        return token >> TASK_BITS == self._token_base >> TASK_BITS


def names_of(release: ReleaseMerged) -> list[str]:
    """The objects that are to go."""
    merged = release.merged
    columns = merged.first.tolist(), merged.end.tolist(), merged.tokens.tolist()
    return [merged_name(release.dataset, first, end, token) for first, end, token in zip(*columns, strict=True)]


def _answer(merge: MergePartitions, groups: Sequence[MergedGroup], reason: str, at: float) -> PartitionsMerged:
    worked = [group for group in groups if not group.reason]
    said = next((group.reason for group in groups if group.reason), reason)
    return PartitionsMerged(
        at=at,
        dataset=merge.gate.dataset,
        merge=merge.merge,
        groups=np.array([group.group for group in worked], np.int64),
        tokens=np.array([group.token for group in worked], np.int64),
        stored_bytes=np.array([group.stored_bytes for group in worked], np.int64),
        reason=said,
    )

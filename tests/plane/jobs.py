"""Jobs of the plane: their tasks run in a few slots, are tried again when their workers die, and can be killed.

The rules are Spark's: a free slot goes to the job that runs the fewest tasks (FAIR); a task that fails is started again, at most
three times; one that was killed is started again without counting; a cancelled job fails at once, its tasks are killed.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

from plane.workers import Answer, Order, Worker

MAX_FAILURES = 4
DIED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


class JobFailedError(Exception):
    """What ``runJob`` raises, as py4j tells of a Java exception."""

    @property
    def java_exception(self) -> Any:
        return SimpleNamespace(getMessage=lambda: str(self))


@dataclass(eq=False)
class Attempt:
    """One attempt at a task. ``state``: as Spark's status store names it."""

    id: int
    partition: int
    number: int
    launched: float = 0.0
    state: str = "RUNNING"
    error: str = ""
    worker: Worker | None = None


@dataclass(eq=False)
class Job:
    """``number`` is that of its only stage, too. ``attempts``: those that were launched."""

    number: int
    function: bytes
    partitions: Sequence[list[Any]]
    tags: Collection[str]
    properties: Mapping[str, str]
    """Of the thread that runs it; its tasks see them."""
    pending: deque[tuple[int, int]] = field(default_factory=deque)
    """Partitions and numbers of attempts."""
    attempts: list[Attempt] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)
    results: dict[int, list[Any]] = field(default_factory=dict)
    failed: str = ""
    """Why there are no results; empty: nothing has failed."""

    def in_state(self, *states: str) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.state in states]

    @property
    def is_over(self) -> bool:
        return bool(self.failed) or len(self.results) == len(self.partitions)


class Jobs:
    """All jobs of a session. ``accumulate``: takes a task's updates of accumulators, before its job can end."""

    def __init__(self, slots: int, accumulate: Callable[[dict[int, Any]], None]) -> None:
        self._accumulate = accumulate
        self._changed = threading.Condition()
        self._numbers, self._tasks = count(), count()
        self._stopped = False
        self.all: list[Job] = []
        _all.add(self)
        for slot in range(slots):
            threading.Thread(target=self._serve, name=f"plane slot {slot}", daemon=True).start()

    def run(
        self, function: bytes, partitions: Sequence[list[Any]], tags: Collection[str], properties: Mapping[str, str]
    ) -> list[list[Any]]:
        """The rows that each partition's task returned. Raises JobFailedError."""
        with self._changed:
            job = Job(next(self._numbers), function, partitions, tags, properties)
            job.pending.extend((partition, 0) for partition in range(len(partitions)))
            self.all.append(job)
            self._changed.notify_all()
            self._changed.wait_for(lambda: job.is_over)
            if job.failed:
                raise JobFailedError(job.failed)
            return [job.results[partition] for partition in range(len(partitions))]

    def cancel(self, tag: str | None = None) -> None:
        """Those with the tag; None: all."""
        with self._changed:
            for job in self.all:
                if not job.is_over and (tag is None or tag in job.tags):
                    why = "as part of cancellation of all jobs" if tag is None else f"part of cancelled job tag {tag}"
                    self._fail(job, f"Job {job.number} cancelled {why}")

    def kill(self, task: int) -> None:
        with self._changed:
            for attempt in (a for job in self.all for a in job.in_state("RUNNING") if a.id == task):
                self._kill(attempt)

    def stop(self) -> None:
        """Whatever runs ends."""
        with self._changed:
            self._stopped = True
            for job in self.all:
                if not job.is_over:
                    self._fail(job, "Job cancelled because SparkContext was shut down")
            self._changed.notify_all()

    # --- in the slots' threads ---

    def _serve(self) -> None:
        worker: Worker | None = None
        while (taken := self._next()) is not None:
            job, attempt = taken
            worker = worker or Worker()
            with self._changed:
                attempt.worker = worker
                if attempt.state != "RUNNING":
                    worker.kill()
            rows = list(job.partitions[attempt.partition])
            numbers = job.number, attempt.partition, attempt.id, attempt.number
            answer = worker.run(Order(job.function, rows, *numbers, job.properties))
            with self._changed:
                if answer is None or attempt.state == "KILLED":
                    worker = None
                self._ended(job, attempt, answer)
                self._changed.notify_all()
        if worker is not None:
            worker.kill()

    def _next(self) -> tuple[Job, Attempt] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or any(job.pending for job in self.all))
            if self._stopped:
                return None
            job = min((job for job in self.all if job.pending), key=lambda job: len(job.in_state("RUNNING")))
            partition, number = job.pending.popleft()
            attempt = Attempt(next(self._tasks), partition, number, time.time())
            job.attempts.append(attempt)
            return job, attempt

    def _ended(self, job: Job, attempt: Attempt, answer: Answer | None) -> None:
        if attempt.state == "RUNNING":
            attempt.error = DIED if answer is None else answer.error
            attempt.state = "FAILED" if attempt.error else "SUCCESS"
        if job.is_over:
            return
        if answer is not None and attempt.state == "SUCCESS":
            self._accumulate(answer.updates)
            job.results[attempt.partition] = answer.rows
            return
        if attempt.state == "FAILED":
            failures = job.failures[attempt.partition] = job.failures.get(attempt.partition, 0) + 1
            if failures >= MAX_FAILURES:
                task = f"{attempt.partition}.{attempt.number} in stage {job.number}.0 (TID {attempt.id})"
                self._fail(
                    job,
                    f"Job aborted due to stage failure: Task {attempt.partition} in stage {job.number}.0 failed {failures} "
                    f"times, most recent failure: Lost task {task} (127.0.0.1 executor driver): {attempt.error}",
                )
                return
        job.pending.append((attempt.partition, attempt.number + 1))

    def _fail(self, job: Job, message: str) -> None:
        job.failed = message
        job.pending.clear()
        for attempt in job.in_state("RUNNING"):
            self._kill(attempt)
        self._changed.notify_all()

    def _kill(self, attempt: Attempt) -> None:
        attempt.state, attempt.error = "KILLED", "TaskKilled"
        if attempt.worker is not None:
            attempt.worker.kill()


_all: weakref.WeakSet[Jobs] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before multiprocessing ends the workers: one that was started in the place of one that it has just ended, it would wait for for ever."""
    for jobs in list(_all):
        jobs.stop()

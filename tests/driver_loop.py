"""The job's loop without Spark: tests play Spark's part on its queue, and a function plays the scheduler's."""

from __future__ import annotations

import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

from firesteel.model.sizes import pack
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Deploy, GateDescriptor, InputRanges, JobStatus, JobStatusChanged
from firesteel.scheduler.kernel.waits import ForSinks
from firesteel.spark.driver.loop import DriverInput, JobDriver
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.task.executor.information import Blob
from firesteel.task.executor.messages import (
    FailedMessage,
    FinishedMessage,
    Where,
    Written,
    decode_many,
    decode_other,
    encode,
    is_finished,
)
from runtime_support import two_steps

END = JobStatusChanged(JobStatus.FINISHED)


def ints(*values):
    return np.array(values, dtype=np.int64)


def deploy(*subtasks, vertex=1, attempt=0):
    n = len(subtasks)
    ranges = InputRanges(np.arange(n + 1, dtype=np.int32), np.zeros((n, 4), dtype=np.int32))
    gate = GateDescriptor(0, 4, ints(0), ints(0), False)
    return Deploy(vertex, n, ints(*subtasks), ints(*[attempt] * n), (gate,), (ranges,), {1: 1})


def finished(subtask, token, batch=0, attempt=0, commits=()):
    now = time.time()
    where = Where(batch, subtask, attempt, token, "node", now, now, now)
    return encode(FinishedMessage(where, (Written(1, 5, pack(ints(5)), 1, 9),), commits, 1, 2, 3))


def failed(subtask, token, batch=0):
    now = time.time()
    where = Where(batch, subtask, 0, token, "node", now, now, now)
    return encode(FailedMessage(where, "USER", "bad", None, "frames"))


def decode(record):
    """One message alone, as its task made it."""
    if not is_finished(record):
        return decode_other(record)
    many = decode_many([record])
    at = {name: many.header[name][0].item() for name in many.header.dtype.names}
    execution = (at[name] for name in ("batch", "subtask", "attempt", "token"))
    where = Where(*execution, many.nodes()[0], at["deployed_at"], at["running_at"], at["ended_at"])
    partitions = tuple(
        Written(
            p.dataset,
            int(p.bytes[0]),
            p.sizes[0] if p.sizes else None,
            int(p.rows[0]),
            int(p.stored[0]),
            p.sketched,
            p.heavy_keys[0] if p.heavy_keys else b"",
        )
        for p in many.partitions()
    )
    (commits,) = many.commits() or [()]
    counts = at["rows_in"], at["bytes_in"], at["rows_out"], at["peak_memory"]
    (reports,) = many.reports() or [b""]
    return FinishedMessage(where, partitions, commits, *counts, reports)


class Script:
    """A scheduler that remembers what it is told and answers from a function."""

    def __init__(self, answer):
        self.told: list[ev.Event] = []
        self._answer = answer

    def handle(self, event):
        self.told.append(event)
        return self._answer(event) or []

    def waiting_for(self):
        """Asked for where a busy machine leaves the job without news for a while."""
        return [ForSinks()]

    def of(self, kind):
        return [event for event in self.told if isinstance(event, kind)]


class Status:
    """Spark's status store: the tasks that run in each stage, by its tag, and the executors. Remembers what was killed."""

    def __init__(self, *tasks, stage=3):
        self.tasks = list(tasks)
        self.stage = stage
        self.hosts: dict[str, str] = {}
        self.killed: list[int] = []
        self.listings = 0

    def executor_ids(self):
        return set(self.hosts)

    def executors(self):
        return {executor: ExecutorInfo(host, 1) for executor, host in self.hosts.items()}

    def stage_of(self, tag):
        return self.stage

    def counts(self, stage):
        return tuple(task.id for task in self.tasks)

    def running(self, stage, attempts):
        self.listings += 1
        return list(self.tasks)

    def kill(self, task, reason):
        self.killed.append(task)


class Loop:
    """A driver whose batches never reach Spark: the test plays Spark's part on its queue."""

    def __init__(self, answer, sink=None, record=lambda record: None, store=None):
        self.scheduler = Script(answer)
        self.compiled = two_steps(sink=sink)
        self.store = store or MagicMock()
        self.driver = JobDriver(
            DriverInput(
                compiled=self.compiled,
                context=MagicMock(),
                scheduler=self.scheduler,
                job_id="job",
                store=self.store,
                job=Blob.of(1),
                programs={0: b"", 1: b""},
                record=record,
            )
        )
        self.runner = MagicMock()
        self.driver._runner = self.runner
        self.runner.start.side_effect = lambda batch, code: self.batches.append(batch)
        self.runner.cancel.side_effect = self._cancelled
        self.batches: list = []

    def _cancelled(self, batch):
        batch.cancelled = True
        batch.ended.set()

    def put(self, *items):
        for item in items:
            self.driver._queue.put(item)

    def run(self):
        return self.driver.run()


class Py4JJavaError(Exception):
    @property
    def java_exception(self):
        return SimpleNamespace(getMessage=lambda: str(self))

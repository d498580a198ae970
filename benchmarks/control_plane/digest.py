"""What ten thousand finished-messages cost the job's thread, from its queue to the scheduler's answer, without Spark.

The driver's own loop digests one drain of them: takes the records apart, sets aside what came before, closes the
executions, and tells the real scheduler in one event, whose commands it carries out: rows of sizes go to files, the
consumers are deployed (to nowhere). The ratio compares the messages' share with unpickling the same messages one by one.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.model import sizes
from firesteel.model.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo
from firesteel.options import Options
from firesteel.scheduler.kernel.events import JobStarted
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.spark.driver.loop import Clock, DriverInput, JobDriver
from firesteel.task.executor.information import Blob
from firesteel.task.executor.messages import FinishedMessage, Where, Written, encode

MESSAGES = 10_000


class _Context:
    """What the loop needs of Spark where nothing is sent to it."""

    def accumulator(self, value: Any, param: Any) -> Any:
        return self

    aid = -1


class _NoRunner:
    def start(self, batch: Any, code: Any) -> None:
        pass


def main(runs: int, only: str = "") -> None:
    print(f"### {MESSAGES:,} finished-messages, digested by the job's thread\n")
    print(
        "| subpartitions | bytes of a message | digest ms | messages | scheduler | commands | one by one, ms | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for subpartitions in (256, 10_000):
        if only in ("", str(subpartitions)):
            print(_row(subpartitions, max(runs, 3)), flush=True)
    print()


def _row(subpartitions: int, runs: int) -> str:
    messages = _messages(subpartitions)
    records = list(map(encode, messages))
    pickled = [pickle.dumps(message, protocol=5) for message in messages]
    whole, scheduler, commands = min(_digest(records, subpartitions) for _ in range(runs))
    single = min(_timed(lambda: [pickle.loads(data) for data in pickled]) for _ in range(runs))
    size = sum(map(len, records)) // MESSAGES
    own = whole - scheduler - commands
    cells = f"{whole:.0f} | {own:.0f} | {scheduler:.0f} | {commands:.0f} | {single:.0f} | {own / single:.2f}"
    return f"| {subpartitions:,} | {size:,} | {cells} |"


def _digest(records: list[bytes], subpartitions: int) -> tuple[float, float, float]:
    """Milliseconds of the whole, of the scheduler's part in it, and of carrying out its commands (sizes to files)."""
    driver: Any = _driver(subpartitions)
    handle, execute, spent = driver._in.scheduler.handle, driver._execute, [0.0, 0.0]

    def timed_handle(event: Any) -> Any:
        answer: list[Any] = []
        spent[0] += _timed(lambda: answer.extend(handle(event)))
        return answer

    def timed_execute(command: Any) -> None:
        spent[1] += _timed(lambda: execute(command))

    driver._in.scheduler.handle, driver._execute = timed_handle, timed_execute
    try:
        return _timed(lambda: driver._digest(records)), *spent
    finally:
        driver._sizes.close()


def _driver(subpartitions: int) -> JobDriver:
    vertices = [
        JobVertex(0, "a", "a", outputs=[0], parallelism=MESSAGES, source=SourceInfo(np.ones(MESSAGES, np.int64))),
        JobVertex(1, "b", "b", inputs=[JobEdge(0, 0)], parallelism=subpartitions),
    ]
    graph = JobGraph("digest", vertices, [IntermediateDataSet(0, 0, ShipStrategy.HASH, ("k",))])
    scheduler = create_scheduler(graph, Options({"firesteel.subpartition-factor": 1}))
    given = DriverInput(
        compiled=CompiledJob(graph, splits={}, sinks={}, schemas={}, collects={}),
        context=_Context(),
        scheduler=scheduler,
        job_id=f"digest-{time.monotonic_ns()}",
        store=None,
        job=Blob.of(None),
        programs={0: b"", 1: b""},
        record=lambda record: None,
        clock=Clock(),
    )
    driver = JobDriver(given)
    driver._runner = _NoRunner()  # type: ignore[assignment]  # pyright: ignore
    driver._feed(JobStarted(at=0.0))  # pyright: ignore[reportPrivateUsage]
    return driver


def _messages(subpartitions: int) -> list[FinishedMessage]:
    rng, now = np.random.default_rng(1), time.time()
    rows = [sizes.pack(rng.integers(1 << 16, 1 << 18, subpartitions)) for _ in range(64)]
    return [
        FinishedMessage(
            Where(0, subtask, 0, subtask + 7, f"10.0.{subtask % 40}.1", now, now + 1, now + 2),
            (Written(0, subpartitions << 17, rows[subtask % len(rows)], 1000, 1 << 20),),
            (),
            1000,
            1 << 20,
            1000,
        )
        for subtask in range(MESSAGES)
    ]


def _timed(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)

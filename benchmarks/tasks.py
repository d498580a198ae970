"""Benchmark 3: 1,000 tiny subtasks across an exchange, against a bare ``runJob`` of as many partitions."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import pyarrow as pa

from benchmarks import cases
from benchmarks.harness import Contender, compete, table

COUNT = 1000


def firesteel(count: int = COUNT) -> cases.Run:
    """``count`` producers and ``count`` consumers: 2 x ``count`` subtasks, each of a few rows."""
    env = cases._environment({"min-parallelism": count, "max-parallelism": count, "firesteel.subpartition-factor": 1})
    rows = pa.table({"k": list(range(count * 10)), "v": [1.0] * (count * 10)})

    def run() -> list[float]:
        stream = env.from_arrow(rows).set_parallelism(count).key_by("k").aggregate({"v": "sum"}).set_parallelism(count)
        sink = cases.ChecksumSink("v")
        stream.write_to(sink)
        env.execute("tiny subtasks")
        return sink.answer

    return run


def bare(count: int = COUNT) -> cases.Run:
    """Two jobs of ``count`` Python tasks that do nothing but end, in a session with the same settings."""
    env = cases._environment({})
    context: Any = env.spark.sparkContext

    def task(items: Any) -> list[int]:
        return [sum(1 for _ in items)]

    def run() -> list[float]:
        total = 0
        for _ in range(2):
            total += sum(context.runJob(context.parallelize(range(count), count), task))
        return [float(total) * 5, float(total) * 5]

    return run


def driver_time(count: int) -> float:
    """Milliseconds of control plane per subtask: the scheduler alone, driven by made-up reports."""
    import numpy as np

    from firesteel.graph.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo
    from firesteel.options import Options
    from firesteel.scheduler import create_scheduler
    from firesteel.scheduler.commands import Deploy
    from firesteel.scheduler.events import ExecutionReport, ExecutionsFinished, JobStarted, PartitionReport

    graph = JobGraph(
        "tiny",
        [
            JobVertex(0, "source", "0", outputs=[0], parallelism=count, source=SourceInfo(np.ones(count, np.int64))),
            JobVertex(1, "sink", "1", inputs=[JobEdge(0, 0, co_partitioned=True)], parallelism=count),
        ],
        [IntermediateDataSet(0, 0, ShipStrategy.HASH, ("k",))],
    )
    scheduler = create_scheduler(graph, Options({"max-parallelism": count}))
    started = time.perf_counter()
    pending = list(scheduler.handle(JobStarted(at=0.0)))
    while pending:
        command = pending.pop(0)
        if not isinstance(command, Deploy):
            continue
        for subtask, attempt in zip(command.subtasks, command.attempts, strict=True):
            partitions = tuple(PartitionReport(d, np.ones(s, np.int64), s, s) for d, s in command.subpartitions.items())
            report = ExecutionReport(token=int(subtask) + 1, finished_at=1.0, partitions=partitions)
            event = ExecutionsFinished(
                at=1.0,
                vertex=command.vertex,
                subtasks=np.array([subtask]),
                attempts=np.array([attempt]),
                reports=(report,),
            )
            pending += scheduler.handle(event)
    return (time.perf_counter() - started) * 1000 / (2 * count)


def main(runs: int, only: str) -> None:
    entered = compete(
        [
            Contender("bare runJob, 2 x 1,000 tasks", "tasks:bare"),
            Contender("Firesteel, 1,000 x 1,000 subtasks", "tasks:firesteel"),
        ],
        runs=runs,
    )
    entered[0].answer = None
    print(table("tasks: 1,000 tiny producers and consumers", entered, entered[0]), flush=True)
    times = [driver_time(COUNT) for _ in range(runs)]
    print(
        f"Control plane, one event per subtask: {statistics.median(times):.3f} ms per subtask (median of {json.dumps(runs)}).\n"
    )

"""Benchmark 3: 1,000 tiny subtasks across an exchange, against bare ``runJob`` calls of as many partitions."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pyarrow as pa

from benchmarks.kit import cases
from benchmarks.kit.harness import Contender, compete, table

SHAPES = ((990, 10), (10, 990))
"""Producers and consumers: 1,000 subtasks each."""


def firesteel(
    producers: int, consumers: int, master: str = "local[*]", options: dict[str, Any] | None = None
) -> cases.Run:
    """Every subtask reads or writes a few rows across an exchange by key."""
    env = cases._environment({"max-parallelism": 1000, **(options or {})}, master)

    def run() -> list[float]:
        sink = cases.ChecksumSink("v")
        pipeline(env, producers, consumers).write_to(sink)
        env.execute("tiny subtasks")
        return sink.answer

    return run


def pipeline(env: Any, producers: int, consumers: int) -> Any:
    """A source of one subtask, then the producers, then the consumers."""
    rows = pa.table({"k": list(range(10_000)), "v": [1.0] * 10_000})
    source = env.from_arrow(rows).rebalance().map_in_arrow(lambda batches: batches, rows.schema)
    return source.set_parallelism(producers).key_by("k").aggregate({"v": "sum"}).set_parallelism(consumers)


def bare(producers: int, consumers: int, master: str = "local[*]") -> cases.Run:
    """As many Python tasks that only end, as bare Spark jobs in a session with the same settings."""
    env = cases._environment({}, master)
    context: Any = env.spark.sparkContext

    def task(items: Any) -> list[int]:
        return [sum(1 for _ in items)]

    def run() -> list[float]:
        for count in (1, producers, consumers):  # the source of the other pipeline is one subtask
            context.runJob(context.parallelize(range(count), count), task)
        return [10_000.0, 10_000.0]

    return run


def driver_time(count: int) -> float:
    """Milliseconds of control plane per subtask: the scheduler alone, driven by made-up reports."""
    import numpy as np

    from firesteel.model.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo
    from firesteel.options import Options
    from firesteel.scheduler.kernel.commands import Deploy
    from firesteel.scheduler.kernel.events import ExecutionReports, ExecutionsFinished, JobStarted, PartitionReports
    from firesteel.scheduler.scheduler import create_scheduler

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
            written = [PartitionReports.of(d, [np.ones(s, np.int64)], s, s) for d, s in command.subpartitions.items()]
            reports = ExecutionReports.of(np.array([subtask + 1]), times=(0.0, 0.0, 1.0), partitions=written)
            event = ExecutionsFinished(
                at=1.0,
                vertex=command.vertex,
                subtasks=np.array([subtask]),
                attempts=np.array([attempt]),
                reports=reports,
            )
            pending += scheduler.handle(event)
    return (time.perf_counter() - started) * 1000 / (2 * count)


def main(runs: int, only: str) -> None:
    for producers, consumers in SHAPES:
        shape = {"producers": producers, "consumers": consumers}
        entered = [
            Contender("bare runJob", f"{__name__}:bare", shape),
            Contender("Firesteel", f"{__name__}:firesteel", shape),
        ]
        compete(entered, runs=runs)
        print(table(f"tasks: {producers} producers, {consumers} consumers", entered, entered[0]), flush=True)
    times = [driver_time(500) for _ in range(runs)]
    print(f"Control plane, one event per subtask, 500 x 500: {statistics.median(times):.3f} ms per subtask.\n")

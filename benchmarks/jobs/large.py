"""Benchmark 6: 2,000 x 2,000 subtasks with an exchange between all of them, in ``local[2]``: what the driver costs.

The same process also runs as many bare Python tasks, so that what is Spark's own shows in the same run.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.kit import cases
from benchmarks.kit.harness import Contender, alternate

ROWS_PER_CONSUMER = 4
"""Of each producer: nearly every slice of the exchange has rows."""


class _Timed:
    """Wraps a method and adds up the time spent in it and how often it was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0
        self.calls = 0

    def attached(self) -> Callable[..., Any]:
        def timed(owner: Any, *arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return self.function(owner, *arguments)
            finally:
                self.seconds += time.perf_counter() - started
                self.calls += 1

        return timed


def _resident_mib(field: str = "VmRSS") -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else float("nan")


def firesteel(size: int) -> cases.Run:
    """``size`` producers that make rows for ``size`` consumers each."""
    from firesteel.scheduler.scheduler import Scheduler
    from firesteel.spark.driver.loop import JobDriver

    options = {"max-parallelism": size, "firesteel.subpartition-factor": 1}
    env = cases._environment(options)
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    rows_each = ROWS_PER_CONSUMER * size

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for seed in batch.column("k").to_pylist():
                keys = np.random.default_rng(seed).integers(0, 16 * size, rows_each)
                yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(np.ones(rows_each))], schema=schema)

    seeds = pa.table({"k": list(range(size)), "v": [0.0] * size})
    decisions = _Timed(Scheduler.handle)
    digests = _Timed(JobDriver._digest)
    Scheduler.handle = decisions.attached()  # type: ignore[method-assign]
    JobDriver._digest = digests.attached()  # type: ignore[method-assign]

    def run() -> list[float]:
        decisions.seconds = digests.seconds = 0.0
        decisions.calls = 0
        before = _resident_mib()
        stream = env.from_arrow(seeds).rebalance().map_in_arrow(make, schema).set_parallelism(size)
        sink = cases.ChecksumSink("v")
        stream.key_by("k").aggregate({"v": "sum"}).set_parallelism(size).write_to(sink)
        started = time.perf_counter()
        env.execute(f"{size} x {size}")
        seconds = time.perf_counter() - started
        rows, total = sink.answer
        assert total == float(rows_each * size), (rows, total)
        grown = _resident_mib("VmHWM") - before
        return [seconds, decisions.seconds, digests.seconds, decisions.calls, grown, _resident_mib("VmHWM")]

    return run


def bare(size: int) -> cases.Run:
    env = cases._environment({})
    context: Any = env.spark.sparkContext

    def task(items: Any) -> list[int]:
        return [sum(1 for _ in items)]

    def run() -> list[float]:
        started = time.perf_counter()
        for count in (1, size, size):
            context.runJob(context.parallelize(range(count), count), task)
        return [time.perf_counter() - started]

    return run


def main(runs: int, only: str) -> None:
    size = int(only or os.environ.get("FIRESTEEL_BENCH_SIZE", "2000"))
    bench = Contender("Firesteel", f"{__name__}:firesteel", {"size": size})
    floor = Contender("bare runJob", f"{__name__}:bare", {"size": size})
    answers = alternate([floor, bench], runs=runs, warmup=0)
    bare_seconds = float(np.median([a[0] for a in answers["bare runJob"]]))
    columns = np.median(np.array(answers["Firesteel"]), axis=0)
    seconds, deciding, digesting, events, grown, peak = columns.tolist()
    print(
        f"### large: {size} x {size} subtasks, {size * size:,} slices, local[2]\n\n"
        "| | median |\n|---|---|\n"
        f"| job | {seconds:.1f} s |\n"
        f"| as many bare Python tasks (`runJob`) | {bare_seconds:.1f} s, {bare_seconds / seconds:.0%} of the job |\n"
        f"| scheduler (`handle`) | {deciding * 1000:.0f} ms, {deciding / seconds:.2%} of the job |\n"
        f"| the job's thread (messages, scheduler, commands) | {digesting * 1000:.0f} ms, {digesting / seconds:.2%} |\n"
        f"| messages of tasks; events to the scheduler | {2 * size + 1}; {events:.0f} |\n"
        f"| driver's resident memory: growth, peak | {grown:.0f} MiB, {peak:.0f} MiB |\n",
        flush=True,
    )

"""What metrics, traces and lineage cost a job of 10,000 tiny subtasks: the driver's CPU and the time, with receivers on loopback in a process of their own.

The job runs on the plane of the tests, without a JVM: what its driver computes is ours, and little beside it makes noise. Runs without and with monitoring take
turns, each in a process of its own. ``paths``: the same records handed to each exporter alone.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRODUCERS, CONSUMERS = 9_900, 100
"""As the benchmark of tiny subtasks has them: an exchange of very many slices would be another measurement."""
ON = {
    "firesteel.metrics.prometheus.enabled": True,
    "firesteel.traces.opentelemetry.enabled": True,
    "firesteel.metrics.opentelemetry.enabled": True,
    "firesteel.lineage.openlineage.enabled": True,
}


def main(runs: int, only: str) -> None:
    """``only``: ``paths``, ``job`` or ``small job`` (a tenth of it); empty: the first two."""
    if only in ("", "paths"):
        _paths(runs)
    if only in ("", "job"):
        _jobs(runs, PRODUCERS)
    if only == "small job":
        _jobs(runs, PRODUCERS // 10)


# --- whole jobs ------------------------------------------------------------------------------------------------------


def _jobs(runs: int, producers: int) -> None:
    taken: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    with receivers() as url:
        for _ in range(runs):
            for way, found in taken.items():
                found.append(_child(way, url, producers))
    print(f"### monitoring: {producers + CONSUMERS:,} tiny subtasks on the plane, 2 slots\n")
    print("| monitoring | wall s | driver's CPU s | job's thread's CPU s |\n|---|---|---|---|")
    for way, found in taken.items():
        columns = [[one[name] for one in found] for name in ("wall", "cpu", "thread")]
        print(f"| {way} | " + " | ".join(_spread(column) for column in columns) + " |")
    cpu = {way: statistics.median(one["cpu"] for one in found) for way, found in taken.items()}
    wall = statistics.median(one["wall"] for one in taken["off"])
    print(
        f"\nCPU that is more: {cpu['on'] - cpu['off']:.2f} s, {(cpu['on'] - cpu['off']) / wall:.2%} of the job's time.\n",
        flush=True,
    )


def _spread(column: list[float]) -> str:
    return f"{statistics.median(column):.2f} ({min(column):.2f} - {max(column):.2f})"


def _child(way: str, url: str, producers: int) -> dict[str, float]:
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OPENLINEAGE_URL": url,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.jobs.monitoring", way, str(producers)],
        cwd=ROOT,
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def receivers() -> Iterator[str]:
    """The address of receivers of OTLP and OpenLineage, in a process of their own."""
    code = "from tests.receivers import receiver\nwith receiver() as r:\n    print(r.url, flush=True)\n    __import__('sys').stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()


def _job(way: str, producers: int) -> dict[str, float]:
    """In the child: one job, after a small one that loads what is loaded once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from firesteel import ExecutionEnvironment
    from firesteel.spark.driver import loop
    from plane.session import Session

    threads: list[float] = []
    run = loop.JobDriver.run

    def timed(driver: Any) -> Any:
        began = time.thread_time()
        try:
            return run(driver)
        finally:
            threads.append(time.thread_time() - began)

    loop.JobDriver.run = timed
    with tempfile.TemporaryDirectory() as folder:
        rows = pa.table({"k": list(range(10_000)), "v": [1.0] * 10_000})
        pq.write_table(rows, f"{folder}/in.parquet")
        options = {
            "firesteel.progress": False,
            "firesteel.journal.directory": f"{folder}/journal",
            "max-parallelism": 10_000,
        }
        env = ExecutionEnvironment(spark=Session(slots=2), options=options | (ON if way == "on" else {}))

        def execute(first: int, second: int) -> None:
            source = (
                env.read_parquet(f"{folder}/in.parquet").rebalance().map_in_arrow(lambda batches: batches, rows.schema)
            )
            summed = source.set_parallelism(first).key_by("k").aggregate({"v": "sum"}).set_parallelism(second)
            summed.write_parquet(f"{folder}/out", mode="overwrite")
            env.execute("tiny subtasks")

        execute(100, 10)
        wall, cpu = time.monotonic(), time.process_time()
        execute(producers, CONSUMERS)
        took = time.monotonic() - wall
        if way == "on":
            _flush()
        return {"wall": took, "cpu": time.process_time() - cpu, "thread": threads[-1]}


def _flush() -> None:
    """What is sent after the job is of its cost."""
    from firesteel.monitoring import background

    background.finish(60.0)


# --- paths -----------------------------------------------------------------------------------------------------------


def _paths(runs: int) -> None:
    """The records of a simulated job whose subtasks report one by one, handed to each exporter."""
    from opentelemetry.sdk.trace import TracerProvider

    from firesteel.monitoring.numbers import Board, NumbersExporter
    from firesteel.monitoring.openlineage import LineageExporter
    from firesteel.monitoring.tracing import SpansExporter

    records = one_by_one()
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("benchmark")
    ways: dict[str, Callable[[], Any]] = {
        "metrics": lambda: NumbersExporter(Board()),
        "traces": lambda: SpansExporter(tracer, None),
        "lineage": lambda: LineageExporter(lambda event: None),
    }
    print(
        f"### monitoring: paths, {len(records):,} records of {PRODUCERS + CONSUMERS:,} subtasks that report one by one\n"
    )
    print("| exporter | ms of CPU for the job | us a record |\n|---|---|---|")
    for name, make in ways.items():
        times: list[float] = []
        for _ in range(runs):
            exporter = make()
            began = time.thread_time()
            for record in records:
                exporter.apply(record, 1e9 + record.at)
            exporter.close(0)
            times.append(time.thread_time() - began)
        took = statistics.median(times)
        print(f"| {name} | {1e3 * took:.1f} | {1e6 * took / len(records):.2f} |")
    print(f"| record() in the job's thread | {1e3 * _handing_over(runs, records):.1f} | |")
    with receivers() as url:
        os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OPENLINEAGE_URL": url}
        print(f"| all of them, sent to receivers, all threads | {1e3 * _sent(runs, records):.1f} | |\n", flush=True)


def _handing_over(runs: int, records: list[Any]) -> float:
    from firesteel.monitoring.background import Background

    times: list[float] = []
    for _ in range(runs):
        background = Background([], most=len(records))
        began = time.thread_time()
        for record in records:
            background.record(record)
        times.append(time.thread_time() - began)
        background.close()
    return statistics.median(times)


def _sent(runs: int, records: list[Any]) -> float:
    """Seconds of the process' CPU until all is sent."""
    from firesteel.monitoring.exporters import monitoring
    from firesteel.options import Options

    times: list[float] = []
    for _ in range(runs + 1):
        (instrument,) = monitoring(Options(ON))
        began = time.process_time()
        for record in records:
            instrument.record(record)
        sent(instrument)
        times.append(time.process_time() - began)
    return statistics.median(times[1:])  # the first loads what is loaded once


def sent(instrument: Any) -> None:
    """Closes it, and returns when all that it told has been sent."""
    from firesteel.monitoring.metering import _own_meter_provider, _own_tracer_provider
    from firesteel.monitoring.openlineage import process_emitter

    instrument.close()
    assert instrument.join(60.0)
    assert _own_tracer_provider().force_flush() and _own_meter_provider().force_flush()
    assert process_emitter().flush(60.0)


def one_by_one() -> list[Any]:
    """The records of a simulated job whose subtasks report one by one."""
    from firesteel.simulation.report import Simulated, costs_of
    from firesteel.simulation.workload import ChainShape

    class Kept:
        def __init__(self) -> None:
            self.records: list[Any] = []

        def record(self, record: Any) -> None:
            self.records.append(record)

        def close(self) -> None:
            pass

    kept = Kept()
    costs_of(Simulated(ChainShape(vertices=2, parallelism=(PRODUCERS + CONSUMERS) // 2), one_by_one=True), kept)
    return kept.records


if __name__ == "__main__":
    print(json.dumps(_job(sys.argv[1], int(sys.argv[2]))))

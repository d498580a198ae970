"""Benchmark 4: peak resident memory of the Python worker, one subtask with a fixed budget, ever more data: flat."""

from __future__ import annotations

import resource
from typing import Any

import pyarrow as pa

from benchmarks.kit import cases, data
from benchmarks.kit.harness import Contender, compete

BUDGET = "96 MiB"
SIZES = (100, 320, 1000)


class PeakSink(cases.ChecksumSink):
    """Also asks each worker for the most it ever held."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.peak_mib = 0.0

    def write(self, subtask: int, attempt: int) -> Any:
        return _PeakWriter(self.column)

    def commit(self, winners: Any) -> None:
        super().commit([w[:2] for w in winners])
        self.peak_mib = max(w[2] for w in winners)


class _PeakWriter(cases._ChecksumWriter):
    def finish(self) -> Any:
        return *super().finish(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _aggregate(env: Any, megabytes: int) -> Any:
    stream = env.read_parquet(str(data.events(megabytes))).set_parallelism(1)
    return stream.key_by("k").aggregate({"d": ("s", "count_distinct"), "x": ("x", "sum")}).set_parallelism(1), "x"


def _join(env: Any, megabytes: int) -> Any:
    stream = env.read_parquet(str(data.events(megabytes))).set_parallelism(1)
    left, right = stream.select("k", "x", "s"), stream.select("k", "y")
    return left.key_by("k").join(right.key_by("k"), how="inner").set_parallelism(1), "x"


OPERATIONS = {"aggregate": _aggregate, "join": _join}


def firesteel(operation: str, megabytes: int) -> cases.Run:
    env = cases._environment({"firesteel.memory.per-task": BUDGET}, master="local[1]")

    def run() -> list[float]:
        stream, column = OPERATIONS[operation](env, megabytes)
        sink = PeakSink(column)
        stream.write_to(sink)
        env.execute(f"{operation} of {megabytes} MB")
        return [sink.peak_mib]

    return run


def main(runs: int, only: str) -> None:
    print(
        f"### memory: one subtask, {BUDGET} for the task\n\n| operation | data MB | peak worker MiB | pyarrow imported MiB |\n|---|---|---|---|"
    )
    base = _imported()
    for operation in OPERATIONS:
        if only and only != operation:
            continue
        for megabytes in SIZES:
            contender = Contender(
                "Firesteel", f"{__name__}:firesteel", {"operation": operation, "megabytes": megabytes}
            )
            compete([contender], runs=1, warmup=0)
            print(f"| {operation} | {megabytes} | {contender.answer[0]:.0f} | {base:.0f} |", flush=True)
    print()


def _imported() -> float:
    assert pa.__version__
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

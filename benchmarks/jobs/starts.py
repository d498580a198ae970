"""The measurement behind ``firesteel.decider.least-volume-per-slot``: what one more subtask costs, against what its bytes cost.

Fixed volumes go through one exchange by key and are aggregated by more and more subtasks, in one session on two slots. The same
work in more subtasks costs more by what each takes to start, to open the producers' objects and to end: CPU seconds of the
driver, its JVM and the workers together, so that it does not matter what else the machine does.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.kit import cases
from benchmarks.kit.harness import cpu_seconds

SLOTS = 2
PRODUCERS = 16
VOLUMES = (4, 16, 64)
"""MiB over the exchange."""
SUBTASKS = (2, 8, 32, 128)
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.float64()})


def main(runs: int, only: str) -> None:
    with tempfile.TemporaryDirectory() as journals:
        options = {"firesteel.journal.directory": journals, "firesteel.merge.threshold": 0}
        env = cases._environment(options, master=f"local[{SLOTS}]")  # pyright: ignore[reportPrivateUsage]
        taken: dict[tuple[int, int], list[float]] = {(v, n): [] for v in VOLUMES for n in SUBTASKS}
        for run in range(runs + 1):
            for (volume, subtasks), seconds in taken.items():
                took = _cpu_of(env, volume, subtasks)
                if run:  # the first warms up
                    seconds.append(took)
    print(
        "### starts: CPU seconds of the whole job (best), by the volume over the exchange and the subtasks that read it\n"
    )
    print("| MiB | " + " | ".join(map(str, SUBTASKS)) + " | ms a subtask |")
    print("|---|" + "---|" * (len(SUBTASKS) + 1))
    fewest: list[float] = []
    for volume in VOLUMES:
        best = [min(taken[volume, n]) for n in SUBTASKS]
        fewest.append(best[0])
        slope = statistics.linear_regression(SUBTASKS, best).slope
        print(f"| {volume} | " + " | ".join(f"{b:.3f}" for b in best) + f" | {slope * 1000:.1f} |")
    per_mib = statistics.linear_regression(VOLUMES, fewest).slope
    print(f"\nA MiB, made, written, read and aggregated: {per_mib * 1000:.1f} ms.\n")


def _cpu_of(env: object, volume: int, subtasks: int) -> float:
    rows = (volume << 20) // 16 // PRODUCERS

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                keys = np.random.default_rng(number).integers(0, 1 << 40, rows)
                yield pa.record_batch([pa.array(keys), pa.array(np.ones(rows))], schema=SCHEMA)

    numbers = env.from_arrow(pa.table({"n": np.arange(PRODUCERS)})).rebalance()  # pyright: ignore
    sink = cases.ChecksumSink("s")
    made_rows = numbers.map_in_arrow(made, SCHEMA).set_parallelism(PRODUCERS)
    made_rows.key_by("k").aggregate(s=("v", "sum")).set_parallelism(subtasks).write_to(sink)
    began = cpu_seconds()
    env.execute("starts")  # pyright: ignore
    return cpu_seconds() - began

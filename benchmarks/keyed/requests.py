"""Benchmark 8: what an exchange of many small slices asks of the storage, with and without merging, near and far.

Real Spark, ``local[2]``; the storage counts every request of every process, and makes each one wait. The slices of the
exchange are N x N, nearly all with rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.kit import cases
from benchmarks.kit.harness import Contender, alternate

FEW_ROWS, MANY_ROWS = 4, 250
"""Rows of a slice: so few that they cost less than the asking, and 2 to 4 KiB of them."""
WARM = 8
FAR_MS = 20.0
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def _keys(seed: int, n: int, rows: int) -> np.ndarray:
    """What one of ``n`` producers makes: so many keys that combining them before the exchange saves little."""
    return np.random.default_rng(seed).integers(0, 16 * n * rows, rows * n)


def firesteel(size: int, latency_ms: float, merging: bool, rows: int) -> cases.Run:
    """``size`` producers, ``size`` consumers, ``rows`` in each slice; ``merging``: as by default, where it saves time."""
    from tests import far_storage

    root = Path(tempfile.mkdtemp(prefix="firesteel-requests-"))
    (root / far_storage.LATENCY_FILE).write_text(str(latency_ms))
    options = {
        "max-parallelism": size,
        "firesteel.storage.directory": str(root),
        "firesteel.storage.filesystem": "tests.far_storage:open_counted",
    }
    if not merging:
        options["firesteel.merge.threshold"] = "0"
    env = cases._environment(options, "local[2]")

    def job(n: int) -> dict[str, float]:
        def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for seed in batch.column("k").to_pylist():
                    keys = _keys(seed, n, rows)
                    yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys.astype(float))], schema=SCHEMA)

        seeds = pa.table({"k": list(range(n)), "v": [0.0] * n})
        stream = env.from_arrow(seeds).rebalance().map_in_arrow(make, SCHEMA).set_parallelism(n)
        sink = cases.ChecksumSink("v")
        stream.key_by("k").aggregate({"v": "sum"}).set_parallelism(n).write_to(sink)
        before = far_storage.counts(root / far_storage.FILE)
        started = time.perf_counter()
        result = env.execute(f"{n} x {n}")
        seconds = time.perf_counter() - started
        after = far_storage.counts(root / far_storage.FILE)
        assert sink.answer[1] == sum(int(_keys(seed, n, rows).sum()) for seed in range(n)), sink.answer
        asked = {name: after[name] - before[name] for name in after}
        merges = [d.result for d in result.decision_records if d.what == "merged"]
        return {"seconds": seconds, "requests": far_storage.requests(asked), "merged": sum(merges), **asked}

    def run() -> dict[str, float]:  # type: ignore[override]
        job(WARM)
        return job(size)

    return run  # type: ignore[return-value]


def main(runs: int, only: str) -> None:
    """``only``: the larger N (1000), or the environment's FIRESTEEL_BENCH_SIZE. Each is run once, after a small job."""
    size = int(only or os.environ.get("FIRESTEEL_BENCH_SIZE", "1000"))
    small = max(size // 10, 2)
    shapes = [
        (size, 0.0, True, FEW_ROWS),
        (size, 0.0, False, FEW_ROWS),
        (size, FAR_MS, True, FEW_ROWS),
        (small, FAR_MS, True, MANY_ROWS),
        (small, FAR_MS, False, MANY_ROWS),
    ]
    entered = [
        Contender(
            f"{n} x {n} of {rows} rows, {latency:g} ms, {'merging' if merging else 'not merging'}",
            f"{__name__}:firesteel",
            {"size": n, "latency_ms": latency, "merging": merging, "rows": rows},
        )
        for n, latency, merging, rows in shapes
    ]
    for contender in entered:  # one Spark at a time
        alternate([contender], runs=0, warmup=0)
    off = {(n, latency): c for (n, latency, merging, _), c in zip(shapes, entered, strict=True) if not merging}
    lines = [
        "| N x N, latency | merged objects | requests | of them opens | reads | MiB read | job | against not merging |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (n, latency, merging, _), c in zip(shapes, entered, strict=True):
        a, base = c.answer, off.get((n, latency))
        ratio = "" if base is None or not merging else _ratio(a, base.answer)
        lines.append(
            f"| {c.name} | {a['merged']} | {a['requests']:,} | {a['opens']:,} | {a['reads']:,} "
            f"| {a['bytes_read'] / 2**20:.0f} | {a['seconds']:.1f} s | {ratio} |"
        )
    print("### requests: an exchange of small slices, local[2]\n\n" + "\n".join(lines) + "\n", flush=True)


def _ratio(merged: dict[str, float], plain: dict[str, float]) -> str:
    requests, seconds = plain["requests"] / merged["requests"], plain["seconds"] / merged["seconds"]
    return f"{requests:.1f} times fewer requests, {seconds:.1f} times faster"

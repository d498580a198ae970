"""What naming heavy keys costs a producer: its CPU time from Parquet to a keyed result on local disk, without Spark, and the part of
it that the sampler took; the report's size, and how far the named share is from the true one.

Runs differ by more than the sampler takes, so its calls are timed one by one, in the same run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firesteel.model.heavy_keys import decode_heavy_keys
from firesteel.results.storage.store import ResultStore
from firesteel.results.writer import KeySampler
from firesteel.task.program import PartitionOutcome, ResultOutput, SourceHead, TaskContext, VertexProgram
from firesteel.task.runner import run_task

SUBPARTITIONS = 256
ROWS = (300_000, 1_000_000, 4_000_000)
SHARE = 0.6
HEAVY = 4711
MEMORY = 1 << 30
KEYS = {"bigint": ("k",), "string": ("k",), "string and bigint": ("k", "day")}


class _File:
    """Reads one Parquet file."""

    def read(self, split: Any, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        yield from pq.ParquetFile(split).iter_batches(10_000)


def main(runs: int, only: str = "") -> None:
    """``only``: one of KEYS."""
    print(f"### heavy keys: a producer of {SUBPARTITIONS} subpartitions\n")
    print("| key | MiB written | one key has | CPU ms | sampler ms | of it | report bytes | told |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in KEYS:
        for rows in ROWS:
            for share in (0.0, SHARE):
                if only in ("", kind):
                    print(_row(kind, rows, share, max(runs, 3)), flush=True)
    print()


def _row(kind: str, rows: int, share: float, runs: int) -> str:
    cpu, sampler = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(_table(kind, rows, share), path)
        for _ in range(runs + 1):
            seconds, spent, written = _produce(path, KEYS[kind])
            cpu.append(seconds)
            sampler.append(spent)
    whole, part = statistics.median(cpu[1:]), statistics.median(sampler[1:])
    told = ", ".join(f"{100 * key.weight / written.bytes.sum():.1f} %" for key in decode_heavy_keys(written.heavy_keys))
    return (
        f"| {kind} | {written.bytes.sum() / 2**20:.1f} | {100 * share:.0f} % | {1000 * whole:.0f} | {1000 * part:.2f} "
        f"| {100 * part / whole:.2f} % | {len(written.heavy_keys)} | {told or 'nothing'} |"
    )


def _produce(path: Path, keys: tuple[str, ...]) -> tuple[float, float, PartitionOutcome]:
    """CPU seconds of a producer, those of its sampler, and what came out."""
    with tempfile.TemporaryDirectory() as folder, _Timed() as timed:
        store = ResultStore(f"{folder}/job")
        store.create()
        output = ResultOutput(0, pq.read_schema(path), keys)
        context = TaskContext("job", 0, "rows", 0, 0, 1, 7, MEMORY, Path(folder), heavy_keys=True)
        began = time.process_time()
        program = VertexProgram(SourceHead(_File()), (), (output,))
        outcome = run_task(program, context, [], [path], store, {0: SUBPARTITIONS}, "lz4")
        return time.process_time() - began, timed.seconds, outcome.partitions[0]


class _Timed:
    """Counts the seconds within the sampler's methods."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._methods = {name: getattr(KeySampler, name) for name in ("flush", "finish")}

    def __enter__(self) -> _Timed:
        for name, method in self._methods.items():
            setattr(KeySampler, name, self._timing(method))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._methods.items():
            setattr(KeySampler, name, method)

    def _timing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*args)
            finally:
                self.seconds += time.thread_time() - began

        return timed


def _table(kind: str, rows: int, share: float) -> pa.Table:
    rng = np.random.default_rng(11)
    numbers = np.where(rng.random(rows) < share, HEAVY, rng.integers(0, 1_000_000, rows))
    text = partial(pa.array, [f"customer-{number:07d}" for number in numbers.tolist()])
    columns = {"k": pa.array(numbers) if kind == "bigint" else text()}
    if kind.endswith("and bigint"):
        columns["day"] = pa.array(numbers % 365)
    return pa.table({**columns, "v": rng.integers(0, 1 << 40, rows)})

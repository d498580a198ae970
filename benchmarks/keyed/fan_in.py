"""CPU time to read one consumer's part of many producers' small objects, by producer, without Spark.

Each of the producers wrote 64 rows by key over 32 subpartitions; a consumer of three of these asks for their sizes and reads them, as
an aggregation does. ``again``: another consumer of the same worker, which has kept the indexes. ``merged``: as ``first``, of the one object
that they were merged into; ``merging``: what that took.
"""

from __future__ import annotations

import tempfile
import time

import numpy as np
import pyarrow as pa

from firesteel.results.merging import MergeInput, merge_objects
from firesteel.results.reader import GateReader, Merged
from firesteel.results.storage.objects import ObjectCache
from firesteel.results.storage.store import ResultStore, merged_name, object_name
from firesteel.results.writer import ResultWriter

SUBPARTITIONS, ROWS = 32, 64
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def main(runs: int, only: str = "") -> None:
    print("### fan-in: CPU microseconds of a consumer for each producer\n")
    print("| producers | codec | first | again | merged | merging |\n|---|---|---|---|---|---|")
    for producers in (1000, 4000):
        for codec in ("lz4", "none"):
            if only in ("", codec, str(producers)):
                with tempfile.TemporaryDirectory() as directory:
                    _row(ResultStore(directory), producers, codec, max(runs, 3))
    print()


def _row(store: ResultStore, producers: int, codec: str, runs: int) -> None:
    _write(store, producers, codec)
    first = again = merged = merging = float("inf")
    for run in range(runs):
        began = time.process_time()
        given = _merge(store, producers, codec, run)
        merging = min(merging, 1e6 * (time.process_time() - began) / producers)
        cache, other = (ObjectCache(store, index_bytes=64 << 20, files=512) for _ in range(2))
        first = min(first, _read(store, producers, cache, 3))
        again = min(again, _read(store, producers, cache, 9))
        merged = min(merged, _read(store, producers, other, 3, given))
    print(f"| {producers:,} | {codec} | {first:.0f} | {again:.0f} | {merged:.2f} | {merging:.0f} |", flush=True)


def _write(store: ResultStore, producers: int, codec: str) -> None:
    rng = np.random.default_rng(1)
    for number in range(producers):
        name = object_name(0, number, 0, number + 1)
        writer = ResultWriter(store, name, SCHEMA, SUBPARTITIONS, ("k",), memory_budget=64 << 20, codec=codec)
        writer.write(pa.record_batch([rng.integers(0, 1000, ROWS), rng.random(ROWS)], schema=SCHEMA))
        writer.finish()


def _admitted(producers: int) -> tuple[np.ndarray, np.ndarray]:
    """Attempts and tokens."""
    return np.zeros(producers, np.int64), np.arange(1, producers + 1)


def _merge(store: ResultStore, producers: int, codec: str, token: int) -> Merged:
    given = MergeInput(0, SCHEMA, SUBPARTITIONS, *_admitted(producers), 0, producers)
    merge_objects(store, given, merged_name(0, 0, producers, token), memory_budget=256 << 20, codec=codec)
    return np.array([0]), np.array([producers]), np.array([token])


def _read(store: ResultStore, producers: int, cache: ObjectCache, low: int, merged: Merged | None = None) -> float:
    """Microseconds for each producer."""
    began = time.process_time()
    rects = np.array([[0, producers, low, low + 3]], np.int32)
    reader = GateReader(store, 0, SCHEMA, SUBPARTITIONS, *_admitted(producers), rects, merged=merged, cache=cache)
    first, sizes = reader.bytes_per_subpartition()
    assert sizes.sum() and sum(batch.num_rows for batch in reader.read(first, first + len(sizes)))
    return 1e6 * (time.process_time() - began) / producers

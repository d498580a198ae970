"""Benchmark 26: rows parted into 256 by a key, written and read back: our exchange without a job, Arrow's and DuckDB's partitioned files.

Mixed columns: integers, doubles, decimals, strings. Sixteen producers write all 256 subpartitions, sixteen consumers read sixteen of them each. Arrow and DuckDB
write a file for each partition and read all of them. Each contender has two threads and a process of its own. ``FIRESTEEL_PARTITIONED_MIB`` (256).
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.kit.data import BASE
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

MIB = int(os.environ.get("FIRESTEEL_PARTITIONED_MIB", "256"))
PRODUCERS, PARTITIONS, CONSUMERS = 16, 256, 16
BATCH_ROWS = 1 << 16
BUDGET = 256 << 20
"""Bytes that a producer may hold: the default of a task is of this size."""
Run = Callable[[], list[Any]]
Halves = tuple[Callable[[Path], None], Callable[[Path], int]]
"""What writes, and what reads and returns the rows."""


def tables() -> list[pa.Table]:
    """``k bigint, n int, x double, d decimal(19), s string, u string``, as evenly as random numbers are, for each producer."""
    each = MIB // PRODUCERS << 20
    return [_table(number, each * 10_000 // _table(0, 10_000).nbytes) for number in range(PRODUCERS)]


def _table(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = pa.array([f"customer number {i:05d}" for i in range(1000)])
    return pa.table(
        {
            "k": rng.integers(0, 1_000_000, rows),
            "n": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "x": rng.random(rows),
            "d": pa.array(rng.integers(0, 10_000_000, rows)).cast(pa.decimal128(19, 0)),
            "s": words.take(pa.array(rng.integers(0, 1000, rows))),
            "u": np.char.mod("%x", rng.integers(0, 1 << 60, rows)),
        }
    )


def _firesteel(given: list[pa.Table], codec: str) -> Halves:
    from firesteel.results.reader import GateReader
    from firesteel.results.storage.store import ResultStore, object_name
    from firesteel.results.writer import ResultWriter

    schema, share = given[0].schema, PARTITIONS // CONSUMERS

    def write(home: Path) -> None:
        store = ResultStore(str(home))
        for number, table in enumerate(given):
            name = object_name(0, number, 0, 1)
            writer = ResultWriter(store, name, schema, PARTITIONS, ("k",), memory_budget=BUDGET, codec=codec)
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                writer.write(batch)
            writer.finish()

    def read(home: Path) -> int:
        store, rows = ResultStore(str(home)), 0
        attempts, tokens = np.zeros(PRODUCERS, np.int64), np.ones(PRODUCERS, np.int64)
        for low in range(0, PARTITIONS, share):
            rects = np.array([[0, PRODUCERS, low, low + share]], np.int32)
            gate = GateReader(store, 0, schema, PARTITIONS, attempts, tokens, rects)
            rows += sum(batch.num_rows for batch in gate.read())
        return rows

    return write, read


def _arrow(given: list[pa.Table], codec: str) -> Halves:
    import pyarrow.dataset as ds

    kind, part = ds.IpcFileFormat(), pa.field("part", pa.int32())
    options = kind.make_write_options(compression=None if codec == "none" else codec)

    def parted() -> Iterator[pa.RecordBatch]:
        for table in given:
            number = pc.bit_wise_and(pc.multiply(table["k"], 0x9E3779B1), PARTITIONS - 1).cast(pa.int32())
            yield from table.append_column(part, number).to_batches(max_chunksize=BATCH_ROWS)

    def write(home: Path) -> None:
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(given[0].schema.append(part), parted()),
            home,
            format=kind,
            file_options=options,
            partitioning=ds.partitioning(pa.schema([part])),
            max_open_files=PARTITIONS,
            min_rows_per_group=16_384,
            max_rows_per_group=1 << 17,
            existing_data_behavior="overwrite_or_ignore",
        )

    def read(home: Path) -> int:
        return sum(batch.num_rows for batch in ds.dataset(home, format="ipc", schema=given[0].schema).to_batches())

    return write, read


def _duckdb(given: list[pa.Table], codec: str) -> Halves:
    import duckdb as engine

    con, rows = engine.connect(config={"threads": 2}), pa.concat_tables(given)
    con.register("given", rows)
    compression = "uncompressed" if codec == "none" else codec

    def write(home: Path) -> None:
        options = f"format parquet, partition_by (part), overwrite_or_ignore, compression {compression}"
        con.execute(f"COPY (SELECT *, hash(k) % {PARTITIONS} AS part FROM given) TO '{home}' ({options})")

    def read(home: Path) -> int:
        names = ", ".join(rows.column_names)
        found = con.sql(f"SELECT {names} FROM read_parquet('{home}/*/*.parquet')").to_arrow_reader(BATCH_ROWS)
        return sum(batch.num_rows for batch in found)

    return write, read


def contender(who: str, codec: str) -> Run:
    pa.set_cpu_count(2)
    write, read = {"firesteel": _firesteel, "arrow": _arrow, "duckdb": _duckdb}[who](tables(), codec)

    def run() -> list[Any]:
        """Rows, CPU seconds of writing and of reading, MiB stored."""
        BASE.mkdir(exist_ok=True)
        home = Path(tempfile.mkdtemp(dir=BASE))
        try:
            began = cpu_seconds()
            write(home)
            wrote = cpu_seconds()
            rows = read(home)
            stored = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
            return [rows, wrote - began, cpu_seconds() - wrote, stored / (1 << 20)]
        finally:
            shutil.rmtree(home)

    return run


def main(runs: int, only: str) -> None:
    for codec in ("lz4", "none"):
        if only in ("", codec):
            _compare(codec, runs)


def _compare(codec: str, runs: int) -> None:
    named = {"firesteel": "Firesteel's exchange", "arrow": "Arrow, a file each", "duckdb": "DuckDB, Parquet"}
    entered = [Contender(name, f"{__name__}:contender", {"who": who, "codec": codec}) for who, name in named.items()]
    answers = alternate(entered, runs=runs)
    if len({answer[0] for each in answers.values() for answer in each}) != 1:
        raise AssertionError(f"The contenders read different numbers of rows: {answers}.")
    middle = {c.name: [statistics.median(column) for column in zip(*answers[c.name], strict=True)] for c in entered}
    own = sum(middle[entered[0].name][1:3])
    gib = MIB / 1024
    lines = [
        f"| {name} | {wrote / gib:.2f} | {read / gib:.2f} | {(wrote + read) / gib:.2f} | {(wrote + read) / own:.2f} | {stored:.0f} |"
        for name, (_, wrote, read, stored) in middle.items()
    ]
    head = "| contender | writing, CPU s a GiB | reading | both | ratio | MiB stored |\n|---|---|---|---|---|---|"
    title = f"### partitioned: {MIB} MiB into {PARTITIONS}, {codec}, medians of {runs} runs"
    print("\n".join([title, "", head, *lines, ""]), flush=True)

"""The engine of a worker: where and when it spills, which footers it keeps, and why it stops."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from connectors_kit import context as task_context
from firesteel.connectors.formats import parquet
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.engine import connection, file_marks
from firesteel.engine.connection import SPILLED, EngineSettings, cursor
from firesteel.engine.files import FileRows
from firesteel.errors import EngineStop, Stop
from firesteel.task.executor.failures import describe_failure
from firesteel.task.executor.spark_task import empty
from firesteel.task.operators.fragments import Chain, SqlFragment, SqlOfKeys, settings_of

ROWS = 300_000
NUMBERS = pa.schema({"n": pa.int64()})
TEXTS = pa.schema({"n": pa.int64(), "s": pa.string()})
SORTED = SqlOfKeys("sql", "SELECT c0, c0 || repeat('x', 300) FROM input0 ORDER BY c0", ((),), (NUMBERS,), TEXTS)
"""Of 90 MB."""


class Numbers:
    nbytes = 0
    """0 to ``ROWS``, in a random order."""

    def batches(self):
        values = np.random.default_rng(1).permutation(ROWS)
        return (pa.record_batch({"n": values[i : i + 65536]}) for i in range(0, ROWS, 65536))


def spilled_by(ctx):
    """Checks all rows; returns the bytes that lie on the disk when the first are there."""
    rows, spilled = 0, None
    for batch in SORTED.apply_unit([Numbers()], ctx):
        if spilled is None:
            with cursor(settings_of(ctx)) as beside:
                [(spilled,)] = beside.execute("SELECT sum(size) FROM duckdb_temporary_files()").fetchall()
        numbers = pa.array(range(rows, rows + batch.num_rows))
        assert batch["n"].equals(numbers)
        assert batch["s"].equals(pc.binary_join_element_wise(numbers.cast("string"), "x" * 300, ""))
        rows += batch.num_rows
    assert rows == ROWS
    return int(spilled or 0)


def files_in(folder):
    return list(folder.glob("*.tmp"))


def context(scratch, budget=128 << 20):
    scratch.mkdir(exist_ok=True)
    return replace(task_context(scratch=scratch), memory_budget=budget)


def test_it_spills_again_and_again_whatever_the_limit_and_the_job(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for megabytes in (128, 130):  # half of each
        ctx = context(first, megabytes << 20)
        assert spilled_by(ctx) > 1 << 20
        assert files_in(first / SPILLED) == []
        (first / "spool").touch()
        empty(first, but=SPILLED)  # as behind each task
        assert list(first.iterdir()) == [first / SPILLED]
    assert spilled_by(context(second)) > 1 << 20  # of another job
    shutil.rmtree(second)  # as a worker does that turns to another job, and comes back
    assert spilled_by(context(second)) > 1 << 20


def test_what_it_spilled_goes_when_nobody_reads_on(tmp_path):
    rows = SORTED.apply_unit([Numbers()], context(tmp_path))
    next(rows)
    assert files_in(tmp_path / SPILLED)
    rows.close()
    assert files_in(tmp_path / SPILLED) == []


SUM = SqlFragment("sql", "SELECT CAST(sum(c0) AS BIGINT) FROM input WHERE c0 > 0", NUMBERS, NUMBERS)


def write(path, value):
    values = pa.table({"n": pa.array([value] * 300, pa.int64())})
    pq.write_table(values, path, row_group_size=100, use_dictionary=False, compression="none")


def total(path, ctx):
    return [
        row["n"]
        for batch in Chain((SUM,)).apply_files([FileRows(str(path), (), 300, 0)], ctx)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("tick", [file_marks._TICK_NS, 0])
def test_a_file_that_changed_is_read_with_its_own_footer(tmp_path, monkeypatch, tick):
    """The sizes and times of modification are the same. The old footer says that no row is greater than 0."""
    monkeypatch.setattr(file_marks, "_TICK_NS", tick)
    path, ctx = tmp_path / "a.parquet", context(tmp_path / "scratch")
    write(path, -1)
    kept = path.stat()
    for value in (-2, 5, -3, 7):
        before = path.stat().st_ctime_ns
        write(path, value)
        assert path.stat().st_size == kept.st_size
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
        while not tick and path.stat().st_ctime_ns == before:  # the clock's next tick
            os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
        source = ParquetSource(str(path))
        [split] = source.list_splits(1 << 30)
        for _ in range(2):
            assert total(path, ctx) == [None if value < 0 else value * 300]
            assert [n for batch in source.read(split.payload, ctx) for n in batch["n"].to_pylist()] == [value] * 300
        if not tick:  # else it is kept only where all of this took longer
            assert parquet._footers[str(path)][1].row_group(2).column(0).statistics.max == value


def test_threads_keep_footers_at_the_same_time(monkeypatch):
    monkeypatch.setattr(parquet, "_footers", {})
    footer = SimpleNamespace(serialized_size=1)

    def keep(thread):
        for number in range(2000):
            parquet._keep_footer(f"{thread}/{number % 20}", file_marks.Mark, footer)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(keep, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert 0 < len(parquet._footers) <= parquet._MOST_FOOTERS


def test_files_that_stay_keep_their_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(file_marks, "_TICK_NS", 0)
    first, second, ctx = tmp_path / "a.parquet", tmp_path / "b.parquet", context(tmp_path / "scratch")
    write(first, 1)
    write(second, 2)
    assert total(first, ctx) == [300]
    kept = connection._engines[0]
    assert [total(path, ctx) for path in (second, first)] == [[600], [300]]
    assert total(first, context(tmp_path / "other")) == [300]  # of another job, and nothing was spilled
    assert connection._engines[0] is kept
    second.replace(first)
    assert total(first, ctx) == [600]
    assert connection._engines[0] is not kept


def rows_of(sql, tmp_path, inputs=(), memory=64 << 20):
    settings = EngineSettings(tmp_path / "engine", memory)
    given = {name: (NUMBERS, batches) for name, batches in inputs}
    return [row for batch in connection.run(sql, given, {}, NUMBERS, settings) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("SELECT 9223372036854000000 + i AS n FROM range(1000000) t(i)", Stop.VALUE, "Out of Range Error: Overflow"),
        ("SELECT CAST(i || 'x' AS BIGINT) AS n FROM range(9) t(i)", Stop.VALUE, "Conversion Error: Could not"),
        ("SELECT error('left to Spark: why') FROM range(9)", Stop.VALUE, "A row is left to Spark: why."),
        ("SELECT 2.0 ** 70 AS n", Stop.VALUE, "Float value 1180591620717411303424.0"),  # in Arrow, on the way out
        ("SELECT n FROM read_parquet('/nowhere/a.parquet')", Stop.INPUT, "IO Error: No files found"),
        ("SELECT len(list(hash(i))) AS n FROM range(100000000) t(i)", Stop.MEMORY, "Out of Memory Error: "),
        ("SELECT m AS n", Stop.ENGINE, "Binder Error: "),
    ],
)
def test_why_it_stops(tmp_path, sql, kind, message):
    with pytest.raises(EngineStop) as stopped:
        rows_of(sql, tmp_path)
    assert stopped.value.kind is kind
    assert stopped.value.message.startswith(message)
    assert describe_failure(stopped.value).stop is kind
    assert rows_of("SELECT 1 AS n", tmp_path) == [{"n": 1}]


def test_an_engine_with_a_defect_is_not_used_again(tmp_path):
    rows_of("SELECT 1 AS n", tmp_path)
    kept = connection._engines[0]
    assert connection.stop_of(duckdb.InternalException("INTERNAL Error: a defect")).kind is Stop.INTERNAL
    rows_of("SELECT 1 AS n", tmp_path)
    assert connection._engines[0] is not kept


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM range(1000000000000) a, input",
        "SELECT a.range AS n FROM range(1000000000000) a, input ORDER BY hash(a.range)",
    ],
)
def test_an_interrupt_ends_a_statement_at_once(tmp_path, sql):
    running = threading.Event()

    def rows():
        yield pa.record_batch({"n": [1]})
        running.set()

    def interrupt():
        if running.wait(600):
            connection.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(EngineStop) as stopped:
            rows_of(sql, tmp_path, [("input", rows())])
    finally:
        thread.join()
    assert stopped.value.kind is Stop.INTERRUPTED
    assert rows_of("SELECT 1 AS n", tmp_path) == [{"n": 1}]

"""Sorted streams against DuckDB: every type, heavy keys, failing attempts, files in order."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from itertools import pairwise

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, col

SMALL = {
    "jobmanager.adaptive-batch-scheduler.data-volume-per-task": "64 kb",
    "jobmanager.adaptive-batch-scheduler.max-parallelism": "7",
}


@pytest.fixture
def env(session, tmp_path):
    """Ranges of few rows, so that there are many."""
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        **SMALL,
    }
    yield ExecutionEnvironment(spark=session, options=options)
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []


def mixed(n, seed=1):
    """Every type that can be sorted by, with nulls, many equal values, and the awkward ones."""
    rng = random.Random(seed)

    def some(values, nulls=0.1):
        return [None if rng.random() < nulls else rng.choice(values) for _ in range(n)]

    words = ["", "a", "a\x00", "a\x00b", "a\x01", "ab", "ä", "äß", "z", "日本", "\U0001f600", "zz" * 40]
    floats = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e-300]
    days = [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2026, 11, 22)]
    moments = [
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=k) for k in (0, 1, 9)
    ]
    amounts = [decimal.Decimal(text) for text in ("-1.25", "0.00", "99999999.99", "-99999999.99", "1.25")]
    return pa.table(
        {
            "i": pa.array(some(range(-50, 50)), pa.int64()),
            "small": pa.array(some([-128, -1, 0, 127]), pa.int8()),
            "x": pa.array(some(floats), pa.float64()),
            "s": pa.array(some(words), pa.string()),
            "b": pa.array(some([b"", b"\x00", b"\x00\xff", b"\xff"]), pa.binary()),
            "day": pa.array(some(days), pa.date32()),
            "at": pa.array(some(moments), pa.timestamp("us", "UTC")),
            "amount": pa.array(some(amounts), pa.decimal128(10, 2)),
            "flag": pa.array(some([True, False]), pa.bool_()),
            "row": pa.array(range(n), pa.int64()),
        }
    )


def expected(table, *columns):
    """By DuckDB, whose order of values is Spark's: NaN is the greatest; nulls as Spark places them."""
    by = ", ".join(f'"{name}" {"asc nulls first" if up else "desc nulls last"}' for name, up in columns)
    names = ", ".join(f'"{name}"' for name, _ in columns)
    return duckdb.sql(f'select {names} from "table" order by {by}').to_arrow_table().select([n for n, _ in columns])


def same(found, wanted):
    """Bit by bit, but for zeros, which are equal whatever their sign, and NaN, which equals itself."""

    def plain(value):
        if isinstance(value, float):
            return "nan" if math.isnan(value) else value + 0.0
        return value

    for name in wanted.column_names:
        assert [plain(v) for v in found[name].to_pylist()] == [plain(v) for v in wanted[name].to_pylist()], name


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param([("x", True), ("row", False)], marks=pytest.mark.full),
        pytest.param([("s", False), ("row", True)], marks=pytest.mark.full),
        [("day", True), ("small", False), ("at", False), ("i", True), ("row", True)],
        [("flag", False), ("b", True), ("amount", False), ("s", True), ("x", False), ("row", True)],
    ],
    ids=lambda columns: "-".join(f"{name}{'' if up else ' desc'}" for name, up in columns),
)
def test_every_type_in_both_directions(env, columns):
    table = mixed(6_000)
    found = env.from_arrow(table).sort(*columns).to_arrow()
    assert found.num_rows == table.num_rows
    same(found, expected(table, *columns))


def test_a_heavy_key_is_shared_out_and_the_sort_is_stable(env, tmp_path):
    """Nine rows in ten are equal: by producer they lie in several ranges, and each producer's rows stay in their order."""
    n = 40_000
    rng = random.Random(3)
    table = pa.table({"k": [5 if rng.random() < 0.9 else rng.randint(0, 9) for _ in range(n)], "row": range(n)})
    stream = env.from_arrow(table).sort("k")
    stream.write_parquet(tmp_path / "out")
    result = env.execute("heavy")
    (ranges,) = [d for d in result.decision_records if d.what == "key ranges"]
    assert ranges.inputs["split_equal"] is True
    files = sorted((tmp_path / "out").glob("*.parquet"))
    sizes = [pq.read_metadata(path).num_rows for path in files]
    assert len(files) >= 4 and max(sizes) < n / 2, "no subtask got all rows of the heavy key"
    found = pa.concat_tables([pq.read_table(path) for path in files])
    same(found.select(["k"]), expected(table, ("k", True)))
    rows = [row for k, row in zip(found["k"].to_pylist(), found["row"].to_pylist(), strict=True) if k == 5]
    assert len(set(rows)) == len(rows) and sum(a > b for a, b in pairwise(rows)) < 64, "by producer"


def test_files_are_in_order(env, tmp_path):
    table = mixed(20_000)
    env.from_arrow(table).sort(("amount", False), "row").write_parquet(tmp_path / "out")
    env.execute("files")
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) > 2
    found = pa.concat_tables([pq.read_table(path, schema=table.schema) for path in files])
    same(found, expected(table, ("amount", False), ("row", True)))


def test_the_first_rows_and_what_is_chained_behind(env):
    table = mixed(7_000)
    sort = env.from_arrow(table).sort("s", ("row", False))
    wanted = expected(table, ("s", True), ("row", False))
    for stream in (sort, sort.set_parallelism(3)):
        same(stream.limit(17).to_arrow(), wanted.slice(0, 17))
    assert sort.take(1)[0]["row"] == wanted["row"][0].as_py()
    filtered = sort.filter(col("row") < 5_000).select("s", "row").to_arrow()
    kept = [row for row in wanted["row"].to_pylist() if row < 5_000]
    assert filtered["row"].to_pylist() == kept


def test_one_sort_read_by_several_keeps_its_order(env, tmp_path):
    table = mixed(20_000)
    sort = env.from_arrow(table).sort(("row", False))
    sort.filter(col("row") < 9_000).write_parquet(tmp_path / "few")
    sort.limit(5).write_parquet(tmp_path / "first")
    sort.write_parquet(tmp_path / "all")
    env.execute("three")

    def rows(name):
        files = sorted((tmp_path / name).glob("*.parquet"))
        return [row for path in files for row in pq.read_table(path)["row"].to_pylist()]

    assert rows("few") == list(range(8_999, -1, -1))
    assert rows("first") == list(range(19_999, 19_994, -1))
    assert rows("all") == list(range(19_999, -1, -1))


@pytest.mark.parametrize("n", [0, 1])
def test_nearly_nothing_is_one_range(env, n):
    table = mixed(n)
    assert env.from_arrow(table).sort("s", "x").to_arrow().num_rows == n
    assert env.from_arrow(table).range_partition("s").to_arrow().num_rows == n


def test_a_union_and_a_set_parallelism(env):
    table, more = mixed(8_000, 1), mixed(5_000, 2)
    sort = env.from_arrow(table).union(env.from_arrow(more)).sort("i", "s", "row").set_parallelism(4)
    both = pa.concat_tables([table, more])
    same(sort.to_arrow(), expected(both, ("i", True), ("s", True), ("row", True)))


def test_equal_keys_share_a_range(env):
    table = mixed(20_000)

    def seen(batches):
        from pyspark import TaskContext

        here = TaskContext.get().partitionId()
        for batch in batches:
            keys = batch.column("s")
            yield pa.RecordBatch.from_arrays([keys, pa.array([here] * len(keys))], names=["s", "subtask"])

    stream = (
        env.from_arrow(table).range_partition("s").set_parallelism(4).map_in_arrow(seen, "s string, subtask bigint")
    )
    found = stream.to_arrow()
    where: dict[object, set[int]] = {}
    for s, subtask in zip(found["s"].to_pylist(), found["subtask"].to_pylist(), strict=True):
        where.setdefault(s, set()).add(subtask)
    assert found.num_rows == table.num_rows and all(len(subtasks) == 1 for subtasks in where.values())
    assert len({next(iter(subtasks)) for subtasks in where.values()}) > 1
    order = sorted((s for s in where if s is not None), key=str.encode)
    assert [next(iter(where[s])) for s in order] == sorted(next(iter(where[s])) for s in order)


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_attempts_that_fail_lose_and_double_nothing(env, tmp_path, side):
    """Some subtask on this side fails after some rows, once."""
    table, flag = mixed(20_000), str(tmp_path / "failed")

    def fails(batches):
        import os

        for batch in batches:
            yield batch
            if batch.num_rows:
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                raise RuntimeError("once")

    stream = env.from_arrow(table)
    if side == "producer":
        stream = stream.map_in_arrow(fails, stream.schema).sort("s", "row")
    else:
        stream = stream.sort("s", "row").map_in_arrow(fails, stream.schema)
    same(stream.to_arrow(), expected(table, ("s", True), ("row", True)))
    assert (tmp_path / "failed").exists()


def test_a_sorted_stream_as_a_side_input_is_in_order(env):
    table = mixed(10_000)

    def check(batches, lookup):
        rows = lookup["row"].to_pylist()
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"ok": [rows == sorted(rows, reverse=True)] * batch.num_rows})

    side = env.from_arrow(table).sort(("row", False))
    found = env.from_arrow(table.slice(0, 100)).with_broadcast(lookup=side).map_in_arrow(check, "ok boolean")
    assert set(found.to_arrow()["ok"].to_pylist()) == {True}

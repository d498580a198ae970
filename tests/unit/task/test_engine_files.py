"""Parquet files that the engine reads itself: the rows that the source reads."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors_kit import context as task_context
from firesteel.connectors.base import push_down
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.engine.files import FileRows, scan_of
from firesteel.errors import FiresteelError
from firesteel.results.storage.store import ResultStore
from firesteel.task.expressions import column
from firesteel.task.operators.fragments import Chain, SqlFragment
from firesteel.task.program import ResultOutput, SourceHead, VertexProgram
from firesteel.task.runner import run_task
from oracle import duck

SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "i": pa.int16(),
        "f": pa.float64(),
        "g": pa.float32(),
        "d": pa.decimal128(15, 2),
        "w": pa.decimal128(38, 10),
        "s": pa.string(),
        "x": pa.binary(),
        "t": pa.date32(),
        "b": pa.bool_(),
        "y": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
    }
)
QUERIES = [
    "SELECT * FROM input",
    "SELECT max(f) AS f, min(f) AS f2, max(g) AS g, count(*) AS c FROM input",
    "SELECT n, f FROM input WHERE f > 5 OR g = CAST('NaN' AS FLOAT)",
    "SELECT s, sum(d) AS d, max(t) AS t, bool_or(b) AS b FROM input WHERE n >= 50 GROUP BY s",
    "SELECT w, x FROM input WHERE i BETWEEN 3 AND 9 AND s <> 'ß'",
    "SELECT count(*) AS c FROM input WHERE t < DATE '1970-01-01'",
    # NaN is greater than all numbers, and no statistics know of it
    "SELECT s, max(f) AS f, min(f) AS f2, max(g) AS g FROM input GROUP BY s",
    "SELECT max(f + 1) AS f, max(-f) AS f2, max(CAST(g AS DOUBLE)) AS g FROM input WHERE n < 60",
    "SELECT n FROM input WHERE NOT (f <= 5)",
    "SELECT n FROM input WHERE f IN (1.5, CAST('NaN' AS DOUBLE)) OR g > 2.5",
    "SELECT n FROM input WHERE f BETWEEN 2 AND CAST('NaN' AS DOUBLE) AND g >= 0",
    "SELECT n, f FROM input ORDER BY f DESC NULLS LAST, n LIMIT 7",
    "SELECT g, n FROM input WHERE g IS NOT NULL ORDER BY g DESC, n LIMIT 40",
    "SELECT n, v FROM input JOIN (VALUES (CAST('NaN' AS DOUBLE), 1), (1.5, 2)) AS k(f, v) USING (f)",
    "SELECT n FROM input SEMI JOIN (SELECT CAST('NaN' AS FLOAT) AS g) AS k USING (g)",
    "SELECT n, v FROM input JOIN (VALUES (2.5, 1)) AS k(least, v) ON f >= least",
    "SELECT n, max(f) OVER (PARTITION BY s ORDER BY n) AS m, rank() OVER (ORDER BY f DESC) AS r FROM input",
    "SELECT f, count(*) AS c FROM input GROUP BY f",
    "SELECT max(y) AS y, min(z) AS z, count(y) AS c FROM input WHERE z >= TIMESTAMPTZ '1960-01-01 00:00:00+00'",
]


def rows(rng, number):
    def some(*values):
        return None if rng.random() < 0.1 else rng.choice(values)

    floats = (0.0, -0.0, 1.5, -1e300, math.inf, -math.inf, math.nan)
    return pa.table(
        {
            "n": list(range(number)),
            "i": [some(-(2**15), 3, 7, 2**15 - 1) for _ in range(number)],
            "f": [some(*floats) for _ in range(number)],
            "g": [some(0.0, -0.0, 2.5, math.nan) for _ in range(number)],
            "d": [some(*map(decimal.Decimal, ("0.01", "-9999999999999.99"))) for _ in range(number)],
            "w": [some(*map(decimal.Decimal, ("1e27", "-0.0000000001"))) for _ in range(number)],
            "s": [some("", "ß", "a" * 300, "\U0001f600", "x\0y") for _ in range(number)],
            "x": [some(b"", b"\xff\0") for _ in range(number)],
            "t": [some(dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)) for _ in range(number)],
            "b": [some(True, False) for _ in range(number)],
            "y": [some(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)) for _ in range(number)],
            "z": [some(dt.datetime(1960, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 7, 1)) for _ in range(number)],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def source(tmp_path):
    rng = random.Random(4)
    for number in range(3):
        pq.write_table(rows(rng, 100), tmp_path / f"{number} it's.parquet", row_group_size=(100, 30, 17)[number])
    return ParquetSource(str(tmp_path))


def context(scratch):
    return task_context(scratch=scratch)


def plain(batches):
    values = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    return sorted(
        repr(tuple("NaN" if v != v else v + 0.0 if isinstance(v, float) else v for v in row)) for row in values
    )


def fragment(sql, reads):
    with duck() as connection:
        connection.register("input", reads.empty_table())
        schema = connection.sql(sql).to_arrow_table().schema
    return SqlFragment("sql", sql, reads, schema, names=tuple(reads.names))


@pytest.mark.parametrize(
    ("volume", "sql"),
    [
        pytest.param(volume, sql, marks=pytest.mark.full if volume != 1 << 14 and place % 5 else ())
        for volume in (1 << 10, 1 << 14, 1 << 30)
        for place, sql in enumerate(QUERIES)
    ],
)
def test_the_same_rows_as_by_the_source(source, tmp_path, sql, volume):
    step, ctx = fragment(sql, source.schema), context(tmp_path)
    splits = [split.payload for split in source.list_splits(volume)]
    for split in splits:
        files = source.files([split])
        assert plain(Chain((step,)).apply_files(files, ctx)) == plain(step.apply(source.read(split, ctx), ctx))
    assert sum(one.count for one in source.files(splits)) == 300


def test_several_splits_of_one_subtask(source, tmp_path):
    step, ctx = fragment(QUERIES[3], source.schema), context(tmp_path)
    splits = [split.payload for split in source.list_splits(1 << 12)]
    assert len(splits) > 2
    batches = (batch for split in splits for batch in source.read(split, ctx))
    assert plain(Chain((step,)).apply_files(source.files(splits), ctx)) == plain(step.apply(batches, ctx))


def test_any_row_groups_of_a_file(tmp_path):
    """As filters on statistics leave them, in splits of any size and order."""
    pq.write_table(pa.table({"n": list(range(2000))}), tmp_path / "a.parquet", row_group_size=10)
    rng, step = random.Random(9), fragment("SELECT n FROM input", pa.schema({"n": pa.int64()}))
    for share in (1.0, 0.5, 0.02):
        chosen = [begin for begin in range(0, 2000, 10) if rng.random() < share]
        rng.shuffle(chosen)
        pieces = [chosen[i : i + 7] for i in range(0, len(chosen), 7)]
        files = [
            FileRows(str(tmp_path / "a.parquet"), tuple((begin, begin + 10) for begin in sorted(piece)), 70, 0)
            for piece in pieces
        ]
        got = [row["n"] for batch in Chain((step,)).apply_files(files, context(tmp_path)) for row in batch.to_pylist()]
        assert sorted(got) == sorted(n for begin in chosen for n in range(begin, begin + 10))
    text = scan_of([FileRows("/a", ((i, i + 5), (i + 5, i + 10)), 10, 0) for i in range(0, 100, 10)], {"n": "n"})
    assert text.count("read_parquet") == 1 and "file_row_number >= 0 AND file_row_number < 100" in text


def test_a_file_that_is_listed_twice_is_read_twice(tmp_path):
    pq.write_table(pa.table({"n": list(range(40))}), tmp_path / "a.parquet", row_group_size=10)
    step, path = fragment("SELECT n FROM input", pa.schema({"n": pa.int64()})), str(tmp_path / "a.parquet")
    files = [FileRows(path, ((0, 10), (20, 30)), 20, 0), FileRows(path, ((0, 10), (10, 20), (20, 30)), 30, 0)]
    got = [row["n"] for batch in Chain((step,)).apply_files(files, context(tmp_path)) for row in batch.to_pylist()]
    assert sorted(got) == sorted([*range(10), *range(20, 30), *range(30)])


def test_names_that_differ_by_case(tmp_path):
    """The engine takes them for the same."""
    table = pa.table({"n": [1, 2], "N": [3, 4]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource(str(tmp_path / "a.parquet"))
    assert source.files([split.payload for split in source.list_splits(1)]) is None
    step = SqlFragment("sql", "SELECT c1, c0 FROM input", table.schema, pa.schema({"N": pa.int64(), "n": pa.int64()}))
    assert pa.Table.from_batches(step.apply(iter(table.to_batches()), context(tmp_path))).to_pydict() == {
        "N": [3, 4],
        "n": [1, 2],
    }


def test_no_splits(source, tmp_path):
    step = fragment("SELECT count(*) AS c FROM input", source.schema)
    assert plain(Chain((step,)).apply_files(source.files([]), context(tmp_path))) == ["(0,)"]


def test_left_to_the_source(source, tmp_path):
    splits = [split.payload for split in source.list_splits(1 << 30)]
    filtered = push_down(source, None, column("n") > 5)
    assert filtered.files([split.payload for split in filtered.list_splits(1 << 30)]) is None
    assert source.files(splits) is not None
    home = tmp_path / "k=1"
    home.mkdir()
    pq.write_table(pa.table({"t": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("ns"))}), home / "a.parquet")
    other = ParquetSource(str(home / "a.parquet"))
    assert other.files([split.payload for split in other.list_splits(1 << 30)]) is None
    starred = tmp_path / "a*b.parquet"
    pq.write_table(pa.table({"n": [1]}), starred)
    known = ParquetSource(str(tmp_path / "k=1" / "..").replace("k=1/..", "") + "a*b.parquet")
    assert known.files([split.payload for split in known.list_splits(1 << 30)]) is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32()),
        pa.array([-(2**31) + 1, 0], pa.int32()).cast(pa.date32()),
        pa.array([2**63 - 1, 0], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([-(2**63) + 1, 0], pa.int64()).cast(pa.timestamp("us")),
    ],
)
def test_what_the_engine_takes_for_infinite_is_left_to_the_source(tmp_path, column):
    pq.write_table(pa.table({"t": column}), tmp_path / "a.parquet")
    source = ParquetSource(str(tmp_path))
    assert source.files([split.payload for split in source.list_splits(1 << 30)]) is None
    pq.write_table(pa.table({"t": column[1:]}), tmp_path / "a.parquet")
    source = ParquetSource(str(tmp_path))
    assert source.files([split.payload for split in source.list_splits(1 << 30)]) is not None
    pq.write_table(pa.table({"t": column[1:]}), tmp_path / "a.parquet", write_statistics=False)
    source = ParquetSource(str(tmp_path))
    assert source.files([split.payload for split in source.list_splits(1 << 30)]) is None


def test_a_file_that_changed_or_is_gone(source, tmp_path):
    splits = [split.payload for split in source.list_splits(1 << 30)]
    path = tmp_path / "0 it's.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FiresteelError, match="changed while the job was running"):
        source.files(splits)
    path.unlink()
    with pytest.raises(FiresteelError, match="is gone now"):
        source.files(splits)


def test_a_task_counts_the_rows_it_read(source, tmp_path):
    step = fragment("SELECT n, s FROM input WHERE n < 10", source.schema)
    program = VertexProgram(SourceHead(source), (step,), (ResultOutput(9, step.schema),))
    store = ResultStore(str(tmp_path / "results"))
    store.create()
    outcome = run_task(program, context(tmp_path), [], source.list_splits(1 << 30), store, {9: 1}, "lz4")
    assert (outcome.rows_in, outcome.rows_out) == (300, 30)
    assert outcome.bytes_in > 0

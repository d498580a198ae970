"""Files of which a join reads only what can match its finished side. The answer is DuckDB's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel.scheduler.joins import deferrals
from oracle import assert_same_rows, duckdb_answer

ROWS = 20_000
HALF = 1 << 39
"""Of the greatest value of a fact."""
SETTINGS = {
    "data-volume-per-task": "60 kb",
    "firesteel.decider.least-volume-per-slot": 0,
    "max-parallelism": 4,
    "firesteel.join.runtime-filter.min-probe-data-size": "10 kb",
    "firesteel.progress": False,
    "restart-strategy.fixed-delay.delay": "10 ms",
}
KINDS = {
    "inner": "SELECT f.day, f.v, d.w FROM f JOIN d ON f.day = d.day",
    "left": "SELECT f.day, f.v, d.w FROM f LEFT JOIN d ON f.day = d.day",
    "right": "SELECT d.day, f.v, d.w FROM f RIGHT JOIN d ON f.day = d.day",
    "full": "SELECT coalesce(f.day, d.day) AS day, f.v, d.w FROM f FULL JOIN d ON f.day = d.day",
    "semi": "SELECT f.day, f.v FROM f SEMI JOIN d ON f.day = d.day",
    "anti": "SELECT f.day, f.v FROM f ANTI JOIN d ON f.day = d.day",
}
NARROWED = ("inner", "right", "semi")
"""Kinds of which no row of the left side comes out without a match."""


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """However long the smaller side takes, the other one waits: what is decided does not depend on the machine."""
    monkeypatch.setattr(deferrals, "WAIT_SHARE", 1e9)


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(3)
    fact = {
        "day": pa.array(np.sort(rng.integers(0, 200, ROWS)).astype(np.int32), mask=rng.random(ROWS) < 0.01),
        "cust": rng.integers(0, 500, ROWS),
        "v": rng.integers(0, 1 << 40, ROWS),
    }
    days = {"day": np.array([*range(150, 160), 155, 999], np.int64), "w": np.arange(12)}
    return {
        "f": pa.table(fact),
        "d": pa.table(days),
        "c": pa.table({"cust": np.arange(500), "region": np.arange(500) % 50}),
    }


@pytest.fixture(scope="module")
def files(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=1000)
    return folder


def run(session, tmp_path, stream_of, **options):
    """``stream_of`` gets an environment. Returns the job's result and what it wrote."""
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    env = ExecutionEnvironment(spark=session, options={**SETTINGS, **places, **options})
    stream_of(env).write_parquet(tmp_path / "out")
    result = env.execute("filtered")
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
    return result, pq.read_table(tmp_path / "out")


def read(env, files, name):
    return env.read_parquet(files / f"{name}.parquet")


def told(result):
    return [(d.inputs["bytes"], d.result["bytes"]) for d in result.decision_records if d.what == "runtime filter"]


def rows_of_fact(result) -> dict[str, int]:
    """Of the step that reads it."""
    found = [row for row in result.vertices.to_pylist() if "f.parquet" in row["name"] and row["rows_in"]]
    return next(iter(found))


@pytest.mark.parametrize("broadcast", [None, pytest.param("never", marks=pytest.mark.full)], ids=["broadcast", "hash"])
@pytest.mark.parametrize("how", KINDS)
def test_the_same_rows_of_fewer_bytes(session, tmp_path, tables, files, how, broadcast):
    def stream_of(env):
        fact, days = read(env, files, "f"), read(env, files, "d")
        return fact.key_by("day").join(days.key_by("day"), how, broadcast=broadcast).select(*columns)

    columns = ("day", "v") if how in ("semi", "anti") else ("day", "v", "w")
    result, rows = run(session, tmp_path, stream_of)
    assert_same_rows(rows, duckdb_answer(KINDS[how], **tables))
    if how in NARROWED:
        ((before, left),) = told(result)
        assert left <= before / 10
        assert rows_of_fact(result)["rows_in"] < ROWS / 9
    else:
        assert told(result) == []


@pytest.mark.parametrize(
    ("how", "broadcast"),
    [
        pytest.param(
            how, broadcast, marks=() if (how in ("inner", "full", "semi")) == (broadcast is None) else pytest.mark.full
        )
        for how in KINDS
        for broadcast in (None, "never")
    ],
)
def test_each_member_of_a_union_is_narrowed(session, tmp_path, tables, files, how, broadcast):
    """Unions of the filtered side, one of whose members has the key under another name; a union of keys filters nothing."""

    def stream_of(env):
        kept = read(env, files, "f").filter(col("v") < HALF).select("cust", "v", "day")
        renamed = read(env, files, "f").select("cust", "v", d=col("day"))
        rest = renamed.filter(col("v") >= HALF).select("cust", "v", day=col("d"))
        days = read(env, files, "d")
        joined = kept.union(rest).key_by("day").join(days.key_by("day"), how, broadcast=broadcast)
        return joined.select(*columns)

    columns = ("day", "v") if how in ("semi", "anti") else ("day", "v", "w")
    result, rows = run(session, tmp_path, stream_of)
    assert_same_rows(rows, duckdb_answer(KINDS[how], **tables))
    if how in NARROWED:
        assert len(told(result)) == 2 and all(left <= before / 10 for before, left in told(result))
    else:
        assert told(result) == []


def test_a_union_of_keys_filters_nothing(session, tmp_path, tables, files):
    def stream_of(env):
        few = read(env, files, "d").filter(col("w") < 3).union(read(env, files, "d").filter(col("w") > 8))
        return read(env, files, "f").key_by("day").join(few.key_by("day"), "semi").select("day", "v")

    result, rows = run(session, tmp_path, stream_of)
    sql = "SELECT f.day, f.v FROM f SEMI JOIN (SELECT * FROM d WHERE w < 3 OR w > 8) d ON f.day = d.day"
    assert_same_rows(rows, duckdb_answer(sql, **tables))
    assert told(result) == []


def test_without_the_option_all_is_read(session, tmp_path, tables, files):
    def stream_of(env):
        return read(env, files, "f").key_by("day").join(read(env, files, "d").key_by("day")).select("day", "v", "w")

    result, rows = run(session, tmp_path, stream_of, **{"firesteel.join.runtime-filter.enabled": False})
    assert_same_rows(rows, duckdb_answer(KINDS["inner"], **tables))
    assert told(result) == []


def test_a_fact_gets_the_filters_of_its_dimensions_through_an_exchange(session, tmp_path, tables, files):
    def stream_of(env):
        few = read(env, files, "c").filter(col("region") == 7)
        joined = read(env, files, "f").key_by("cust").join(few.key_by("cust"), broadcast="never")
        days = read(env, files, "d").filter(col("w") < 3)
        return joined.key_by("day").join(days.key_by("day"), broadcast="never").select("day", "v", "w", "region")

    result, rows = run(session, tmp_path, stream_of)
    sql = """SELECT f.day, f.v, d.w, c.region FROM f JOIN c ON f.cust = c.cust JOIN d ON f.day = d.day
             WHERE c.region = 7 AND d.w < 3"""
    assert_same_rows(rows, duckdb_answer(sql, **tables))
    ((before, left),) = told(result)
    assert left < before / 10
    assert rows_of_fact(result)["rows_out"] < ROWS / 1000


def test_keys_in_all_row_groups_leave_all_of_them_but_few_rows_go_into_the_exchange(session, tmp_path, tables, files):
    def stream_of(env):
        few = read(env, files, "c").filter(col("region") == 7)
        return read(env, files, "f").key_by("cust").join(few.key_by("cust"), broadcast="never").select("cust", "v")

    result, rows = run(session, tmp_path, stream_of)
    assert_same_rows(
        rows, duckdb_answer("SELECT f.cust, f.v FROM f JOIN c ON f.cust = c.cust WHERE region = 7", **tables)
    )
    ((before, left),) = told(result)
    assert left == before
    fact = rows_of_fact(result)
    assert fact["rows_in"] == ROWS and rows.num_rows <= fact["rows_out"] < ROWS / 10


def test_a_side_without_rows_leaves_nothing_to_read(session, tmp_path, tables, files):
    def stream_of(env):
        none = read(env, files, "d").filter(col("w") > 100)
        return read(env, files, "f").key_by("day").join(none.key_by("day")).select("day", "v", "w")

    result, rows = run(session, tmp_path, stream_of)
    assert rows.num_rows == 0
    ((_, left),) = told(result)
    assert left == 0


def test_a_folder_of_partitions_of_which_one_is_read(session, tmp_path, tables, files):
    env = ExecutionEnvironment(spark=session, options=SETTINGS)
    env.read_parquet(files / "f.parquet").filter(col("day").isNotNull()).write_parquet(
        tmp_path / "by_day", partition_by=["day"]
    )
    env.execute("partitions")

    def stream_of(env):
        fact = env.read_parquet(tmp_path / "by_day")
        days = read(env, files, "d").filter(col("day") == 151)
        return fact.key_by("day").join(days.key_by("day")).select("day", "v", "w")

    result, rows = run(session, tmp_path, stream_of)
    assert_same_rows(rows, duckdb_answer(KINDS["inner"] + " WHERE f.day = 151", **tables))
    ((before, left),) = told(result)
    assert 0 < left < before / 50


def test_keys_that_cannot_be_read_leave_the_source_as_it_is(session, tmp_path, tables, files, monkeypatch):
    from firesteel.spark.driver import narrowing

    def broken(*_, **__):
        raise OSError("the disk is on fire")

    monkeypatch.setattr(narrowing, "narrowed", broken)

    def stream_of(env):
        return read(env, files, "f").key_by("day").join(read(env, files, "d").key_by("day")).select("day", "v", "w")

    result, rows = run(session, tmp_path, stream_of)
    assert_same_rows(rows, duckdb_answer(KINDS["inner"], **tables))
    (decision,) = [d for d in result.decision_records if d.what == "runtime filter"]
    assert "the disk is on fire" in decision.reason and decision.result["bytes"] == decision.inputs["bytes"]

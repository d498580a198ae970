"""Joins that a step by the same key follows, on Spark: apart or in one step as was decided, and DuckDB's answer either way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from oracle import assert_same_rows, duckdb_answer

SMALL = {"data-volume-per-task": "100 kb", "firesteel.decider.least-volume-per-slot": 0, "max-parallelism": 8}
ROWS, KEYS = 30_000, 500


def fact(share: float = 0.0) -> pa.Table:
    """``share``: of the rows of one key."""
    rng = np.random.default_rng(3)
    keys = np.where(rng.random(ROWS) < share, 7, rng.integers(0, KEYS, ROWS))
    return pa.table({"k": pa.array(keys, mask=rng.random(ROWS) < 0.01), "v": rng.integers(0, 100, ROWS)})


def lookup(name: str, each: int = 1, step: int = 1) -> pa.Table:
    """``each``: rows of a key; every ``step``-th key."""
    keys = np.repeat(np.arange(0, KEYS, step), each)
    return pa.table({"k": keys, name: keys % 7 + np.arange(len(keys))})


def run(session, tmp_path, stream_of, tables, **options):
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    env = ExecutionEnvironment(spark=session, options={**SMALL, **places, "firesteel.progress": False, **options})
    streams = {}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2_000)
        streams[name] = env.read_parquet(tmp_path / f"{name}.parquet").key_by("k")
    stream_of(streams).write_parquet(tmp_path / "out")
    result = env.execute("chain")
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
    decided = [d.result for d in result.decision_records if d.what in ("join", "two steps")]
    return decided, result, pq.read_table(tmp_path / "out")


def summed(streams, broadcast=None):
    return (
        streams["f"]
        .join(streams["a"], broadcast=broadcast)
        .key_by("k")
        .aggregate(n=("*", "count"), v=("v", "sum"), a=("a", "max"))
    )


SUMMED = """SELECT k, count(*)::BIGINT AS n, sum(v)::BIGINT AS v, max(a) AS a FROM f JOIN a USING (k) GROUP BY k"""


def test_a_small_side_is_broadcast_and_what_comes_out_exchanged(session, tmp_path):
    tables = {"f": fact(), "a": lookup("a", step=3)}
    decided, result, rows = run(session, tmp_path, lambda streams: summed(streams, "right"), tables)
    assert decided == ["broadcast right"]
    assert "inner join" in result.explain() and "-> aggregate" not in result.explain()
    assert_same_rows(rows, duckdb_answer(SUMMED, **tables))


def test_large_sides_and_the_step_behind_them_are_one_step(session, tmp_path):
    tables = {"f": fact(), "a": lookup("a", each=40)}
    decided, result, rows = run(session, tmp_path, summed, tables, **{"firesteel.memory.per-task": "1 mb"})
    assert decided == ["hash", "one step"]
    assert "inner join -> aggregate" in result.explain()
    assert_same_rows(rows, duckdb_answer(SUMMED, **tables))


@pytest.mark.full
def test_a_heavy_key_is_divided_and_its_rows_combined_again(session, tmp_path):
    tables = {"f": fact(0.6), "a": lookup("a", each=4)}
    decided, result, rows = run(session, tmp_path, lambda streams: summed(streams, "never"), tables)
    assert decided == ["two steps"]
    assert "divided: " in result.explain().lower()
    assert_same_rows(rows, duckdb_answer(SUMMED, **tables))


@pytest.mark.full
@pytest.mark.parametrize("broadcast", ["right", "never"])
def test_several_lookups_by_one_key_are_one_task_either_way(session, tmp_path, broadcast):
    tables = {"f": fact(), "a": lookup("a"), "b": lookup("b", step=2), "c": lookup("c", step=5)}

    def chain(streams):
        first = streams["f"].join(streams["a"], broadcast=broadcast)
        second = first.key_by("k").join(streams["b"], "left", broadcast=broadcast)
        return second.key_by("k").join(streams["c"], "semi", broadcast=broadcast)

    decided, _, rows = run(session, tmp_path, chain, tables)
    assert decided == (["broadcast right"] * 3 if broadcast == "right" else ["one step"] * 2)
    query = "SELECT f.k, v, a, b FROM f JOIN a USING (k) LEFT JOIN b USING (k) SEMI JOIN c USING (k)"
    assert_same_rows(rows, duckdb_answer(query, **tables))


@pytest.mark.full
def test_a_hint_makes_a_grouped_function_s_join_a_broadcast(session, tmp_path):
    tables = {"f": fact(), "a": lookup("a")}

    def counted(table: pa.Table) -> pa.Table:
        return pa.table({"k": table.column("k")[:1], "n": [table.num_rows]})

    def grouped(streams):
        joined = streams["f"].join(streams["a"], broadcast="right")
        return joined.key_by("k").apply_in_arrow(counted, "k bigint, n bigint")

    decided, _, rows = run(session, tmp_path, grouped, tables)
    assert decided == ["broadcast right"]
    query = "SELECT k, count(*)::BIGINT AS n FROM f JOIN a USING (k) GROUP BY k"
    assert_same_rows(rows, duckdb_answer(query, **tables))

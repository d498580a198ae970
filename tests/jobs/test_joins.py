"""Joins where one key has most of the rows: its subpartition is divided among subtasks, and the answer is DuckDB's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.journal.file import read
from firesteel.scheduler.kernel.records import Decision
from firesteel.simulation.what_if import what_if
from oracle import assert_same_rows, duckdb_answer

KINDS = {
    "inner": "SELECT l.k, l.v, r.w FROM l JOIN r ON l.k = r.k",
    "left": "SELECT l.k, l.v, r.w FROM l LEFT JOIN r ON l.k = r.k",
    "right": "SELECT r.k, l.v, r.w FROM l RIGHT JOIN r ON l.k = r.k",
    "full": "SELECT coalesce(l.k, r.k) AS k, l.v, r.w FROM l FULL JOIN r ON l.k = r.k",
    "semi": "SELECT l.k, l.v FROM l SEMI JOIN r ON l.k = r.k",
    "anti": "SELECT l.k, l.v FROM l ANTI JOIN r ON l.k = r.k",
}
HEAVY = 7
SMALL = {"data-volume-per-task": "60 kb", "firesteel.decider.least-volume-per-slot": 0, "max-parallelism": 12}
DATASETS = {"left": 2, "right": 3}
"""Of the two sides, as the join reads them."""


def tables(how: str) -> dict[str, pa.Table]:
    """Six of ten rows of one side have one key (of ``anti``, none of the others has it)."""
    rng = np.random.default_rng(5)

    def side(column: str, rows: int, share: float) -> pa.Table:
        keys = np.where(rng.random(rows) < share, HEAVY, rng.integers(100, 400, rows))
        nulls = rng.random(rows) < 0.02
        return pa.table({"k": pa.array(keys, mask=nulls), column: rng.integers(0, 1 << 40, rows)})

    small = side("w", 500, 0.0 if how == "anti" else 0.006)
    large = side("v", 25_000, 0.6)
    if how == "right":
        return {"l": small.rename_columns(["k", "v"]), "r": large.rename_columns(["k", "w"])}
    return {"l": large, "r": small}


def shuffled(batches):
    """The same rows in another order each time."""
    for batch in batches:
        order = list(range(batch.num_rows))
        random.shuffle(order)
        yield batch.take(pa.array(order))


def loses(storage: Path, mark: Path, dataset: int):
    """Deletes an object of the data set once, when the first rows of the join come out."""

    def lose(batches):
        for batch in batches:
            yield batch
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                continue
            min(storage.rglob(f"d{dataset}-*")).unlink()

    return lose


def joined(env: ExecutionEnvironment, how: str, given: dict[str, pa.Table], behind: Any = None):
    sides = []
    for name in ("l", "r"):
        table = given[name]
        rows = env.from_arrow(table).rebalance().map_in_arrow(shuffled, table.schema).set_parallelism(3)
        sides.append(rows.key_by("k"))
    join = sides[0].join(sides[1], how)
    return join if behind is None else join.map_in_arrow(behind, join.schema)


def divided_parts(decisions) -> int:
    """Subtasks of the divided subpartitions."""
    told = [d.result.get("divided", []) for d in decisions if d.what == "parallelism" and isinstance(d.result, dict)]
    return sum(int(np.prod(one["parts"])) for each in told for one in each)


def run(session, tmp_path, stream_of, **options):
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    given = {**SMALL, **places, "firesteel.progress": False, "restart-strategy.fixed-delay.delay": "10 ms", **options}
    env = ExecutionEnvironment(spark=session, options=given)
    stream_of(env).write_parquet(tmp_path / "out")
    return env.execute("join")


@pytest.mark.parametrize("how", ["left", *(pytest.param(h, marks=pytest.mark.full) for h in KINDS if h != "left")])
@pytest.mark.parametrize("lost", [None, "left", "right"])
def test_a_heavy_key_is_divided_and_each_pair_comes_out_once(session, tmp_path, how, lost):
    """``lost``: of this side an object is lost once some have read it, so that its producer runs again, and gives its rows in
    another order."""
    given = tables(how)
    behind = None if lost is None else loses(tmp_path / "storage", tmp_path / "mark", DATASETS[lost])
    result = run(session, tmp_path, lambda env: joined(env, how, given, behind))
    assert_same_rows(pq.read_table(tmp_path / "out"), duckdb_answer(KINDS[how], **given))
    parts = divided_parts(result.decision_records)
    assert parts > 2 if how != "full" else not parts
    if lost == ("right" if how == "right" else "left"):  # the other side's objects are so small that workers keep them
        assert any(d.what == "failover" for d in result.decision_records)


def test_the_option_leaves_a_heavy_key_to_one_subtask(session, tmp_path):
    given = tables("inner")
    result = run(session, tmp_path, lambda env: joined(env, "inner", given), **{"firesteel.join.skew": "none"})
    assert_same_rows(pq.read_table(tmp_path / "out"), duckdb_answer(KINDS["inner"], **given))
    assert not divided_parts(result.decision_records)


def test_steps_by_the_same_key_get_all_rows_of_a_key_together(session, tmp_path):
    """They run in the join's own tasks, which are not divided then, and the record says so."""
    given = tables("inner")

    def counted(env: ExecutionEnvironment):
        return joined(env, "inner", given).key_by("k").apply_in_arrow(count, "k bigint, n bigint")

    result = run(session, tmp_path, counted)
    wanted = duckdb_answer("SELECT l.k, count(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY l.k", **given)
    assert_same_rows(pq.read_table(tmp_path / "out"), wanted)
    (reason,) = [d.reason for d in result.decision_records if d.what == "parallelism" and "not divided" in d.reason]
    assert reason.endswith("is one task, with unions or other steps by key")


def count(rows: pa.Table) -> pa.Table:
    return pa.table({"k": rows.column("k").slice(0, 1), "n": pa.array([rows.num_rows], pa.int64())})


@pytest.mark.parametrize("apart", [{"parallelism": 3}, pytest.param({"chaining": False}, marks=pytest.mark.full)])
def test_a_step_by_key_in_tasks_of_its_own_gets_its_exchange(session, tmp_path, apart):
    """The join's rows do not lie by its key any more: nothing may be taken from that."""
    given = tables("inner")

    def counted(env: ExecutionEnvironment):
        step = joined(env, "inner", given).key_by("k").apply_in_arrow(count, "k bigint, n bigint")
        return step.set_parallelism(3) if "parallelism" in apart else step.disable_chaining()

    result = run(session, tmp_path, counted)
    wanted = duckdb_answer("SELECT l.k, count(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY l.k", **given)
    assert_same_rows(pq.read_table(tmp_path / "out"), wanted)
    assert divided_parts(result.decision_records) > 2


@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.full)])
def test_heavy_keys_are_named_in_the_journal_and_in_explain(session, tmp_path, named):
    """Each of three producers writes some 5 MiB. ``named``: the option."""
    rng = np.random.default_rng(5)
    keys = np.where(rng.random(900_000) < 0.6, HEAVY, rng.integers(100, 1_000_000, 900_000))
    nulls = rng.random(len(keys)) < 0.15
    large = pa.table({"k": pa.array(keys, mask=nulls), "v": np.arange(len(keys))})
    small = pa.table({"k": np.arange(100), "w": np.arange(100)})
    options = {"data-volume-per-task": "5 MiB", "firesteel.join.adaptive": False, "firesteel.journal.heavy-keys": named}
    result = run(session, tmp_path, lambda env: joined(env, "left", {"l": large, "r": small}), **options)
    assert pq.read_table(tmp_path / "out").num_rows == len(keys)
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    told = [d for d in read(journal) if isinstance(d, Decision) and d.what == "heavy keys"]
    if not named:
        assert not told and "heavy keys" not in result.explain()
        return
    (record,) = told
    assert (record.inputs["dataset"], record.inputs["columns"]) == (DATASETS["left"], ["k"])
    first, second = record.result
    assert (first["key"], second["key"]) == ({"k": str(HEAVY)}, {"k": "null"})
    assert abs(first["share"] - (keys[~nulls] == HEAVY).sum() / len(keys)) < 0.02
    assert abs(second["share"] - nulls.mean()) < 0.01
    divided = [one for d in result.decision_records if d.what == "parallelism" for one in d.result.get("divided", [])]
    assert [one["subpartition"] for one in divided] == [first["subpartition"]]
    (line,) = [line for line in result.explain().splitlines() if line.startswith("    heavy keys")]
    assert f"k = {HEAVY} has {100 * first['share']:.3g} % (subpartition {first['subpartition']})" in line
    assert line.strip().lower() in what_if(read(journal), {"firesteel.join.skew": "none"}).lower() + "."

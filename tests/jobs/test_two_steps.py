"""Distinct values of a key that has most of them, or of all rows: counted by several subtasks, and the answer is DuckDB's."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.scheduler.kernel.events import ExecutionsFinished
from firesteel.scheduler.scheduler import Scheduler
from oracle import assert_same_rows, duckdb_answer

BY_KEY = """
    SELECT k, count(DISTINCT v)::BIGINT AS d, count(*)::BIGINT AS n, min(w) AS low, sum(w)::BIGINT AS total, avg(w) AS mean FROM t GROUP BY k"""
OF_ALL = "SELECT count(DISTINCT v)::BIGINT AS d, count(*)::BIGINT AS n, min(w) AS low, sum(w)::BIGINT AS total, avg(w) AS mean FROM t"
AGGREGATES = {
    "d": ("v", "count_distinct"),
    "n": ("*", "count"),
    "low": ("w", "min"),
    "total": ("w", "sum"),
    "mean": ("w", "mean"),
}
SMALL = {"data-volume-per-task": "60 kb", "firesteel.decider.least-volume-per-slot": 0, "max-parallelism": 12}


def table(share: float, of_strings: bool, rows: int = 25_000) -> pa.Table:
    """Six of ten rows, say, have one key, and most of their values are different ones."""
    rng = np.random.default_rng(7)
    keys = np.where(rng.random(rows) < share, 7, rng.integers(100, 400, rows))
    numbers = rng.integers(0, 20_000, rows)
    values = [f"value {v}" for v in numbers] if of_strings else numbers * 1_000_003
    nulls = rng.random(rows) < 0.02, rng.random(rows) < 0.05
    return pa.table(
        {"k": pa.array(keys, mask=nulls[0]), "v": pa.array(values, mask=nulls[1]), "w": rng.integers(-50, 50, rows)}
    )


def shuffled(batches):
    """The same rows in another order each time."""
    for batch in batches:
        order = list(range(batch.num_rows))
        random.shuffle(order)
        yield batch.take(pa.array(order))


def run(session, tmp_path, stream_of, **options):
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    given = {**SMALL, **places, "firesteel.progress": False, "restart-strategy.fixed-delay.delay": "10 ms", **options}
    env = ExecutionEnvironment(spark=session, options=given)
    stream_of(env).write_parquet(tmp_path / "out")
    result = env.execute("counts")
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
    return result, pq.read_table(tmp_path / "out")


def counted(env: ExecutionEnvironment, rows: pa.Table, *keys: str):
    stream = env.from_arrow(rows).rebalance().map_in_arrow(shuffled, rows.schema).set_parallelism(3)
    return (stream.key_by(*keys) if keys else stream).aggregate(AGGREGATES)


def steps(result) -> list[tuple[str, str]]:
    return [(d.result, d.rule) for d in result.decision_records if d.what == "two steps"]


def parallelisms(result) -> list[int]:
    decided = [d.result for d in result.decision_records if d.what == "parallelism" and isinstance(d.result, dict)]
    return [each["parallelism"] for each in decided]


@pytest.mark.parametrize("of_strings", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize(("share", "wanted"), [(0.6, ("two steps", "divided")), (0.0, ("one step", "not divided"))])
def test_a_key_with_most_of_the_values_is_counted_by_several(session, tmp_path, share, wanted, of_strings):
    rows = table(share, of_strings)
    result, found = run(session, tmp_path, lambda env: counted(env, rows, "k"))
    assert_same_rows(found, duckdb_answer(BY_KEY, t=rows))
    assert steps(result) == [wanted]
    if share:
        (divided,) = [
            d.result["divided"] for d in result.decision_records if d.what == "parallelism" and "divided" in d.result
        ]
        assert divided[0]["parts"][0] > 2


@pytest.mark.parametrize("keys", [("k",), pytest.param((), marks=pytest.mark.full)])
def test_values_of_several_columns_are_counted_by_several(session, tmp_path, keys):
    """Few rows are folded before the exchange, where a row would hold a value of each column."""
    rows = table(0.6, False).append_column("v2", pa.array(np.random.default_rng(3).integers(0, 9_000, 25_000)))
    aggregates = {
        "d": ("v", "count_distinct"),
        "e": ("v2", "count_distinct"),
        "low": ("w", "min"),
        "mean": ("w", "mean"),
    }

    def stream_of(env: ExecutionEnvironment):
        stream = env.from_arrow(rows).rebalance().map_in_arrow(shuffled, rows.schema).set_parallelism(2)
        return (stream.key_by(*keys) if keys else stream).aggregate(aggregates)

    result, found = run(session, tmp_path, stream_of)
    columns = "count(DISTINCT v)::BIGINT AS d, count(DISTINCT v2)::BIGINT AS e, min(w) AS low, avg(w) AS mean"
    query = f"SELECT k, {columns} FROM t GROUP BY k" if keys else f"SELECT {columns} FROM t"
    assert_same_rows(found, duckdb_answer(query, t=rows))
    assert steps(result) == [("two steps", "divided")]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [(25_000, ("two steps", "divided")), (300, ("one step", "not divided")), (0, ("one step", "not divided"))],
)
def test_values_of_all_rows_are_counted_by_as_many_as_they_are_worth(session, tmp_path, rows, wanted):
    given = table(0.0, False, rows)
    result, found = run(session, tmp_path, lambda env: counted(env, given))
    assert_same_rows(found, duckdb_answer(OF_ALL, t=given))
    assert steps(result) == [wanted]
    (_, *counting) = parallelisms(result)  # the first one's was set
    assert counting == [1] if wanted[0] == "one step" else len(counting) == 2 and counting[0] > 2 and counting[1] == 1


@pytest.mark.parametrize("speculative", [False, pytest.param(True, marks=pytest.mark.full)])
def test_counts_are_right_where_values_are_made_again_in_another_order(session, tmp_path, monkeypatch, speculative):
    """When the first subtask has counted its values, an object is deleted that the others read as well."""
    rows, deleted, handle = table(0.6, False), list[Path](), Scheduler.handle

    def losing(self, event):
        counted_some = isinstance(event, ExecutionsFinished) and self.graph.vertices[event.vertex].job.name.startswith(
            "count values"
        )
        if counted_some and not deleted:
            deleted.append(min((tmp_path / "storage").rglob("d1-*")))
            deleted[0].unlink()
        return handle(self, event)

    monkeypatch.setattr(Scheduler, "handle", losing)
    options = {"jobmanager.adaptive-batch-scheduler.speculative.enabled": speculative}
    result, found = run(session, tmp_path, lambda env: counted(env, rows, "k"), **options)
    assert_same_rows(found, duckdb_answer(BY_KEY, t=rows))
    assert steps(result) == [("two steps", "divided")]
    assert any(d.what == "failover" for d in result.decision_records)


def test_the_option_leaves_a_key_to_one_subtask(session, tmp_path):
    rows = table(0.6, False)
    result, found = run(session, tmp_path, lambda env: counted(env, rows, "k"), **{"firesteel.join.skew": "none"})
    assert_same_rows(found, duckdb_answer(BY_KEY, t=rows))
    assert steps(result) == []


def test_a_step_by_the_same_key_runs_in_the_tasks_of_the_aggregation_and_divides_nothing(session, tmp_path):
    rows = table(0.6, False)

    def stream_of(env: ExecutionEnvironment):
        return counted(env, rows, "k").key_by("k").apply_in_arrow(pick, "k bigint, d bigint")

    result, found = run(session, tmp_path, stream_of)
    assert_same_rows(found, duckdb_answer("SELECT k, count(DISTINCT v)::BIGINT AS d FROM t GROUP BY k", t=rows))
    assert steps(result) == []


def pick(rows: pa.Table) -> pa.Table:
    assert rows.num_rows == 1, "all that there is of the key"
    return rows.select(["k", "d"])


def test_costs_of_the_whole_step_are_found_in_the_second_run(session, tmp_path):
    rows = table(0.0, False)
    for number in range(2):
        journal = {"firesteel.journal.directory": str(tmp_path)}
        result, _ = run(session, tmp_path / str(number), lambda env: counted(env, rows, "k"), **journal)
    *_, decided = [d for d in result.decision_records if d.what == "parallelism"]
    assert decided.inputs["allowed"]["cost"]["runs"] == 1


def test_what_is_asked_of_a_step_holds_for_both(session, tmp_path):
    rows = table(0.6, False)

    def stream_of(env: ExecutionEnvironment):
        return counted(env, rows, "k").set_max_parallelism(8).name("distinct").uid("distinct")

    result, found = run(session, tmp_path, stream_of)
    assert_same_rows(found, duckdb_answer(BY_KEY, t=rows))
    assert steps(result) == [("two steps", "divided")]
    assert max(parallelisms(result)) <= 8
    assert Path(result.journal).read_text().count('"uid":"distinct') == 2

"""TPC-H as pipelines on real Spark, compared with DuckDB, whatever the parallelism, the cut and the codec."""

from __future__ import annotations

import pytest

from firesteel import ExecutionEnvironment
from firesteel.scheduler.exchange import merging
from oracle import TPCH_SQL, assert_same_rows, duckdb_answer, tpch
from tpch_kit import ORDERED, QUANTITY, SMALL, example

pytestmark = pytest.mark.spark

SHORT = ("q3",)
"""Run without ``--all``."""
TINY = {
    "firesteel.deployment.offload-threshold": "1 b",
    "firesteel.executor.blob-cache-size": "1 kb",
    "firesteel.merge.request-time": "10 s",
    "firesteel.memory.per-task": "1 MiB",
}
"""Every gate is a blob, every exchange is merged that can be, and nothing stays in memory for long."""


@pytest.fixture(scope="module")
def data():
    return tpch(0.01)


@pytest.fixture(scope="module")
def answers(data):
    return {name: duckdb_answer(sql.format(quantity=QUANTITY), data) for name, sql in TPCH_SQL.items()}


def run(spark, tmp_path, data, query, options):
    base = {
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.journal.directory": str(tmp_path / "journal"),
    }
    env = ExecutionEnvironment(spark=spark, options={**base, "firesteel.progress": "false", **options})
    tables = example.Tables(env, data)
    stream = example.q18(tables, QUANTITY) if query == "q18" else example.QUERIES[query](tables)
    table = stream.to_arrow()
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
    return table


@pytest.mark.parametrize("query", [q if q in SHORT else pytest.param(q, marks=pytest.mark.full) for q in TPCH_SQL])
def test_answers_with_every_default(spark, tmp_path, data, answers, query):
    assert answers[query].num_rows > 1
    assert_same_rows(run(spark, tmp_path, data, query, {}), answers[query], in_order=query in ORDERED)


@pytest.mark.full
@pytest.mark.parametrize("query", ["q1", "q3", "q18"])
@pytest.mark.parametrize(
    "options",
    [
        {**SMALL, "firesteel.decider.cut": "by-bytes"},
        {**SMALL, "firesteel.decider.cut": "by-count", "firesteel.results.codec": "zstd"},
        {**SMALL, "firesteel.results.codec": "none", "firesteel.memory.per-task": "1 MiB"},
        {**SMALL, **TINY, "firesteel.decider.cut": "by-bytes"},
        {**SMALL, **TINY, "firesteel.decider.cut": "by-count", "firesteel.decider.max-slices-per-subtask": "64"},
        {"jobmanager.scheduler": "Default", "parallelism.default": "3"},
        {"jobmanager.scheduler": "Default", "parallelism.default": "1"},
    ],
    ids=[
        "by-bytes",
        "by-count-zstd",
        "uncompressed-1MiB",
        "all-merged-by-bytes",
        "all-merged-by-count",
        "static-3",
        "static-1",
    ],
)
def test_answers_do_not_depend_on_how_it_runs(spark, tmp_path, data, answers, query, options, monkeypatch):
    if "firesteel.merge.request-time" in options:
        monkeypatch.setattr(merging, "WORTH", 0.0)
        monkeypatch.setattr(merging, "WHOLE_BYTES", 0)
    assert_same_rows(run(spark, tmp_path, data, query, options), answers[query], in_order=query in ORDERED)


@pytest.mark.full
def test_written_files_hold_the_answer(spark, tmp_path, data, answers):
    import pyarrow.parquet as pq

    options = {**SMALL, "firesteel.journal.directory": str(tmp_path / "journal"), "firesteel.progress": "false"}
    env = ExecutionEnvironment(spark=spark, options=options)
    example.q1(example.Tables(env, data)).write_parquet(tmp_path / "q1")
    result = env.execute("q1")
    assert (tmp_path / "q1" / "_SUCCESS").exists()
    assert_same_rows(pq.read_table(tmp_path / "q1"), answers["q1"])
    assert {decision.what for decision in result.decision_records}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "q1"]

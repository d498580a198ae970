"""The runtime on a real standalone cluster whose workers have no Firesteel."""

from __future__ import annotations

import time

import numpy as np
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from tools.standalone import HOSTS

from oracle import TPCH_SQL, assert_same_rows, duckdb_answer, tpch
from tpch_kit import ORDERED, QUANTITY

pytestmark = pytest.mark.cluster


def until(condition, driver, seconds=600.0):
    end = time.monotonic() + seconds
    while not condition():
        assert driver.process.poll() is None, driver.log.read_text()[-3000:]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.full
def test_a_job_runs_on_executors_that_have_no_firesteel_and_lacks_are_sentences(cluster, tmp_path):
    answer = cluster.driver("plain", tmp_path).answer()
    assert "firesteel.storage.directory" in answer["storage unset"]
    assert "s3://" in answer["s3a"]
    assert "'stranger'" in answer["module"]
    assert "addPyFile" in answer["module"]
    assert answer["beside"] == [10, 11]
    assert answer["error"] == "None"
    assert answer["values"] == list(range(120))
    assert answer["commits"] >= 1
    assert {e.partition(":")[0] for e in answer["executors"]} == set(HOSTS)
    assert answer["jobs of a second run"] == 2, "the executors were looked at twice"
    assert answer["left"] == []
    assert "/no/such/python" in answer["worker python"]
    assert "PYSPARK_PYTHON" in answer["worker python"]


@pytest.mark.full
def test_each_executor_fetches_a_blob_once(cluster, tmp_path):
    answer = cluster.driver("blobs", tmp_path).answer()
    assert answer["error"] == "None"
    assert answer["offloads"] == 1
    files = {(row["k"], row["v"]) for row in answer["rows"]}
    assert len(answer["rows"]) == 11
    assert sorted(host for host, _ in files) == [2, 3, 4], "one file on each of the three hosts"
    assert answer["left"] == []


@pytest.mark.full
def test_small_executions_share_standing_tasks_of_all_executors_or_are_spark_jobs_where_these_cannot_connect(
    session, tmp_path
):
    answer = session.run("standing", tmp_path)
    for name in ("reached", "unreached", "later"):
        assert answer[name]["right"]
        assert answer[name]["failed"] == answer[name]["left"] == []
    assert answer["reached"]["results"] == ["standing tasks"] * 2
    assert answer["unreached"]["results"] == ["standing tasks", "Spark job"], "the next batch does not even try"
    assert answer["later"]["results"] == [], "nor does the next job"


@pytest.mark.full
def test_executors_share_the_rate_of_a_step_that_calls_a_service(session, tmp_path):
    rate, rows = 100, 1_500
    answer = session.run("rated", tmp_path, rate=rate, rows=rows)
    assert answer["right"]
    assert answer["hosts"] == sorted(HOSTS)
    calls = answer["calls"]
    assert len(calls) == rows
    within = max(np.searchsorted(calls, call + 1, side="right") - place for place, call in enumerate(calls))
    assert within <= rate + len(HOSTS), "in any second, all together"
    assert answer["left"] == []


@pytest.mark.full
def test_tpch_is_answered_right_although_an_executor_is_killed_in_each_query(cluster, tmp_path):
    queries = ("q1", "q3", "q18")
    data = tpch(0.01)
    answers = {query: duckdb_answer(TPCH_SQL[query].format(quantity=QUANTITY), data) for query in queries}
    driver = cluster.driver("tpch", tmp_path)
    for query, victim in zip(queries, ("127.0.0.2", "127.0.0.3", "127.0.0.2"), strict=True):
        until(lambda query=query: _hosts(tmp_path, query) == set(HOSTS), driver)
        cluster.standalone.kill_executor(victim)
        (tmp_path / f"go-{query}").touch()
    assert driver.answer() == {"left": [], "files": []}
    assert_same_rows(pq.read_table(tmp_path / "q1"), answers["q1"])
    for query in queries[1:]:
        assert_same_rows(feather.read_table(tmp_path / f"{query}.arrow"), answers[query], in_order=query in ORDERED)


def _hosts(folder, query):
    """Where tasks of the query wait."""
    return {path.name.rpartition("-")[2] for path in folder.glob(f"at-{query}-*")}

"""Queries that run in the driver's process: what is told of them, and what ends them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import firesteel
from firesteel.errors import JobCancelledError
from firesteel.spark.session.versions import version_of

pytestmark = pytest.mark.spark
SINCE_4 = pytest.mark.skipif(version_of(pyspark.__version__) < (4, 0), reason="sessions have tags since Spark 4")

SUMS = "SELECT k, sum(n) AS s FROM numbers GROUP BY k ORDER BY k"
ENDLESS = "SELECT count(*) FROM numbers a JOIN numbers b JOIN numbers c JOIN numbers d ON a.n + b.n + c.n + d.n = 3"


@pytest.fixture(scope="module")
def numbers(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("numbers") / "numbers")
    spark.range(2000).selectExpr("id AS n", "id % 3 AS k").write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("numbers")
    return path


@pytest.fixture
def options(tmp_path):
    return {"firesteel.journal.directory": str(tmp_path / "journal"), "firesteel.progress": "false"}


def runner_of(query, options):
    """Of its job, the decision about the runner."""
    decisions = firesteel.History(query.job, options).decisions.to_pylist()
    return [(json.loads(one["result"]), one["rule"]) for one in decisions if one["what"] == "runner"]


@pytest.mark.parametrize(
    ("given", "decided"),
    [
        ({}, [("in process", "bytes")]),
        ({"firesteel.run.in-process": "all"}, [("in process", "option")]),
        ({"firesteel.run.in-process": "never"}, [("stages", "option")]),
        ({"firesteel.run.in-process.max-bytes": "1 kb"}, [("stages", "bytes")]),
    ],
)
def test_the_runner_is_a_decision_of_the_job(spark, numbers, options, given, decided):
    with firesteel.accelerate(spark, options | given) as acceleration:
        assert [tuple(row) for row in spark.sql(SUMS).collect()] == [(0, 666333), (1, 667000), (2, 665667)]
    assert [query.left for query in acceleration.queries] == [()]
    assert runner_of(acceleration.queries[0], options) == decided


def test_a_job_says_which_rules_changed_its_plan(spark, numbers, options):
    text = "SELECT a.n, b.s FROM numbers a JOIN (SELECT k, sum(n) AS s FROM numbers GROUP BY k) b ON a.n = b.k WHERE a.n < 3 ORDER BY a.n"
    with firesteel.accelerate(spark, options) as acceleration:
        assert spark.sql(text).collect() == [(0, 666333), (1, 667000), (2, 665667)]
    said = str(firesteel.History(acceleration.queries[0].job, options).explain())
    assert "Nulls that a join or another condition rejects are not looked for below it." in said


def test_rules_change_plans_of_stages_and_explain_shows_how_without_running_them(spark, numbers, options):
    counts = "SELECT k, count(*) AS c FROM numbers GROUP BY k"
    text = f"SELECT a.k, s, c FROM (SELECT k, sum(n) AS s FROM numbers GROUP BY k) a JOIN ({counts}) b ON a.k = b.k ORDER BY a.k"
    with firesteel.accelerate(spark, options | {"firesteel.run.in-process": "never"}) as acceleration:
        said = acceleration.explain(spark.sql(text), rules=True)
        assert acceleration.queries == []
        assert spark.sql(text).collect() == [(0, 666333, 667), (1, 667000, 667), (2, 665667, 666)]
    assert said.startswith("stages: firesteel.run.in-process is never\nrules that changed the plan: share_subtrees\n")
    assert "\nshare_subtrees: Aggregates of the same rows are computed once.\n  before:\n" in said
    decisions = firesteel.History(acceleration.queries[0].job, options).decisions.to_pylist()
    assert [one["rule"] for one in decisions if one["what"] == "plan"] == ["share_subtrees"]


@pytest.mark.parametrize("written", ["csv", "json", "orc"])
def test_files_that_the_engine_does_not_read_are_read_for_it(spark, numbers, options, tmp_path, written):
    spark.table("numbers").repartition(3).write.format(written).save(str(tmp_path / "rows"))
    rows = spark.read.schema("n LONG, k LONG").format(written).load(str(tmp_path / "rows"))
    with firesteel.accelerate(spark, options) as acceleration:
        assert rows.groupBy("k").sum("n").orderBy("k").collect()[1] == (1, 667000)
    assert runner_of(acceleration.queries[0], options) == [("in process", "bytes")]


@pytest.mark.parametrize("written", ["parquet", "json"])
def test_columns_that_differ_by_case_alone_are_not_one(spark, options, tmp_path, written):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        spark.sql("SELECT 1L AS a, 2L AS A").write.format(written).save(str(tmp_path / "rows"))
        rows = spark.read.schema("a LONG, A LONG").format(written).load(str(tmp_path / "rows"))
        with firesteel.accelerate(spark, options) as acceleration:
            assert rows.selectExpr("A + 1").collect() == [(3,)]
            assert rows.groupBy("a", "A").count().collect() == [(1, 2, 1)]
        assert [len(query.left) for query in acceleration.queries] == [0, 1]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("runner", ["queries", "never"])
def test_the_spread_of_one_value_is_sparks(spark, options, tmp_path, runner):
    """NaN unless the value is finite."""
    values = [math.nan, math.inf, 1.0, math.nan, None, -math.inf, 2.5]
    pq.write_table(pa.table({"k": [1, 2, 3, 3, 4, 4, 5], "x": values}), tmp_path / "x.parquet")
    spark.read.parquet(str(tmp_path / "x.parquet")).createOrReplaceTempView("spreads")
    text = "SELECT k, var_pop(x), stddev_pop(x), var_samp(x), stddev_samp(x) FROM spreads GROUP BY k ORDER BY k"
    expected = str(spark.sql(text).collect())
    with firesteel.accelerate(spark, options | {"firesteel.run.in-process": runner}) as acceleration:
        assert str(spark.sql(text).collect()) == expected
    assert acceleration.queries[0].left == ()


def test_a_query_that_the_engine_cannot_hold_runs_in_stages(spark, numbers, options, monkeypatch):
    """A window without parts."""
    monkeypatch.setattr("firesteel.run.choose._LEAST_MEMORY", 0)
    little = {"firesteel.run.in-process.memory": "32 MiB", "firesteel.memory.per-task": "1 GiB"}
    text = "SELECT max(r) AS r FROM (SELECT row_number() OVER (ORDER BY repeat('x', 50) || a.n DESC) AS r FROM numbers a CROSS JOIN numbers b WHERE b.n < 500)"
    with firesteel.accelerate(spark, options | little) as acceleration:
        assert spark.sql(text).collect() == [(1000000,)]
    assert runner_of(acceleration.queries[0], options) == [("stages", "stopped")]


@pytest.mark.parametrize(
    "cancel",
    [
        lambda spark: spark.sparkContext.cancelJobGroup("mine"),
        lambda spark: spark.sparkContext.cancelJobsWithTag("tagged"),
        lambda spark: spark.sparkContext.cancelAllJobs(),
        pytest.param(lambda spark: spark.interruptAll(), marks=SINCE_4),
        pytest.param(lambda spark: spark.interruptTag("of-session"), marks=SINCE_4),
    ],
    ids=["group", "tag", "all", "session", "session's tag"],
)
def test_sparks_ways_to_cancel_jobs_end_a_query(spark, numbers, options, cancel):
    context, ended = spark.sparkContext, []
    with firesteel.accelerate(spark, options) as acceleration:

        def ask():
            context.setJobGroup("mine", "")
            context.addJobTag("tagged")
            if version_of(spark.version) >= (4, 0):
                spark.addTag("of-session")
            try:
                spark.sql(ENDLESS).collect()
            except JobCancelledError as error:
                ended.append(error.message)
            finally:
                context.clearJobTags()

        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive() and not ended:
            context.cancelJobGroup("another")
            cancel(spark)
            asking.join(0.05)
        assert "was cancelled" in ended[0]
        assert spark.sql(SUMS).count() == 3
    assert acceleration.queries[-1].left == ()


@pytest.mark.full
def test_ctrl_c_ends_a_query_and_the_script(numbers, tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"spark.read.parquet({numbers!r}).createOrReplaceTempView('numbers')\n"
        "print('asks', flush=True)\n"
        f"spark.sql({ENDLESS!r}).collect()\n"
    )
    journal = tmp_path / "journal"
    settings = {"FIRESTEEL_JOURNAL_DIRECTORY": str(journal)}
    command = [sys.executable, "-m", "firesteel", "run", "--accelerate", str(script)]
    ran = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ | settings
    )
    assert ran.stdout is not None
    assert ran.stdout.readline() == "asks\n"
    while ran.poll() is None and not any("RUNNING" in path.read_text() for path in journal.glob("*_collect_*")):
        pass
    ran.send_signal(signal.SIGINT)
    _, said = ran.communicate(timeout=120)
    assert ran.returncode == 130, said
    assert "Traceback" not in said, said
    assert "interrupted" in said

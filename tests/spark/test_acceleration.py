"""An accelerated session gives what Spark gives, and says who computed it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ArithmeticException, PySparkException
from pyspark.sql import functions as F

import firesteel
from firesteel.api.environment import set_defaults
from firesteel.cli import main
from firesteel.errors import UsageError, WrongAnswerError
from firesteel.render.expressions.translator import RULES
from older_spark import DataFrame

pytestmark = pytest.mark.spark

QUERY = "SELECT k, count(*) AS c, sum(d) AS s, max(t) AS t, max(b) AS b, max(w) AS w FROM items GROUP BY k ORDER BY k"
ACTIONS = {
    "collect": lambda frame: frame.collect(),
    "toArrow": lambda frame: frame.toArrow(),
    "toPandas": lambda frame: repr(frame.toPandas()),
    "count": lambda frame: frame.count(),
    "show": lambda frame: frame._show_string(2, 5),
    "vertical": lambda frame: frame._show_string(2, vertical=True),
    "take": lambda frame: frame.take(2),
    "first": lambda frame: frame.first(),
    "head": lambda frame: frame.head(3),
    "iterator": lambda frame: list(frame.toLocalIterator()),
}
USUAL = ("toPandas", "show")
"""The others are called by other tests here, such as ``collect``, ``count`` and ``iterator``."""


@pytest.fixture(scope="module")
def items(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("items") / "items")
    frame = spark.range(1000).selectExpr(
        "if(id % 5 = 0, NULL, id % 5) AS k",
        "CAST(id / 7 AS DECIMAL(12,3)) AS d",
        "timestamp_seconds(id * 100000) AS t",
        "encode(CAST(id AS STRING), 'UTF-8') AS b",
        "date_add(DATE'2024-01-01', CAST(id AS INT)) AS w",
        "id - 1 AS n",
    )
    frame.write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("items")
    return path


@pytest.fixture
def options(tmp_path):
    return {
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
    }


@pytest.mark.parametrize("action", [a if a in USUAL else pytest.param(a, marks=pytest.mark.full) for a in ACTIONS])
def test_an_action_gives_what_it_gave(spark, items, options, action):
    act = ACTIONS[action]
    nothing = QUERY.replace("GROUP", "WHERE n < -5 GROUP")
    before, empty = act(spark.sql(QUERY)), act(spark.sql(nothing))
    with firesteel.accelerate(spark, options) as acceleration:
        assert act(spark.sql(QUERY)) == before
        assert act(spark.sql(nothing)) == empty
    assert [query.left for query in acceleration.queries] == [(), ()]
    assert all(re.search(r"test_acceleration\.py|older_spark\.py", query.place) for query in acceleration.queries)


@pytest.mark.full
@pytest.mark.parametrize("action", ACTIONS)
def test_columns_of_one_name_stay_apart(spark, items, options, action):
    act = ACTIONS[action]
    frame = spark.table("items").groupBy("k").agg({"n": "sum"}).orderBy(F.desc("k"))
    twice = (
        frame.join(spark.table("items"), "k", "left")
        .select(frame.k, "*", F.col("n").alias("k"))
        .orderBy(F.col("n").desc())
    )

    def said():
        try:
            return act(twice)
        except PySparkException as error:  # a table of Arrow's with columns of one name is nothing that PySpark makes
            return type(error), error.getCondition()

    before = said()
    with firesteel.accelerate(spark, options) as acceleration:
        assert repr(said()) == repr(before)
    assert [query.left for query in acceleration.queries] == [()]


def test_small_decimals_have_the_digits_that_spark_gives_them(spark, items, options):
    scales = [
        f"min(CAST('{v}E-{s}' AS DECIMAL(38, {s})))"
        for s in (0, 1, 5, 6, 7, 8, 37)
        for v in ("0", "1", "-12", "123", "-1234")
    ]
    small = "min(CAST('12E-10' AS DECIMAL(20, 10)))"
    nested = f"array(struct({small} AS x))", f"named_struct('m', array({small}, NULL), 's', 'x')"
    query = f"SELECT k, {', '.join((*scales, *nested))} FROM items GROUP BY k ORDER BY k"
    expected = repr(spark.sql(query).collect())
    with firesteel.accelerate(spark, options) as acceleration:
        assert repr(spark.sql(query).collect()) == expected
        assert repr(list(spark.sql(query).toLocalIterator())) == expected
    assert [query.left for query in acceleration.queries] == [(), ()]


def test_the_release_puts_everything_back(spark, items, options):
    before = dict(vars(DataFrame))
    first, second = (firesteel.accelerate(spark, options) for _ in range(2))
    first.release()
    spark.sql(QUERY).count()
    second.release()
    second.release()
    assert dict(vars(DataFrame)) == before
    assert (len(first.queries), len(second.queries)) == (0, 1)


@pytest.mark.full
def test_what_others_put_over_it_stays(spark, items, options):
    before = dict(vars(DataFrame))
    ours = firesteel.accelerate(spark, options)
    count, seen = DataFrame.count, []
    DataFrame.count = lambda frame: (seen.append(frame), count(frame))[1]
    try:
        assert spark.sql(QUERY).count() == 5
        ours.release()
        assert spark.sql(QUERY).count() == 5
        assert (len(seen), len(ours.queries)) == (2, 1)
        assert {name for name, value in vars(DataFrame).items() if before.get(name) is not value} == {"count"}
        with firesteel.accelerate(spark, options) as again:
            assert (spark.sql(QUERY).count(), len(spark.sql(QUERY).collect())) == (5, 5)
        assert [query.action for query in again.queries] == ["count", "collect"]
    finally:
        DataFrame.count = count
    firesteel.accelerate(spark, options).release()
    assert dict(vars(DataFrame)) == before


@pytest.mark.full
def test_subclasses_and_other_kinds_of_sessions(spark, items, options):
    class Frame(DataFrame):
        def collect(self):
            return ["first", *super().collect()]

    class Session:
        __module__ = "pyspark.sql.connect.session"

    with firesteel.accelerate(spark, options) as acceleration:
        assert len(Frame(spark.sql(QUERY)._jdf, spark).collect()) == 6
    assert acceleration.queries[0].left == ()
    with pytest.raises(UsageError, match="Spark Connect"):
        firesteel.accelerate(Session())


@pytest.mark.full
def test_a_script_that_failed_is_in_its_journal(items, tmp_path, capsys):
    script = tmp_path / "fails.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"spark.read.parquet({items!r}).groupBy('k').count().collect()\n"
        "raise SystemExit(3 if spark.sparkContext.master == 'local[2]' else 4)\n"
    )
    settings = {"FIRESTEEL_JOURNAL_DIRECTORY": str(tmp_path / "journal")}

    def firesteel_command(*arguments):
        command = [sys.executable, "-m", "firesteel", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, env=os.environ | settings
        )

    assert firesteel_command("run", "--accelerate", "--master", "local[2]", str(script)).returncode == 3
    said = firesteel_command("explain", "last").stdout
    assert said.startswith("fails.py (script ")
    assert ": FAILED after" in said
    assert "1. collect at fails.py:3: Firesteel" in said
    job = said.rpartition("(job ")[2].rstrip(")\n")
    assert "FINISHED" in firesteel_command("explain", job).stdout
    assert firesteel_command("history", "last").stdout == said
    listed = firesteel_command("history").stdout
    assert "fails.py (script)" in listed
    assert firesteel_command("explain", "last", "0").returncode == 2
    with pytest.raises(UsageError, match="a script"):
        firesteel.History("last", {"firesteel.journal.directory": str(tmp_path / "journal")})


def test_what_is_left_to_spark_is_said(spark, items, options):
    with firesteel.accelerate(spark, options) as acceleration:
        spark.sql("SELECT k, rand(1) AS l FROM items").collect()
        with pytest.raises((ArithmeticException, Py4JJavaError), match="DIVIDE_BY_ZERO"):
            spark.sql("SELECT 1 / n AS x FROM items").collect()
        assert spark.sql("SELECT n FROM items WHERE n < 3").write.mode("overwrite").format("noop").save() is None
        assert spark.newSession().range(3).count() == 3
    assert "the function rand is not taken over (line 1 of its SQL)" in acceleration.explain()
    assert ["division by zero" in "; ".join(query.left) for query in acceleration.queries] == [False, True, False]
    assert acceleration.queries[2].left, "what only passes rows on is written by Spark"
    assert "Spark alone computes" not in acceleration.explain(), "as it has already"


def test_rows_that_spark_has_are_handed_over(spark, items, options):
    """Of lists and cached DataFrames, where more is asked than the rows."""
    names = spark.createDataFrame([(1, "a"), (2, "b"), (4, None)], ["k", "name"])
    kept = spark.table("items").select("k", "n").where("n < 100").cache()
    mapped = spark.createDataFrame(spark.sparkContext.parallelize([(1,), (2,)]).map(lambda row: row), ["k"])
    asked = [
        lambda: names.groupBy("name").agg(F.sum("k")).orderBy("name").collect(),
        lambda: spark.table("items").join(names, "k").groupBy("name").count().orderBy("name").collect(),
        lambda: kept.groupBy("k").agg(F.sum("n"), F.count("*")).orderBy("k").collect(),
        lambda: kept.na.drop().count(),
        lambda: spark.sql("SELECT a, count(*) FROM VALUES (1, 2), (1, 3) t(a, b) GROUP BY a").collect(),
        lambda: mapped.groupBy("k").count().orderBy("k").collect(),
        lambda: kept.where("n > 50").collect(),
    ]
    expected = [ask() for ask in asked]
    with firesteel.accelerate(spark, options) as acceleration:
        assert [ask() for ask in asked] == expected
    assert [not query.left for query in acceleration.queries] == [True] * 6 + [False], acceleration.explain()
    kept.unpersist()


def test_one_row_of_duplicates(spark, items, options):
    """Any row of a key, all of whose columns are of one row of the table. Behind an order it is Spark's, as is the user's own first."""
    table = spark.table("items")
    with firesteel.accelerate(spark, options) as acceleration:
        found = table.dropDuplicates(["k"]).collect()
        assert table.groupBy("k").agg(F.first("k")).count() == 5
        table.orderBy("n").dropDuplicates(["k"]).collect()
        table.groupBy("k").agg(F.first("n")).collect()
    assert [not query.left for query in acceleration.queries] == [True, True, False, False]
    assert "first(), last() or dropDuplicates() takes" in acceleration.queries[2].left[0]
    assert "which row first() or last() takes" in acceleration.queries[3].left[0]
    assert set(found) <= set(table.collect())
    assert sorted(row.k or 0 for row in found) == [0, 1, 2, 3, 4]


def test_quantiles(spark, items, options):
    """Exact ones. ``describe`` and ``summary`` run nothing themselves."""
    floats = "CASE WHEN k = 1 THEN double('NaN') WHEN n < 800 THEN n / 7 END AS f"
    frame = spark.table("items").selectExpr("d", "n", floats, "CAST(NULL AS INT) AS nothing")
    asked = [
        lambda: frame.approxQuantile(["d", "n", "f", "nothing"], [1.0, 0.0, 0.3333, 0.5], 0),
        lambda: frame.stat.approxQuantile("n", [0.5], 0.0),
        lambda: frame.where("n > 990").summary("count", "min", "25%", "max").select("summary", "n").collect(),
        lambda: frame.approxQuantile("n", [0.5], 0.1),
        lambda: frame.selectExpr("percentile_approx(n, 0.5, 2000)").collect(),
    ]
    expected = [ask() for ask in asked]
    with firesteel.accelerate(spark, options) as acceleration:
        assert [ask() for ask in asked] == expected
        with pytest.raises(PySparkException):
            spark.table("items").approxQuantile("b", [0.5], 0)
    assert [not query.left for query in acceleration.queries] == [True] * 3 + [False] * 3, acceleration.explain()
    assert "percentile_approx of many values" in acceleration.queries[4].left[0]


def test_what_only_raises(spark, items, options):
    """``assert_true`` has no value; dbt's ``dateadd`` calls it."""
    query = "SELECT coalesce(k, nvl2(n, assert_true(n >= {}), NULL)) AS k FROM items ORDER BY n"
    expected = spark.sql(query.format(-1)).collect()
    with firesteel.accelerate(spark, options) as acceleration:
        assert spark.sql(query.format(-1)).collect() == expected
        with pytest.raises((PySparkException, Py4JJavaError), match="is not true"):
            spark.sql(query.format(0)).collect()
    assert ["raise_error" in "".join(query.left) for query in acceleration.queries] == [False, True]
    assert not acceleration.queries[0].left


def test_near_functions_are_taken_over_if_asked(spark, items, options):
    query = "SELECT k, sin(sum(n) + 1) AS e, pow(max(n), 0.3) AS p FROM items GROUP BY k ORDER BY k"
    expected = spark.sql(query).collect()
    for near in (False, True):
        with firesteel.accelerate(spark, {**options, "firesteel.sql.near": near}) as acceleration:
            found = spark.sql(query).collect()
        assert ("firesteel.sql.near" in "".join(acceleration.queries[0].left)) is not near
        assert [row.p for row in found] == [row.p for row in expected]
        assert [row.e for row in found] == pytest.approx([row.e for row in expected], rel=1e-14)


def test_a_small_query_that_needs_stages_is_sparks(spark, items, options):
    with firesteel.accelerate(spark, options) as acceleration:
        spark.table("items").select("n").mapInArrow(lambda batches: batches, "n long").count()
    assert "a job would take longer than Spark" in acceleration.queries[0].left[0]


def test_several_threads_ask(spark, items, options):
    expected, found = spark.sql(QUERY).collect(), []
    with firesteel.accelerate(spark, options) as acceleration:
        threads = [threading.Thread(target=lambda: found.append(spark.sql(QUERY).collect())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [expected] * 3
    assert [query.left for query in acceleration.queries] == [()] * 3


def test_no_session_and_a_wrong_option_are_refused(spark):
    with pytest.raises(UsageError, match="wants a Spark session"):
        firesteel.accelerate(None)
    with pytest.raises(UsageError):
        firesteel.accelerate(spark, {"firesteel.run.in-process": "many"})

    assert not hasattr(DataFrame.collect, "__wrapped__")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--verify",), "took over 1 of 2 queries. Spark checked 1 of them: 0 differ."),
        pytest.param(("--dry-run",), "would take over 1 of 2", marks=pytest.mark.full),
    ],
)
def test_a_script_is_accelerated(spark, items, tmp_path, monkeypatch, capsys, flags, said):
    """The command line in this process, on its session: a JVM of its own costs more than all of the rest."""
    script = tmp_path / "report.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"groups = spark.read.parquet({items!r}).groupBy('k')\n"
        "print('rows', groups.count().count())\n"
        "print('rows', len(groups.agg({'n': 'collect_list'}).collect()))\n"
    )
    monkeypatch.setenv("FIRESTEEL_JOURNAL_DIRECTORY", str(tmp_path / "journal"))
    monkeypatch.setattr(sys, "argv", ["firesteel", "run", "--accelerate", *flags, str(script)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        main.main()
    set_defaults()
    ran = capsys.readouterr()
    assert not end.value.code, ran.err[-2000:]
    assert ran.out.splitlines() == ["rows 5", "rows 5"]
    assert "Firesteel " + said in ran.err, ran.err[-2000:]
    assert "collect at report.py:5: Spark" in ran.err


@pytest.fixture
def wrong_rest(monkeypatch):
    """The engine's ``%`` gives one too much."""
    right = RULES["Remainder"]
    monkeypatch.setitem(RULES, "Remainder", lambda x, node: f"({right(x, node)} + 1)")


RESTS = "SELECT n % 7 AS k, count(*) AS c FROM items WHERE n >= 0 GROUP BY n % 7 ORDER BY k"


def test_a_wrong_answer_is_an_error_where_queries_are_checked(spark, items, options, wrong_rest):
    with firesteel.accelerate(spark, options | {"firesteel.sql.verify": 1}) as acceleration:
        with pytest.raises(WrongAnswerError) as found:
            spark.sql(RESTS).collect()
        assert RESTS in str(found.value)
        assert "Firesteel: k = 1, c = 143; Spark: k = 0, c = 143" in str(found.value)
        with pytest.raises(WrongAnswerError, match="Spark: k = 0"):
            spark.sql(RESTS).write.format("noop").mode("overwrite").save()
        assert len(spark.sql(QUERY).collect()) == 5
    assert [query.check for query in acceleration.queries] == ["differs", "differs", "same"]
    assert "Spark checked 3 of them: 2 differ." in acceleration.explain()
    assert list(Path(options["firesteel.storage.directory"]).rglob("*.data")) == []


def test_a_lost_error_is_a_wrong_answer(spark, items, options, monkeypatch):
    monkeypatch.setitem(RULES, "Divide", lambda x, node: "CAST(1 AS DOUBLE)")
    with (
        firesteel.accelerate(spark, options | {"firesteel.sql.verify": 1}),
        pytest.raises(WrongAnswerError, match="DIVIDE_BY_ZERO"),
    ):
        spark.sql("SELECT sum(1 / n) AS s FROM items").collect()


def test_a_job_that_fails_leaves_nothing(spark, items, options, monkeypatch):
    """Spark says what is wrong, and nobody would go on with the job."""
    monkeypatch.delenv("FIRESTEEL_RESULTS_RETAIN_ON_FAILURE", raising=False)
    with firesteel.accelerate(spark, options) as acceleration, pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        spark.sql("SELECT k, sum(1 / n) AS s FROM items GROUP BY k").collect()
    assert acceleration.queries[0].left
    assert len(list(Path(options["firesteel.journal.directory"]).iterdir())) == 2  # the job's, and the script's
    assert [path for path in Path(options["firesteel.storage.directory"]).rglob("*") if path.is_file()] == []


def test_what_cannot_be_compared_is_not_checked(spark, items, options):
    asked = {
        "SELECT k, count(*) AS c FROM items GROUP BY k LIMIT 2": "LIMIT",
        "SELECT k, count(*) AS c FROM items GROUP BY k LIMIT 6": "",
        "SELECT n FROM items ORDER BY k LIMIT 3": "LIMIT",
        "SELECT k, n FROM items ORDER BY k LIMIT 3": "",
        "SELECT k, row_number() OVER (ORDER BY k) AS r FROM items": "tie",
        "SELECT k, rank() OVER (ORDER BY k) AS r, sum(n) OVER (PARTITION BY k) AS s FROM items": "",
        "SELECT count(*) AS c FROM (SELECT k FROM items LIMIT 3)": "tie",
        "SELECT k, round(avg(n), 2) AS a FROM items GROUP BY k": "it rounds sums or averages",
        "SELECT k, sum(n / 7) AS s FROM items GROUP BY k HAVING sum(n / 7) > 1": "it compares sums or averages",
        "SELECT k, sum(n / 7) AS s FROM items GROUP BY k ORDER BY s DESC, k LIMIT 2": "",
    }
    with firesteel.accelerate(spark, options | {"firesteel.sql.verify": 1}) as acceleration:
        for text in asked:
            spark.sql(text).toArrow()
    for query, reason in zip(acceleration.queries, asked.values(), strict=True):
        assert (query.left, query.check) == ((), "skipped" if reason else "same"), query
        assert reason in query.unchecked
    with firesteel.accelerate(
        spark, options | {"firesteel.sql.verify": 1, "firesteel.sql.verify-max-bytes": 1}
    ) as acceleration:
        assert len(spark.sql(QUERY).collect()) == 5
    assert "not checked: it reads" in acceleration.explain()
    assert "firesteel.sql.verify-max-bytes" in acceleration.explain()


def test_a_share_of_the_queries_is_checked(spark, items, options, wrong_rest):
    with firesteel.accelerate(spark, options) as acceleration:
        assert spark.sql(RESTS).collect()[0].k == 1
    assert [query.check for query in acceleration.queries] == [""]
    for share in ("2", "-0.5", "some"):
        with pytest.raises(UsageError, match=r"firesteel\.sql\.verify"):
            firesteel.accelerate(spark, {"firesteel.sql.verify": share})

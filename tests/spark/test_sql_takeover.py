"""DataFrames that our own tasks compute, compared with what Spark computes of them: values, types and order."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import threading
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import functions

from firesteel import ExecutionEnvironment, accelerate
from firesteel.api.acceleration.record import Record
from firesteel.api.acceleration.takeover import Takeover
from firesteel.errors import JobExecutionError, UsageError
from firesteel.sql.plans.catalyst import read_plan
from firesteel.sql.reader import RULES
from oracle import tpch

pytestmark = pytest.mark.spark

TPCH = (Path(__file__).parents[1] / "tpch.sql").read_text().splitlines()[1:]
SHORT = (21,)
BIG = 2**62

EDGES = pa.table(
    {
        "k": [1, 1, 2, 2, 3, None, 3, 1],
        "n": [BIG, 2, -3, 0, None, 6, 7, -(2**63)],
        "i": pa.array([2**31 - 1, 2, -3, 0, None, 6, 7, -(2**31)], pa.int32()),
        "s": ["x", "", None, "ß%_", "Größe", "x ", "\U0001f600y", "X"],
        "d": pa.array([decimal.Decimal(v) for v in ("0.01", "99999.99", "-2.50", "0.05")] * 2, pa.decimal128(7, 2)),
        "w": pa.array([decimal.Decimal(v) for v in ("1e20", "-0.000001", "3", "0.5")] * 2, pa.decimal128(38, 6)),
        "f": [1.5, math.nan, -0.0, 0.0, None, math.inf, -math.inf, 1e300],
        "t": [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), None, *[dt.date(1969, 12, 31)] * 4],
        "b": [True, False, None, True, False, None, True, False],
    }
)

QUERIES = {
    "arithmetic": "SELECT n + 1 AS a, n - 2 AS b, -i AS c, abs(i) AS d, i * 2 AS e FROM edges WHERE i > 0 AND i < 100 AND n < 100",
    "decimals": "SELECT d + w AS a, d * d AS b, d - 1 AS c, d / 3 AS e, d * w AS g, round(d, 1) AS h FROM edges WHERE w < 10",
    "wide division": "SELECT w / d AS a, w / 7 AS b FROM edges",
    "logic": "SELECT b AND k > 1 AS a, b OR k IS NULL AS c, NOT b AS e, k <=> n AS g, k IN (1, 3, NULL) AS h FROM edges",
    "floats compare": "SELECT f = 0 AS a, f > 1 AS b, f <=> CAST('NaN' AS DOUBLE) AS c, f / 2 AS e FROM edges",
    "strings": "SELECT s LIKE 'x%' AS a, length(s) AS b, substring(s, 2, 3) AS c, s || '!' AS e, trim(s) AS g, s > 'a' AS h FROM edges",
    "dates": "SELECT year(t) AS a, month(t) AS b, date_add(t, 3) AS c, datediff(t, DATE'2020-01-01') AS e, CAST(t AS STRING) AS g FROM edges WHERE t < DATE'3000-01-01'",
    "case": "SELECT CASE WHEN k = 1 THEN s WHEN k = 2 THEN 'two' END AS a, coalesce(n, k, 0L) AS b, if(b, 1, 2) AS c FROM edges",
    "groups": "SELECT k, count(*) AS a, count(n) AS b, sum(i) AS c, avg(i) AS e, sum(d) AS g, avg(d) AS h, avg(w) AS l, min(s) AS m, max(t) AS o FROM edges GROUP BY k",
    "groups of floats": "SELECT f, count(*) AS a FROM edges GROUP BY f",
    "whole groups": "SELECT k, count(DISTINCT s) AS a, stddev_samp(d) AS b FROM edges GROUP BY k",
    "no groups": "SELECT sum(i) AS a, count(*) AS b, max(f) AS c, min(f) AS e FROM edges WHERE k > 100",
    "filters of aggregates": "SELECT k, count(*) FILTER (WHERE n > 0) AS a, sum(d) FILTER (WHERE b) AS c FROM edges GROUP BY k",
    "rollup": "SELECT k, b, sum(d) AS a, grouping(k) AS c FROM edges GROUP BY ROLLUP(k, b)",
    "distinct": "SELECT DISTINCT k, b FROM edges",
    "inner join": "SELECT x.k, x.s, y.n FROM edges x JOIN edges y ON x.k = y.k AND x.d < y.w",
    "left join": "SELECT x.k, x.s, y.i FROM edges x LEFT JOIN edges y ON x.k = y.i",
    "full join": "SELECT x.k, y.i, x.s FROM edges x FULL JOIN edges y ON x.k = y.i",
    "join of floats": "SELECT x.f, y.k FROM edges x JOIN edges y ON x.f = y.f",
    "join by null-safe keys": "SELECT x.s, y.d FROM edges x JOIN edges y ON x.k <=> y.k",
    "left join with more": "SELECT x.k, y.s FROM edges x LEFT JOIN edges y ON x.k = y.k AND x.n < y.n",
    "points and intervals": "SELECT x.k, x.s, y.i FROM edges x JOIN edges y ON x.b = y.b AND x.t >= y.t AND x.t <= y.t",
    "intervals on the left": "SELECT x.k, y.i FROM edges x RIGHT JOIN edges y ON y.t >= x.t AND y.t < date_add(x.t, 40)",
    "points with intervals or none": "SELECT x.k, y.s FROM edges x LEFT JOIN edges y ON x.k = y.k AND x.t > y.t AND x.t < date_add(y.t, 40)",
    "nested": "SELECT x.k, y.i FROM edges x LEFT JOIN edges y ON x.n < y.i",
    "semi": "SELECT s FROM edges WHERE k IN (SELECT i FROM edges)",
    "anti": "SELECT s FROM edges WHERE k NOT IN (SELECT i FROM edges WHERE i IS NOT NULL)",
    "not exists": "SELECT s FROM edges x WHERE NOT EXISTS (SELECT 1 FROM edges y WHERE y.k = x.k AND y.n > x.n)",
    "exists or": "SELECT s FROM edges x WHERE k = 2 OR EXISTS (SELECT 1 FROM edges y WHERE y.i = x.k)",
    "scalar subquery": "SELECT s, (SELECT max(n) FROM edges WHERE k = 2) AS a FROM edges WHERE k > (SELECT min(k) FROM edges)",
    "windows": "SELECT s, sum(d) OVER (PARTITION BY k ORDER BY t) AS a, rank() OVER (PARTITION BY k ORDER BY n DESC) AS b, avg(d) OVER (PARTITION BY k) AS c FROM edges",
    "rows frame": "SELECT n, sum(i) OVER (PARTITION BY b ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM edges WHERE i BETWEEN -10 AND 10",
    "union": "SELECT k, s FROM edges UNION ALL SELECT n, 'u' FROM edges",
    "columns twice": "SELECT k, k AS a, s AS b FROM (SELECT k, k AS q, max(s) AS s FROM edges GROUP BY k) UNION ALL SELECT n, n, s FROM edges",
    "ranks of groups": "SELECT k, r FROM (SELECT k, rank() OVER (PARTITION BY k ORDER BY sum(d)) AS r FROM edges GROUP BY k) WHERE r < 3",
    "intersect": "SELECT k FROM edges INTERSECT SELECT i FROM edges",
}
ORDERED = {
    "sort": "SELECT f, s FROM edges ORDER BY f, s DESC",
    "sort with nulls last": "SELECT k, n FROM edges ORDER BY k NULLS LAST, n",
    "top": "SELECT s, n FROM edges ORDER BY n DESC LIMIT 3",
    "top of an expression": "SELECT s FROM edges ORDER BY i / 2, s LIMIT 4",
}
BY_SPARK = {
    "random": "SELECT k, rand(1) AS r FROM edges",
    "lists": "SELECT k, collect_list(s) AS l FROM edges WHERE i > 5 GROUP BY k",
    "regexes": "SELECT regexp_replace(s, 'x(?=y)', '-') AS r FROM edges",
}
FAILING = {
    "ARITHMETIC_OVERFLOW": "SELECT n * 4 AS a FROM edges",
    "DIVIDE_BY_ZERO": "SELECT 1 / i AS a FROM edges",
    "CAST_OVERFLOW": "SELECT CAST(n AS INT) AS a FROM edges",
}


@pytest.fixture(scope="module")
def views(spark, tmp_path_factory):
    home = tmp_path_factory.mktemp("edges")
    for i in range(2):
        pq.write_table(EDGES.slice(4 * i, 4), home / f"{i}.parquet")
    spark.read.parquet(str(home)).createOrReplaceTempView("edges")
    for table in tpch(0.01).iterdir():
        if table.is_dir():
            spark.read.parquet(str(table)).createOrReplaceTempView(table.name)
    return home


def kind(stream):
    return stream._pipeline.node.kind


def rows(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sortable(row):
    return tuple((value is None, repr(value)) for value in row)


def near(a, b):
    if isinstance(a, float) and isinstance(b, float):
        if a == 0 == b:
            return math.copysign(1, a) == math.copysign(1, b)
        return math.isclose(a, b, rel_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    return a == b


def assert_as_spark(spark, env, query, *, in_order=False):
    frame = spark.sql(query)
    stream = env.from_dataframe(frame)
    assert kind(stream).startswith("sql("), kind(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        ours = stream.to_arrow()
    theirs = frame.toArrow()
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    a, b = rows(ours), rows(theirs)
    if not in_order:
        a, b = sorted(a, key=sortable), sorted(b, key=sortable)
    assert len(a) == len(b)
    for mine, its in zip(a, b, strict=True):
        assert all(map(near, mine, its)), (mine, its)


def test_a_plan_is_read_in_one_call(spark, views, tmp_path, monkeypatch):
    """With sizes, schema, settings, files of chosen directories, columns of unions, and equal subtrees. Two columns have one name."""
    pq.write_to_dataset(EDGES.select(["k", "n"]), tmp_path / "parts", partition_cols=["k"])
    spark.read.parquet(str(tmp_path / "parts")).createOrReplaceTempView("parts")
    frame = spark.sql("""
        WITH sums AS (SELECT k, sum(d) AS d FROM edges GROUP BY k)
        SELECT a.k, b.k, v FROM sums a JOIN sums b ON a.k = b.k LATERAL VIEW explode(array(a.d, b.d)) e AS v
        UNION ALL SELECT k, n, 1.5BD FROM parts WHERE k < 3 AND n > (SELECT min(i) FROM edges)""")
    record = Record("", dry_run=True)
    takeover = Takeover(spark, {}, record, dry_run=True)
    takeover.answer(spark.range(9), "collect", list)  # compiles the reader
    commands, here = [], threading.get_ident()
    client = type(spark.sparkContext._gateway._gateway_client)
    send = client.send_command

    def counted(self, command, *args, **kwargs):
        if threading.get_ident() == here and not command.startswith("m\n"):  # what Python's collector frees
            commands.append(command)
        return send(self, command, *args, **kwargs)

    monkeypatch.setattr(client, "send_command", counted)
    takeover.answer(frame, "collect", list)
    assert record.queries[-1].left == []
    assert len(commands) == 1, commands


def test_a_plan_is_read_where_the_thread_has_no_connection_to_python(spark, views):
    """So it is after Java has called Python back in it."""
    client = spark.sparkContext._gateway.java_gateway_server.getCallbackClient()
    client.setPerThreadConnection(None)
    assert client.getPerThreadConnection() is None
    assert read_plan(spark.sql("SELECT k FROM edges")).names == ["k"]


REPEATED = """
    WITH sums AS (SELECT k, sum(d) AS d, count(*) AS c FROM edges GROUP BY k)
    SELECT x.k, x.d, x.c, y.d AS e, y.c AS f FROM sums x JOIN sums y ON x.k = y.k WHERE x.c > (SELECT avg(c) FROM sums) OR y.c < (SELECT avg(c) FROM sums)"""


@pytest.mark.full
def test_equal_subtrees_are_computed_once(spark, env, views):
    assert_as_spark(spark, env, REPEATED)
    stream = env.from_dataframe(spark.sql(REPEATED))
    nodes, stack = set(), [stream._pipeline.node]
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes.add(node)
            stack += [edge.source for edge in (*node.inputs, *(edge for _, edge in node.sides))]
    sources = [node for node in nodes if not node.inputs]
    assert len(sources) == 1  # one read for both sides of the join and for both averages


def test_a_query_of_everything(spark, env, views):
    """One query for the quick tests; the parts are below."""
    query = """
        SELECT x.k, count(*) AS c, sum(x.d) AS d, avg(y.w) AS w, max(y.s) AS s, (SELECT max(i) FROM edges) AS m
        FROM edges x LEFT JOIN edges y ON x.k = y.k WHERE x.k IS NOT NULL OR x.s LIKE 'x%'
        GROUP BY x.k ORDER BY x.k DESC LIMIT 5"""
    assert_as_spark(spark, env, query, in_order=True)


@pytest.mark.full
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_the_same_rows(spark, env, views, query):
    assert_as_spark(spark, env, query)


@pytest.mark.full
@pytest.mark.parametrize("query", ORDERED.values(), ids=ORDERED)
def test_the_same_order(spark, env, views, query):
    assert_as_spark(spark, env, query, in_order=True)


@pytest.mark.parametrize("number", [n if n in SHORT else pytest.param(n, marks=pytest.mark.full) for n in range(1, 23)])
def test_tpch(spark, env, views, number):
    assert_as_spark(spark, env, TPCH[number - 1].rstrip(";"))


@pytest.mark.full
@pytest.mark.parametrize("query", BY_SPARK.values(), ids=BY_SPARK)
def test_the_unknown_stays_on_spark(spark, env, views, query):
    frame = spark.sql(query)
    stream = env.from_dataframe(frame)
    assert kind(stream) == "from_dataframe"
    assert "Spark computes a part of step 'from_dataframe'" in stream.explain()
    assert re.search("is not taken over|not surely the same", stream.explain())
    assert sorted(rows(stream.to_arrow()), key=sortable) == sorted(rows(frame.toArrow()), key=sortable)


@pytest.mark.full
def test_a_defect_leaves_the_operator_to_spark(spark, env, views, monkeypatch):
    monkeypatch.setitem(RULES, "Aggregate", lambda reader, node: node.fields["gone"])
    frame = spark.sql("SELECT k, max(d) AS d FROM edges GROUP BY k")
    stream = env.from_dataframe(frame)
    assert "a defect of Firesteel stopped it (KeyError" in stream.explain()
    assert sorted(rows(stream.to_arrow()), key=sortable) == sorted(rows(frame.toArrow()), key=sortable)


@pytest.mark.full
def test_a_part_by_spark(spark, env, views):
    """The smallest subtree that is not known comes in as a source."""
    query = "SELECT e.k, sum(e.d) AS d, max(r.n) AS n FROM edges e JOIN (SELECT k, kurtosis(n) AS n FROM edges GROUP BY k) r ON e.k = r.k GROUP BY e.k"
    assert_as_spark(spark, env, query)
    told = env.from_dataframe(spark.sql(query)).explain()
    assert "Spark computes a part of step 'sql(" in told
    assert "the function kurtosis is not taken over (line 1 of its SQL)" in told


CALLS = {
    "from_csv(s, 'a INT')": "the function from_csv is not taken over",
    "sentences(s)": "the function sentences is not taken over",
    "xpath_string(s, 'a')": "the function xpath_string is not taken over",
    "count_min_sketch(k, 0.1D, 0.9D, 1)": "the function count_min_sketch is not taken over",
    "regr_sxx(k, n)": "the function regr_sxx is not taken over",
    "skewness(n)": "the function skewness is not taken over",
    "left(sentences(s)[0][0], 2)": "the function sentences is not taken over",
    "avg(t - t)": "the function avg of interval day is not taken over",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_reason_names_what_the_user_wrote(spark, views, call):
    """Spark's plan has calls of Java, or other functions, in the place of many of them."""
    frame = spark.sql(f"-- what the user wrote\nSELECT {call} AS r FROM edges")
    with accelerate(spark) as acceleration:
        assert acceleration.explain(frame) == f"Spark: {CALLS[call]} (line 2 of its SQL)"


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="3.5 and 4.0 keep no line of alias(), others were not tried")
def test_a_reason_names_the_line_of_the_nearest_expression(spark, views):
    frame = spark.table("edges").agg(
        functions.kurtosis("n").alias("c"),  # this line
    )
    line = Path(__file__).read_text().partition("# this line")[0].count("\n") + 1
    with accelerate(spark) as acceleration:
        told = acceleration.explain(frame)
    assert told == f"Spark: the function kurtosis is not taken over (test_sql_takeover.py:{line})"


def test_a_reason_names_operators_as_users_do(spark, views):
    edges = spark.table("edges")
    with accelerate(spark) as acceleration:
        assert acceleration.explain(edges.sample(0.5)) == "Spark: sample() is not taken over"
        months = acceleration.explain(spark.sql("SELECT k, make_ym_interval(1) AS m FROM edges"))
    assert months == "Spark: Arrow cannot carry the column m (interval year to month)."


@pytest.mark.parametrize(
    "error", ["CAST_OVERFLOW", *(pytest.param(e, marks=pytest.mark.full) for e in list(FAILING)[:2])]
)
def test_errors_are_sparks(spark, env, views, tmp_path, error):
    stream = env.from_dataframe(spark.sql(FAILING[error]))
    assert kind(stream).startswith("sql(")
    with (
        pytest.warns(UserWarning, match="Spark computes the DataFrame itself now"),
        pytest.raises(JobExecutionError, match=error),
    ):
        stream.to_arrow()
    stream.write_parquet(tmp_path / "out")
    with pytest.warns(UserWarning, match="Spark computes"), pytest.raises(JobExecutionError, match=error):
        env.execute()
    assert not list(tmp_path.glob("out/*.parquet"))


@pytest.mark.full
def test_what_the_engine_gives_up_on_spark_answers(spark, env, views, tmp_path):
    frame = spark.sql("SELECT upper(s) AS u FROM edges")
    stream = env.from_dataframe(frame).filter(lambda row: row.u is not None)
    with pytest.warns(UserWarning, match="the case of these letters"):
        ours = stream.to_arrow()
    assert sorted(ours["u"].to_pylist()) == sorted(u for u in frame.toArrow()["u"].to_pylist() if u is not None)
    env.from_dataframe(frame).write_parquet(tmp_path / "out")
    with pytest.warns(UserWarning, match="these letters"):
        env.execute()
    assert pq.read_table(tmp_path / "out").num_rows == 8
    env.from_dataframe(frame).write_parquet(tmp_path / "later")
    client = env.execute_async()
    with pytest.warns(UserWarning, match="these letters"):
        assert client.wait().job_id == client.job_id
    assert client.wait().job_id == client.job_id
    assert pq.read_table(tmp_path / "later").num_rows == 8


def streams_of(env):
    orders = env.from_arrow(pa.table({"id": [1, 2, 2, 3], "n": [10, 20, 30, 40]}))
    names = env.from_collection([(1, "one"), (2, "two")], "id bigint, name string")
    return orders, names


def test_sql_over_streams_and_views(env, spark, views):
    orders, names = streams_of(env)
    query = """SELECT name, sum(n) AS n, (SELECT max(k) FROM edges) AS k
               FROM {orders} JOIN {names} USING (id) WHERE n > {least} GROUP BY name ORDER BY name"""
    stream = env.sql(query, orders=orders, names=names, least=5)
    assert kind(stream).startswith("sql(")
    assert rows(stream.to_arrow()) == [("one", 10, 3), ("two", 50, 3)]
    assert rows(env.sql("SELECT count(*) AS c FROM edges").to_arrow()) == [(8,)]


@pytest.mark.full
def test_sql_that_spark_must_compute_reads_the_streams_rows(spark, views):
    """Their rows are kept for the DataFrame until the process ends."""
    env = ExecutionEnvironment(spark=spark, options={"firesteel.progress": "false"})
    orders, _ = streams_of(env)
    stream = env.sql(
        "SELECT id, array_sort(collect_list(n), (a, b) -> CAST(a - b AS INT)) AS l FROM {orders} GROUP BY id",
        orders=orders,
    )
    assert kind(stream) == "sql"
    assert "array_sort by a function is not taken over" in stream.explain()
    assert sorted(rows(stream.to_arrow())) == [(1, [10]), (2, [20, 30]), (3, [40])]
    twice = env.sql("SELECT a.id, b.n FROM {orders} a JOIN {orders} b ON a.n = b.n AND a.id > 1", orders=orders)
    assert sorted(rows(twice.to_arrow())) == [(2, 20), (2, 30), (3, 40)]
    with pytest.warns(UserWarning, match="Spark computes"), pytest.raises(JobExecutionError, match="DIVIDE_BY_ZERO"):
        env.sql("SELECT 1 / (n - 10) AS x FROM {orders}", orders=orders).to_arrow()


def test_sql_text_in_steps(env):
    orders, _ = streams_of(env)
    assert rows(orders.filter("n > 10 AND id < 3").select_expr("id", "n / 10 AS tens", "'{' AS s").to_arrow()) == [
        (2, 2.0, "{"),
        (2, 3.0, "{"),
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda env, s: env.sql("SELEC 1"), "Spark does not take this query"),
        (lambda env, s: env.sql("SELECT nope FROM {s}", s=s), "nope"),
        (lambda env, s: env.sql(3), "wants the text of a query"),
        (lambda env, s: s.filter("nope > 1"), "nope"),
        (lambda env, s: s.select_expr(), "wants texts"),
    ],
)
def test_sql_that_is_wrong(env, wrong, message):
    with pytest.raises(UsageError, match=message):
        wrong(env, streams_of(env)[0])


@pytest.mark.full
def test_an_option_leaves_all_to_spark(spark, env, views):
    other = ExecutionEnvironment(
        spark=spark, options={"firesteel.sql.dataframes": "spark", "firesteel.progress": "false"}
    )
    assert kind(other.from_dataframe(spark.table("edges"))) == "from_dataframe"


@pytest.mark.full
def test_python_steps_behind_it_are_in_the_same_task(spark, env, views):
    def doubled(batches):
        for batch in batches:
            yield pa.record_batch({"twice": pa.array([2 * v.as_py() for v in batch["k"]], pa.int64())})

    stream = env.from_dataframe(spark.sql("SELECT k FROM edges WHERE k > 1")).map_in_arrow(doubled, "twice bigint")
    assert sorted(stream.to_arrow()["twice"].to_pylist()) == [4, 4, 6, 6]
    assert stream.explain().count("\n[") <= 1

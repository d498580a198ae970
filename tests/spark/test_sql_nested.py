"""Arrays, structs and maps in DataFrames that our own tasks compute, generators, aggregates and windows, compared with Spark's answers."""

from __future__ import annotations

import logging
import re
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sql_expressions_kit as plain_kit
import sql_nested_kit as kit
from firesteel.render.expressions import arrays, lambdas, maps
from sql_plans_kit import version

pytestmark = pytest.mark.spark

QUERIES = {
    "columns": "SELECT row, ai1, al1, ad1, at1, ay1, ac1, aai1, s1, as1, mi1, mt1 FROM nested",
    "fields": "SELECT row, s1.a, as1.b, as1[0] AS z FROM nested WHERE size(as1) > 0",
    "some fields": "SELECT row, s1.c AS c, s1.b AS b FROM nested",
    "constants": "SELECT row, array(1, 2) AS a, map('a', 1) AS m, named_struct('x', 1, 'y', array('b', NULL)) AS s FROM nested",
    "made": "SELECT row, array(1, 2, k) AS a, map('a', row) AS m, named_struct('p', row, 'q', array(k)) AS s FROM nested",
    "inner join": "SELECT x.row, y.s1, x.mi1 FROM nested x JOIN nested y ON x.k = y.row",
    "left join": "SELECT x.row, y.s1, x.mi1 FROM nested x LEFT JOIN nested y ON x.k = y.row AND x.row > 5",
    "full join": "SELECT x.row, y.aai1 FROM nested x FULL JOIN nested y ON x.row = y.row + 3",
    "union": "SELECT row, ai1 FROM nested UNION ALL SELECT row, array(1) FROM nested",
    "explode": "SELECT row, explode(ai1) AS e FROM nested",
    "explode a map": "SELECT row, explode(mt1) FROM nested",
    "explode outer": "SELECT row, explode_outer(at1) AS e FROM nested",
    "posexplode": "SELECT row, posexplode(ay1) AS (p, e) FROM nested",
    "posexplode outer": "SELECT row, posexplode_outer(mi1) AS (p, q, e) FROM nested",
    "inline": "SELECT row, inline(as1) FROM nested",
    "inline outer": "SELECT row, inline_outer(as1) FROM nested",
    "lateral views": "SELECT row, e, p FROM nested LATERAL VIEW OUTER explode(aai1) a AS l LATERAL VIEW posexplode(l) b AS p, e",
    "stack": "SELECT stack(2, row, 'a', k, 'b') AS (n, s) FROM nested",
    "stack with too few": "SELECT row, stack(3, k, row, 7L) AS (n) FROM nested",
    "fields of JSON": """SELECT row, json_tuple(concat('{"a":', k, ', "b":"', string1, '"}'), 'b', 'a', 'c') AS (x, y, z) FROM nested WHERE string1 IN ('a', 'ß', '') OR string1 IS NULL""",
    "groups of exploded": "SELECT e, count(*) AS c FROM (SELECT explode(ai1) AS e FROM nested) GROUP BY e",
    "lists": "SELECT k, sort_array(collect_list(int1)) AS l, size(collect_set(string1)) AS n, array_sort(collect_set(date1)) AS d FROM nested GROUP BY k",
    "lists of whole groups": "SELECT k, sort_array(collect_list(struct(int1, row)), false) AS l, count(DISTINCT string1) AS c FROM nested GROUP BY k",
    "lists of nothing": "SELECT sort_array(collect_list(string1)) AS l, size(collect_set(string1)) AS n FROM nested WHERE row < 0",
    "sets of windows": "SELECT row, sort_array(collect_set(string1) OVER w) AS a, array_max(collect_set(long1) OVER w) AS m, sort_array(collect_list(bool1) OVER w) AS l FROM nested WINDOW w AS (PARTITION BY k)",
    "sets of two windows": "SELECT row, size(a) AS n, sort_array(b) AS b FROM (SELECT row, collect_list(int1) OVER (PARTITION BY k) AS a, collect_set(row) OVER (PARTITION BY int1) AS b FROM nested)",
    "sets of frames": "SELECT row, size(collect_set(date1) OVER w) AS n, array_contains(collect_set(int1) OVER w, 0) AS c, sort_array(collect_list(string1) OVER w) AS l FROM nested WINDOW w AS (PARTITION BY k ORDER BY row ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "sets of windows in conditions": "SELECT row, array_max(s) AS m FROM (SELECT row, k, collect_set(int1) OVER (PARTITION BY k) AS s, count(*) OVER (ORDER BY row) AS c FROM nested) WHERE size(s) > 2 AND c > 3",
    "structs of aggregates": "SELECT k, named_struct('a', sum(row), 'b', count(*)) AS s, array(min(row), max(row)) AS a FROM nested GROUP BY k",
    "bits and extremes": "SELECT k, bit_and(int1) AS a, bit_xor(long1) AS b, max_by(s1, row) AS c, min_by(string1, row) AS d FROM nested GROUP BY k",
    "percentiles": "SELECT k, median(int1) AS a, percentile(row, array(0.1, 0.5)) AS b, percentile_cont(0.25) WITHIN GROUP (ORDER BY dec91) AS c FROM nested GROUP BY k",
    "percentiles of few values": "SELECT k, percentile_approx(int1, 0.5) AS a, approx_percentile(dec91, array(0, 0.1, 0.7, 1), 1000) AS b, percentile_approx(date1, 0.25) FILTER (WHERE row > 9) AS c, percentile_approx(cast(row AS FLOAT), 0.9) AS d FROM nested GROUP BY k",
    "percentiles from the end": "SELECT k, percentile_cont(0.3) WITHIN GROUP (ORDER BY int1 DESC) AS a, percentile_cont(0.99) WITHIN GROUP (ORDER BY dec91 DESC) FILTER (WHERE row > 9) AS b, percentile(cast(row AS FLOAT), 0.7) AS c FROM nested GROUP BY k",
    "percentiles of rows": "SELECT k, percentile_disc(0.3) WITHIN GROUP (ORDER BY int1) AS a, percentile_disc(0.3) WITHIN GROUP (ORDER BY int1 DESC) AS b, percentile_disc(0) WITHIN GROUP (ORDER BY dec91) AS c, percentile_disc(1) WITHIN GROUP (ORDER BY row DESC) AS d FROM nested GROUP BY k",
    "percentiles of windows": "SELECT row, median(int1) OVER (PARTITION BY k) AS a, percentile_disc(0.4) WITHIN GROUP (ORDER BY row DESC) OVER (PARTITION BY k) AS b, percentile_approx(row, 0.5) OVER (PARTITION BY k ORDER BY row) AS c FROM nested",
    "percentiles of intervals": "SELECT k, median(i) AS a, percentile_cont(0.3) WITHIN GROUP (ORDER BY i DESC) AS b, percentile_disc(0.7) WITHIN GROUP (ORDER BY i) AS c FROM (SELECT k, make_dt_interval(0, 0, 0, row) * int1 AS i FROM nested WHERE int1 BETWEEN -1000 AND 1000) GROUP BY k",
    "the commonest of an order": "SELECT k, mode(string1, true) AS a, mode() WITHIN GROUP (ORDER BY int1) AS b, mode() WITHIN GROUP (ORDER BY date1 DESC) FILTER (WHERE row > 9) AS c FROM nested GROUP BY k",
    "the commonest of a window": "SELECT row, mode(string1, true) OVER (PARTITION BY k) AS a, mode() WITHIN GROUP (ORDER BY k) OVER (ORDER BY row ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS b FROM nested",
    "texts in one": "SELECT k, listagg(string1, ',') WITHIN GROUP (ORDER BY string1) AS a FROM nested GROUP BY k",
    "texts in the order of others": "SELECT k, listagg(string1, ',') WITHIN GROUP (ORDER BY row DESC) AS a, string_agg(string1) WITHIN GROUP (ORDER BY bool1 DESC NULLS FIRST, string1) AS b, listagg(DISTINCT string1, '|') WITHIN GROUP (ORDER BY string1 DESC) AS c, listagg(int1, '') WITHIN GROUP (ORDER BY int1) FILTER (WHERE row > 9) AS d FROM nested GROUP BY k",
    "texts in one for each row": "SELECT row, listagg(string1, ',') WITHIN GROUP (ORDER BY row DESC) OVER (PARTITION BY k) AS a FROM nested",
    "different bits": "SELECT k, bit_xor(DISTINCT int1) AS a, count(*) AS c FROM nested GROUP BY k",
    "groups of maps": "SELECT m, count(*) AS c FROM (SELECT map(k, row % 2, k + 1, 7) AS m FROM nested UNION ALL SELECT map(k + 1, 7, k, row % 2) FROM nested) GROUP BY m",
    "a join of arrays": "SELECT x.row, y.row AS other FROM nested x JOIN nested y ON x.ai1 = y.ai1",
    "a join of structs": "SELECT x.row, y.row AS other FROM nested x LEFT JOIN nested y ON named_struct('a', x.int1, 'b', x.string1) <=> named_struct('a', y.int1, 'b', y.string1) AND y.row < 9",
    "equal arrays and structs": "SELECT row, ai1 = array(1, NULL) AS a, ai1 IN (array(1), ai2) AS b, named_struct('x', int1) <> named_struct('x', 0) AS c, at1 <=> at1 AS d FROM nested",
    "the largest arrays": "SELECT k, max(array(k, row)) AS a, min(array(coalesce(string1, ''), 'x')) FILTER (WHERE row > 9) AS b FROM nested GROUP BY k",
    "a pivot of structs": "SELECT * FROM (SELECT k, bool1, row FROM nested) PIVOT (sum(row) FOR (k, bool1) IN ((1, true) AS a, (2, false) AS b, (3, NULL) AS c))",
    "a pivot of arrays": "SELECT * FROM (SELECT array(k, 1) AS a, row FROM nested) PIVOT (max(row) FOR a IN (array(1, 1) AS x, array(2, 2) AS y))",
    "columns of nulls": "SELECT row, NULL AS n, explode(array(row, k)) AS e FROM nested",
    "groups of a subquery": "SELECT k, count(*) AS c FROM nested GROUP BY k, (SELECT max(row) FROM nested)",
    "subqueries in aggregates": "SELECT k, sum(row + (SELECT min(row) + 1 FROM nested)) AS a, max(int1) FILTER (WHERE row > (SELECT avg(row) FROM nested)) AS b, (SELECT count(*) FROM nested) AS c FROM nested GROUP BY k",
    "all rows of a sample": "SELECT row FROM nested TABLESAMPLE (100 PERCENT) REPEATABLE (3)",
    "pivot": "SELECT * FROM (SELECT k, bool1, int1 FROM nested) PIVOT (count(*) AS c, max(int1) AS m FOR bool1 IN (true, false))",
    "pivot of texts": "SELECT * FROM (SELECT k, string1, row FROM nested) PIVOT (max(row) FOR string1 IN ('a', 'ß', 'x'))",
    "neighbours": "SELECT row, lag(int1, 2, 7) OVER w AS a, lead(s1) OVER w AS b, lag(ai1) IGNORE NULLS OVER w AS c FROM nested WINDOW w AS (PARTITION BY k ORDER BY row)",
    "places": "SELECT row, nth_value(int1, 2) OVER w AS a, ntile(3) OVER w AS b, cume_dist() OVER w AS c, last(s1) OVER w AS d FROM nested WINDOW w AS (PARTITION BY k ORDER BY row)",
    "groups of arrays": "SELECT ai1, count(*) AS c, count(DISTINCT at1, s1) AS d FROM nested GROUP BY ai1",
    "different structs with arrays": "SELECT DISTINCT s1, aai1 FROM nested",
    "windows of arrays": "SELECT row, count(*) OVER (PARTITION BY at1) AS c FROM nested",
    "groups of structs": "SELECT p, count(*) AS c, max(p.b) AS b FROM (SELECT named_struct('a', int1, 'b', string1, 'c', named_struct('d', double1)) AS p FROM nested) GROUP BY p",
    "windows of structs": "SELECT row, row_number() OVER (PARTITION BY named_struct('a', k, 'b', bool1) ORDER BY row) AS r FROM nested",
    "the largest structs": "SELECT k, max(named_struct('a', int1, 'b', string1, 'r', row)) AS m, min(named_struct('a', named_struct('d', date1), 'r', row)) AS n FROM nested GROUP BY k",
    "one of the keys": "SELECT k, first(k) AS f, last(k + 1) AS l, any_value(upper('x')) AS a FROM nested GROUP BY k",
    "the first of one value": "SELECT row, first(string1) AS f, last(date1, true) AS l, first(k) FILTER (WHERE k > 1) AS g, count(DISTINCT int1) AS c FROM nested GROUP BY row",
    "the first of all": "SELECT first(k * 0, true) AS f, last(string1) FILTER (WHERE row = 3) AS l, first(int1) FILTER (WHERE row < 0) AS n FROM nested",
    "the commonest": "SELECT row % 2 AS o, mode(if(row < 40, 'a', string1)) AS m, mode(int1 * 0) AS n FROM nested WHERE row < 60 GROUP BY 1",
    "ranges": "SELECT row, sum(row) OVER (PARTITION BY k ORDER BY row RANGE BETWEEN 10 PRECEDING AND 5 FOLLOWING) AS a FROM nested",
}  # fmt: skip
BY_SPARK = {
    "groups of arrays of fractions": ("SELECT count(*) AS c FROM nested WHERE row < 30 GROUP BY ad1", "the type array of floating-point numbers"),
    "a join of arrays of fractions": ("SELECT x.row FROM nested x JOIN nested y ON x.ad1 = y.ad1", "the type array of floating-point numbers"),
    "some rows": ("SELECT count(*) AS c FROM nested TABLESAMPLE (20 PERCENT) REPEATABLE (3)", "sample() is not taken over"),
    "lists in an order": ("SELECT k, collect_list(row) AS l FROM nested WHERE row = 1 GROUP BY k", "collect_list is not taken over"),
    "a set of a window": ("SELECT row, size(s) AS n, s FROM (SELECT row, collect_set(row) OVER (PARTITION BY row) AS s FROM nested)", "collect_set is not taken over where its order shows"),
    "a set of a window in a condition": ("SELECT row, size(s) AS n FROM (SELECT row, collect_set(row) OVER (PARTITION BY row) AS s FROM nested) WHERE s[0] > 3", "collect_set is not taken over where its order shows"),
    "the first": ("SELECT k, first(row) AS f FROM (SELECT * FROM nested ORDER BY row) WHERE row < 7 GROUP BY k", "which row first()"),
    "pairs": ("SELECT k, corr(row, int1 % 9) AS a, regr_slope(row, k) AS b FROM nested WHERE row < 30 GROUP BY k", "corr is not taken over"),
    "names that differ by case": ("SELECT named_struct('a', row, 'A', k) AS s FROM nested", "fields of different names"),
    "collations": ("SELECT named_struct('a', string1 COLLATE UTF8_LCASE) AS s FROM nested", "texts with a collation"),
    "a struct of a subquery": ("SELECT row, (SELECT max_by(s1, row) FROM nested) AS s FROM nested", "gives a struct"),
}  # fmt: skip
if version() == "3.5":  # has no such functions
    del BY_SPARK["collations"]
    for name in [
        one for one in QUERIES if re.match("texts in |groups of maps|the commonest of|percentiles of rows", one)
    ]:
        del QUERIES[name]
FAILING = {
    "INVALID_ARRAY_INDEX": "SELECT ai1[7] AS a FROM nested",
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": "SELECT element_at(ai1, -7) AS a FROM nested",
    "DUPLICATED_MAP_KEY": "SELECT map(k, 1, k, 2) AS m FROM nested",
    "NULL_MAP_KEY": "SELECT map(string1, 1) AS m FROM nested",
}


@pytest.fixture(scope="module")
def views(spark, tmp_path_factory):
    home = tmp_path_factory.mktemp("nested")
    rows = kit.table(60, 3).append_column("k", pa.array([i % 7 for i in range(60)]))
    rows = rows.append_column("row", pa.array(range(60)))
    for i in range(2):
        pq.write_table(rows.slice(30 * i, 30), home / f"{i}.parquet")
    spark.read.parquet(str(home)).createOrReplaceTempView("nested")


def told(stream):
    return "".join(line for line in stream.explain().splitlines() if "Spark computes" in line)


def assert_as_spark(spark, env, query):
    frame = spark.sql(query)
    stream = env.from_dataframe(frame)
    assert told(stream) == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        ours = stream.to_arrow()
    theirs = frame.toArrow()
    assert [(f.name, str(f.type)) for f in ours.schema] == [(f.name, str(f.type)) for f in theirs.schema]
    assert ours.num_rows == theirs.num_rows > 0
    alike = plain_kit.same if "percentile" in query or "median" in query else kit.near
    for mine, its in zip(kit.rows_of(ours), kit.rows_of(theirs), strict=True):
        assert alike(mine, its), (mine, its)


def test_a_query_of_everything(spark, env, views):
    """One query for the quick tests; the parts are below."""
    query = """
        SELECT k, e % 2 AS e, max_by(s1, row) AS s, sort_array(collect_list(m)) AS l, named_struct('c', count(*)) AS c
        FROM (SELECT k, row, s1, transform(ai1, x -> coalesce(x, 0) % 5) AS a, mi1['a'] AS m FROM nested)
        LATERAL VIEW OUTER explode(a) t AS e GROUP BY k, e % 2"""
    assert_as_spark(spark, env, query)


@pytest.mark.full
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_the_same_rows(spark, env, views, query):
    assert_as_spark(spark, env, query)


MAPS = """VALUES (map(array(1, 2), 2, array(2), 3), map(named_struct('b', 1), 2, named_struct('b', 2), 3)),
    (map(array(2), 3, array(1, 2), 2), map(named_struct('b', 2), 3, named_struct('b', 1), 2)), (map(array(2), 3), NULL), (NULL, map())"""


@pytest.mark.full
@pytest.mark.skipif(version() == "3.5", reason="Spark 3.5 groups by no maps")
@pytest.mark.parametrize("column", ["col1", "col2"])
def test_groups_of_maps_by_nested_keys(spark, env, tmp_path, column):
    spark.sql(MAPS).write.parquet(str(tmp_path / "maps"))
    spark.read.parquet(str(tmp_path / "maps")).createOrReplaceTempView("maps")
    assert_as_spark(spark, env, f"SELECT count(*) AS c FROM maps GROUP BY {column}")


@pytest.mark.full
@pytest.mark.parametrize(("query", "why"), BY_SPARK.values(), ids=BY_SPARK)
def test_the_unknown_stays_on_spark(spark, env, views, query, why):
    stream = env.from_dataframe(spark.sql(query))
    assert why in told(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kit.rows_of(stream.to_arrow()) == kit.rows_of(spark.sql(query).toArrow())


@pytest.mark.full
def test_lists_of_spark_in_a_join_of_ours(spark, env, views):
    query = """SELECT x.row, x.s1, sort_array(y.l) AS l FROM nested x
               JOIN (SELECT k, collect_list(row) AS l FROM nested GROUP BY k) y ON x.k = y.k"""
    stream = env.from_dataframe(spark.sql(query))
    assert "collect_list is not taken over" in told(stream)
    assert stream._pipeline.node.kind.startswith("sql(")
    assert kit.rows_of(stream.to_arrow()) == kit.rows_of(spark.sql(query).toArrow())


@pytest.mark.full
@pytest.mark.parametrize("error", FAILING)
def test_errors_are_sparks(spark, env, views, error):
    from firesteel.errors import JobExecutionError

    stream = env.from_dataframe(spark.sql(FAILING[error]))
    assert told(stream) == ""
    with pytest.warns(UserWarning, match="Spark computes"), pytest.raises(JobExecutionError, match=error):
        stream.to_arrow()


@pytest.fixture
def settings(spark):
    names = ["spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.codegen.wholeStage", *kit.UNPRUNED]
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    logging.disable(logging.CRITICAL)  # Spark writes a trace for each expression that it refuses
    yield
    logging.disable(logging.NOTSET)
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.full
def test_the_engine_gives_what_spark_gives(spark, tmp_path, settings):
    """Every expression of nested values, in both eval modes."""
    tally = kit.expressions(spark, tmp_path, seed=0, rounds=1, rows=200)
    print(plain_kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 80_000
    absent = {
        "MapSort",
        *({"KnownNotContainsNull"} if version() == "3.5" else ()),
    }  # in groups by maps alone, see above
    assert {*arrays.RULES, *maps.RULES, *lambdas.RULES} - set(tally.classes) == absent


@pytest.mark.full
@pytest.mark.parametrize("what", ["groups", "windows"])
def test_random_groups_and_windows(spark, tmp_path, settings, what):
    tally = plain_kit.Tally()
    {"groups": kit.groups, "windows": kit.windows}[what](kit.kit_of(spark, tmp_path, 0, 200), 0, 1, tally)
    print(plain_kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 3_000


@pytest.mark.full
def test_an_accelerated_session_gives_and_shows_the_same(spark, views, capsys):
    import firesteel

    frame = spark.sql("SELECT row, s1, as1, mi1, aai1, ac1, map(k, ay1) AS m FROM nested ORDER BY row")
    with firesteel.accelerate(spark, {"firesteel.progress": "false"}) as active:
        ours, ours_shown = frame.collect(), (frame.show(5, False), capsys.readouterr().out)
    assert "took over 2 of 2" in active.explain()
    assert ours == frame.collect()
    assert ours_shown == (frame.show(5, False), capsys.readouterr().out)

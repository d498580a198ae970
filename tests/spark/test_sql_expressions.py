"""The allow-list of expressions, held to Spark: every production of the kit's grammar, and random trees."""

from __future__ import annotations

import logging
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sql_expressions_kit as kit
from firesteel import accelerate
from firesteel.plan.expr import Unsupported
from firesteel.render.expressions import arrays, lambdas, maps
from firesteel.render.expressions.times.zones import zone_of
from firesteel.render.expressions.translator import RULES
from sql_expressions_grammar import JSON, TIMES_OF_SPARK_2, TIMES_OF_ZONES, documents
from sql_plans_kit import version

pytestmark = [pytest.mark.spark, pytest.mark.full]

NESTED = {*arrays.RULES, *maps.RULES, *lambdas.RULES}
"""Held to Spark in test_sql_nested."""
PARSER = "spark.sql.legacy.timeParserPolicy"
OTHERWISE = {
    "DateFormatClassOfSpark2", "FromUnixTimeOfSpark2",
    "HashOfRow", "KnownFloatingPointNormalized", "KnownNotNull", "KnownNullable", "MakeDecimal",
    "NormalizeNaNAndZero", "AtLeastNNonNulls", "ScalarSubquery", "UnscaledValue", "InSet",
}  # fmt: skip
"""Entries that only plans of whole queries, which test_sql_takeover runs, or of steps hold."""
ABSENT = {"Collate", "DayName", "MonthName"} if version() == "3.5" else {"Encode", "StringDecode"}
"""Entries of other Sparks."""


@pytest.fixture
def settings(spark):
    names = ["spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.codegen.wholeStage", PARSER]
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    logging.disable(logging.CRITICAL)  # Spark writes a trace for each expression that it refuses
    yield
    logging.disable(logging.NOTSET)
    for name, value in before.items():
        spark.conf.set(name, value)


def test_the_engine_gives_what_spark_gives(spark, tmp_path, settings):
    tally = kit.run(kit.Kit(spark, tmp_path, rows=200), seed=0, rounds=4)
    print(kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 100_000
    assert set(RULES) - set(tally.classes) - OTHERWISE - NESTED == ABSENT


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "-03:30"])
def test_times_are_those_of_the_session_s_zone(spark, tmp_path, settings, zone):
    tally = kit.run(kit.Kit(spark, tmp_path, rows=300, zone=zone), seed=0, rounds=0, first=TIMES_OF_ZONES)
    print(kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 40_000


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata"])
def test_times_by_the_patterns_of_spark_2(spark, tmp_path, settings, zone):
    spark.conf.set(PARSER, "LEGACY")
    tally = kit.run(kit.Kit(spark, tmp_path, rows=300, zone=zone), seed=0, rounds=0, first=TIMES_OF_SPARK_2)
    print(kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 5_000
    assert {"DateFormatClassOfSpark2", "FromUnixTimeOfSpark2"} <= set(tally.classes)


def test_what_spark_2_read_otherwise_stays_on_spark(spark, tmp_path, settings):
    """What reads times by a pattern, and texts of dates. The rest of these queries may be ours: Spark's part knows the setting."""
    pq.write_table(pa.table({"t": ["2024-02-29", None]}), tmp_path / "a.parquet")
    spark.read.parquet(str(tmp_path)).createOrReplaceTempView("texts")
    spark.conf.set(PARSER, "LEGACY")
    calls = ("to_date(t, 'yyyy-MM-dd')", "unix_timestamp(t, 'yyyy-MM-dd')", "CAST(CAST(t AS DATE) AS STRING)", "date_format(t, 'w')")  # fmt: skip
    frames = [
        spark.sql(f"SELECT r, count(*) AS c FROM (SELECT {call} AS r FROM texts) GROUP BY r ORDER BY r")
        for call in calls
    ]
    with accelerate(spark) as acceleration:
        ours = [frame.collect() for frame in frames]
    assert ours == [frame.collect() for frame in frames]
    told = [query.left[0] for query in acceleration.queries]
    assert len(told) == len(calls)
    assert all(
        re.search("(to_date|unix_timestamp|date_format|Spark 2 wrote them).* not taken over", one) for one in told
    )


def test_json_is_what_spark_reads(spark, tmp_path, settings):
    tally = kit.run(kit.Kit(spark, tmp_path, rows=3000, columns=documents), 0, 0, first={"json": JSON})
    print(kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 25_000


def test_a_zone_is_held_to_the_jvm(spark):
    """The engine's clocks are used in the years in which they are the JVM's; what neither knows stays on Spark."""
    assert zone_of("GMT+2").fixed == 7200
    berlin = zone_of("Europe/Berlin")
    assert berlin.fixed is None
    assert berlin.back == (3600,)
    with pytest.raises(Unsupported, match="not known"):
        zone_of("Europe/Nowhere")


def test_a_char_has_its_spaces(spark, env, tmp_path):
    """Files of others hold no spaces at the end; Spark adds them where it reads a CHAR."""
    written = pa.table({"c": ["ab", "é", "", "abcde", None], "v": ["x", "yyy", "", "zz ", None], "n": range(5)})
    pq.write_table(written, tmp_path / "padded.parquet")
    spark.sql(f"CREATE TABLE padded (c CHAR(5), v VARCHAR(3), n BIGINT) USING parquet LOCATION '{tmp_path}'")
    try:
        frame = spark.sql("SELECT n, c, length(c) AS l, c = 'ab' AS e, upper(v) AS v FROM padded WHERE c <> 'abc'")
        stream = env.from_dataframe(frame)
        assert "Spark computes" not in stream.explain()
        ours, theirs = stream.to_arrow().sort_by("n"), frame.toArrow().sort_by("n")
        assert ours.to_pylist() == theirs.to_pylist()
        assert ours.num_rows == 4
    finally:
        spark.sql("DROP TABLE padded")

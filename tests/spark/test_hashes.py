"""Hashes and estimates of different values in queries, held to Spark. Other tests hold the hashes to Spark by type and in random trees."""

from __future__ import annotations

import math
import random
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.operators_support import value

from firesteel import accelerate
from firesteel.render.expressions.hashes import steps

pytestmark = [pytest.mark.spark, pytest.mark.full]

ROWS = 4000
EDGES = {
    "b": (pa.int8(), [-128, 127, 0], lambda draw: draw.randrange(-9, 9)),
    "i": (pa.int32(), [-(1 << 31), (1 << 31) - 1, 0], lambda draw: draw.randrange(100)),
    "n": (pa.int64(), [-(1 << 63), (1 << 63) - 1, 0, (1 << 53) + 1], lambda draw: draw.randrange(5000)),
    "f": (pa.float64(), [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324], lambda draw: draw.randrange(3000) / 8),
    "s": (pa.string(), ["", "\0", "Größe", "\U0001f600", "x" * 999], lambda draw: f"{draw.randrange(2000):0{draw.randrange(1, 70)}}"),
    "y": (pa.binary(), [b"", b"\xff\x80", b"\0" * 33], lambda draw: draw.randbytes(draw.randrange(3))),
    "m": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-9999999.99")], lambda draw: Decimal(draw.randrange(900)).scaleb(-2)),
    "w": (pa.decimal128(38, 1), [Decimal("0.0"), Decimal(1 << 64), Decimal(10**37 - 1)], lambda draw: Decimal(draw.randrange(900) - 450).scaleb(-1)),
    "d": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)], lambda draw: date.fromordinal(730_000 + draw.randrange(500))),
    "t": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)], lambda draw: datetime.fromtimestamp(draw.randrange(1 << 31), UTC)),
}  # fmt: skip
"""By column its type, values at the edges, and how another one is drawn."""


@pytest.fixture(scope="module", params=["true", "false"], ids=["ansi", "legacy"])
def hashed(spark, tmp_path_factory, request):
    draw, home = random.Random(1), tmp_path_factory.mktemp("hashed")
    columns = {"k": pa.array([draw.randrange(60) for _ in range(ROWS)])}
    for name, (kind, edges, drawn) in EDGES.items():
        values = [draw.choice([None, *edges]) if draw.random() < 0.2 else drawn(draw) for _ in range(ROWS)]
        columns[name] = pa.array(values, kind)
    table = pa.table(columns)
    for part in range(2):
        pq.write_table(table.slice(part * ROWS // 2, ROWS // 2), home / f"{part}.parquet")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    spark.read.parquet(str(home)).createOrReplaceTempView("hashed")
    yield
    spark.conf.set("spark.sql.ansi.enabled", before)


ALL = ", ".join(EDGES)
COUNTED = ", ".join(f"approx_count_distinct({name}) AS {name}" for name in EDGES)
QUERIES = {
    "each": "SELECT " + ", ".join(f"hash({c}) AS h{c}, xxhash64({c}) AS x{c}" for c in EDGES) + ", crc32(y), crc32(s) FROM hashed",
    "all": f"SELECT hash({ALL}), xxhash64({ALL}) FROM hashed",
    "arrays": "SELECT hash(array(i, n), array(s, 'x'), array(f, null)), xxhash64(array(i, n), array(s, 'x'), array(y)) FROM hashed",
    "structs": "SELECT hash(struct(s, f, array(n))), xxhash64(struct(s, m), array(struct(i, w), null)) FROM hashed",
    "intervals": "SELECT hash(d - DATE'2024-01-01', INTERVAL '3' MONTH), xxhash64(t - TIMESTAMP'2024-01-01') FROM hashed WHERE d > DATE'2000-01-01'",
    "types of expressions": "SELECT hash(length(s), b % 2, n = 0), xxhash64(length(s), year(d), b % 2, cast(b AS decimal(20, 0))) FROM hashed",
    "samples": "SELECT k, pmod(hash(s), 10) AS p, count(*) FROM hashed WHERE pmod(xxhash64(n, s), 3) = 0 GROUP BY k, pmod(hash(s), 10)",
    "estimates": f"SELECT {COUNTED} FROM hashed",
    "estimates of groups": f"SELECT k, {COUNTED}, sum(i) AS total FROM hashed GROUP BY k",
    "estimates of nothing": f"SELECT {COUNTED} FROM hashed WHERE k > 100",
    "exact ones": "SELECT " + ", ".join(f"approx_count_distinct({c}, {r}) AS {c}{r * 1000:.0f}" for c in "nsw" for r in (0.39, 0.2, 0.1, 0.03, 0.01)) + " FROM hashed",
    "filtered": "SELECT k % 2 AS k, approx_count_distinct(s) FILTER (WHERE n > 100) AS a, approx_count_distinct(n, 0.1) FILTER (WHERE s IS NULL) AS b FROM hashed GROUP BY k % 2",
    "over windows": "SELECT k, n, approx_count_distinct(s, 0.2) OVER (PARTITION BY k) AS a FROM hashed",
    "of structs": "SELECT k, approx_count_distinct(struct(k, s)) AS a, approx_count_distinct(array(n, k)) AS b FROM hashed GROUP BY k",
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_queries_give_what_spark_gives(spark, env, hashed, name):
    """As a job with an exchange, and as one statement."""
    frame = spark.sql(QUERIES[name])
    theirs = sorted_rows(frame.toArrow())
    stream = env.from_dataframe(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        assert sorted_rows(stream.to_arrow()) == theirs
    with accelerate(spark) as acceleration:
        assert sorted_rows(spark.sql(QUERIES[name]).toArrow()) == theirs
        assert [one.left for one in acceleration.queries] == [()]


def sorted_rows(table):
    return sorted((tuple(map(value, row.values())) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("deviation", [0.2, 0.05])
def test_every_bias_is_sparks(spark, hashed, deviation):
    """Groups of ever more different values, through the range in which Spark corrects estimates by what it has measured."""
    step = round(6 * (1.106 / deviation) ** 2 / 300)
    groups = "SELECT DISTINCT 5 * k + pmod(i, 5) + 1 AS g FROM hashed WHERE i >= 0"
    values = f"SELECT g, explode(sequence(1, g * {step})) AS x FROM ({groups})"
    query = f"SELECT g, approx_count_distinct(hash(g, x), {deviation}) AS n FROM ({values}) GROUP BY g"
    theirs = sorted_rows(spark.sql(query).toArrow())
    assert len(theirs) == 300
    with accelerate(spark) as acceleration:
        assert sorted_rows(spark.sql(query).toArrow()) == theirs
        assert [one.left for one in acceleration.queries] == [()]


def test_biases_are_those_of_spark_s_search(spark):
    util = spark._jvm.org.apache.spark.sql.catalyst.util
    for precision in range(4, 19):
        helper = util.HyperLogLogPlusPlusHelper(1.106 / 2 ** (precision / 2 - 0.1))
        known, biases = (
            list(table[precision - 4])
            for table in (
                util.HyperLogLogPlusPlusHelper.RAW_ESTIMATE_DATA(),
                util.HyperLogLogPlusPlusHelper.BIAS_DATA(),
            )
        )
        ends, means = steps(known, biases)
        asked = [
            0.0,
            6.0 * 2**precision,
            *(end * (1 + by) for end in ends[:: 1 + len(ends) // 60] for by in (-1e-9, 1e-9)),
        ]
        for one in [*asked, ends[-1] * (1 + 1e-9)]:
            assert means[sum(one > end for end in ends)] == helper.estimateBias(one), (precision, one)


REFUSED = {
    "hash(repeat(s, 5))": "the hash of a text or an array as long as this",
    "approx_count_distinct(n) OVER (ORDER BY k)": "over rows in an order is not taken over",
    "approx_count_distinct(array(if(k < 0, 1, null)))": "a value with a rare hash",
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_is_left_to_spark(spark, hashed, call):
    query = f"SELECT max(r) AS r FROM (SELECT {call} AS r FROM hashed)"
    theirs = spark.sql(query).collect()
    with accelerate(spark) as acceleration:
        assert spark.sql(query).collect() == theirs
        assert REFUSED[call] in str(acceleration.queries[-1].left)


def test_an_estimate_that_is_too_exact(spark, hashed):
    """Spark takes minutes for it."""
    frame = spark.sql("SELECT approx_count_distinct(n, 0.002) AS n FROM hashed")
    with accelerate(spark) as acceleration:
        assert "the function approx_count_distinct as exact as this is not taken over" in acceleration.explain(frame)

"""Files of which a query's tasks read only what can match the finished side of a join behind, through all that hands the key on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.scheduler.joins import deferrals
from firesteel.sql.plans.versions import VERSIONS
from sql_plans_kit import version

pytestmark = pytest.mark.spark

ROWS = 20_000
OPTIONS = {
    "firesteel.join.runtime-filter.min-probe-data-size": "1 kb",
    "firesteel.progress": False,
}
CHOSEN = "(SELECT k, w FROM dim WHERE w > 7) d"
NARROWED = {
    "join": f"SELECT f.k, f.v, d.w FROM fact f JOIN {CHOSEN} ON f.k = d.k",
    "two columns": "SELECT f.v FROM fact f JOIN (SELECT k, day FROM dim WHERE w > 7) d ON f.k = d.k AND f.day = d.day",
    "semi": f"SELECT f.v FROM fact f WHERE f.k IN (SELECT k FROM {CHOSEN}) AND f.v % 3 = 0",
    "right": f"SELECT f.v, d.w FROM fact f RIGHT JOIN {CHOSEN} ON f.k = d.k",
    "groups": f"SELECT f.*, d.w FROM (SELECT k, max(v) AS s, count(*) AS c FROM fact GROUP BY k) f JOIN {CHOSEN} ON f.k = d.k",
    "groups that keep some": f"SELECT f.*, d.w FROM (SELECT k, max(v) AS s FROM fact GROUP BY k HAVING count(*) > 90) f JOIN {CHOSEN} ON f.k = d.k",
    "whole groups": f"SELECT f.*, d.w FROM (SELECT k, count(DISTINCT day) AS s FROM fact GROUP BY k) f JOIN {CHOSEN} ON f.k = d.k",
    "windows": f"SELECT f.*, d.w FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM fact) f JOIN {CHOSEN} ON f.k = d.k WHERE r < 3",
    "more in the condition": f"""
        SELECT f.v FROM fact f JOIN {CHOSEN} ON f.k = d.k
        WHERE EXISTS (SELECT 1 FROM fact g WHERE g.k = f.k AND g.day <> f.day AND g.v > f.v)""",
    "partitions": "SELECT p.v FROM parted p JOIN (SELECT k, day FROM dim WHERE w = 5) d ON p.day = d.day AND p.k = d.k",
}
WHOLE = {
    "left": f"SELECT f.v, d.w FROM fact f LEFT JOIN {CHOSEN} ON f.k = d.k",
    "full": f"SELECT f.v, d.w FROM fact f FULL JOIN {CHOSEN} ON f.k = d.k",
    "limits": f"SELECT f.v FROM (SELECT k, v FROM fact ORDER BY v, k LIMIT 100) f JOIN {CHOSEN} ON f.k = d.k",
    "windows of others": f"SELECT f.r FROM (SELECT k, rank() OVER (PARTITION BY day ORDER BY v) AS r FROM fact) f JOIN {CHOSEN} ON f.k = d.k",
    "sums that may overflow": f"SELECT f.*, d.w FROM (SELECT k, sum(v) AS s FROM fact GROUP BY k) f JOIN {CHOSEN} ON f.k = d.k",
    "computed": f"SELECT f.v FROM (SELECT k + 1 AS k, v FROM fact) f JOIN {CHOSEN} ON f.k = d.k",
    "groups of others": f"SELECT f.*, d.w FROM (SELECT max(k) FILTER (WHERE k < 19) AS k, day FROM fact GROUP BY day) f JOIN {CHOSEN} ON f.k = d.k",
}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """However long the smaller side takes, the other one waits: what is decided does not depend on the machine."""
    monkeypatch.setattr(deferrals, "WAIT_SHARE", 1e9)


@pytest.fixture(scope="module", autouse=True)
def views(spark, tmp_path_factory):
    home, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(5)
    k = np.sort(rng.integers(0, 200, ROWS))
    fact = pa.table(
        {
            "k": pa.array(k, mask=rng.random(ROWS) < 0.01),
            "day": rng.integers(0, 20, ROWS).astype(np.int32),
            "v": rng.integers(0, 1 << 40, ROWS),
        }
    )
    dim = pa.table({"k": np.arange(0, 200, 2), "day": np.arange(100).astype(np.int32) % 20, "w": np.arange(100) % 10})
    pq.write_table(fact, home / "fact.parquet", row_group_size=1_000)
    pq.write_table(dim, home / "dim.parquet")
    parts = pads.partitioning(pa.schema({"day": pa.int32()}), flavor="hive")
    pads.write_dataset(fact, home / "parted", format="parquet", partitioning=parts)
    for name in ("fact.parquet", "dim.parquet", "parted"):
        spark.read.parquet(str(home / name)).createOrReplaceTempView(name.removesuffix(".parquet"))
    return home


def compared(spark, query, tmp_path):
    """Runs the query as a job, whose rows must be Spark's; the bytes of each source that was narrowed, before and after."""
    env = ExecutionEnvironment(spark=spark, options=OPTIONS)
    frame = spark.sql(query)
    stream = env.from_dataframe(frame)
    assert "Spark computes" not in stream.explain()
    stream.write_parquet(tmp_path / "out")
    result = env.execute("filtered")
    ours, theirs = pq.read_table(tmp_path / "out"), frame.toArrow()
    assert ours.schema.names == theirs.schema.names and ours.num_rows == theirs.num_rows > 0
    order = [(name, "ascending") for name in theirs.schema.names]
    assert ours.cast(theirs.schema).sort_by(order) == theirs.sort_by(order)
    rows = {row["vertex"]: row for row in result.vertices.to_pylist()}
    return [(d, rows[d.vertex]) for d in result.decision_records if d.what == "runtime filter"]


@pytest.mark.parametrize(
    "query",
    [v if k in ("groups", "partitions") else pytest.param(v, marks=pytest.mark.full) for k, v in NARROWED.items()],
    ids=NARROWED,
)
def test_rows_without_a_match_are_not_read(spark, tmp_path, query):
    told = compared(spark, query, tmp_path)
    assert told, "no source was narrowed"
    for decision, vertex in told:
        assert 0 < vertex["rows_out"] < ROWS / 3, decision.reason


@pytest.mark.full
@pytest.mark.parametrize("query", WHOLE.values(), ids=WHOLE)
def test_all_is_read_where_something_else_looks_at_it(spark, tmp_path, query):
    assert compared(spark, query, tmp_path) == []


@pytest.mark.full
def test_partitions_without_a_match_are_not_opened(spark, tmp_path):
    ((decision, _),) = compared(spark, NARROWED["partitions"], tmp_path)
    assert decision.result["bytes"] < decision.inputs["bytes"] / 5


def written(spark, home, format):
    """A view of the facts in files of the format; of Parquet some without the column ``day``, and some with narrower keys, if they may be."""
    place, facts = home / f"fact_{format}", spark.table("fact")
    if format == "parquet":
        keys = "CAST(k AS INT) AS k" if VERSIONS[version()].widens else "k"
        facts.where("v % 2 = 0").drop("day").write.parquet(str(place))
        facts.where("v % 2 = 1").selectExpr(keys, "day", "v").write.mode("append").parquet(str(place))
        spark.read.schema(facts.schema).parquet(str(place)).createOrReplaceTempView(place.name)
        return place.name
    facts.write.format(format).save(str(place))
    spark.read.schema(facts.schema).format(format).load(str(place)).createOrReplaceTempView(place.name)
    return place.name


@pytest.mark.full
@pytest.mark.parametrize("format", ["csv", "json", "orc", "parquet"])
def test_files_that_are_read_in_other_ways(spark, views, tmp_path, format):
    name = written(spark, views, format)
    for query in (NARROWED["join"], NARROWED["groups"], NARROWED["semi"]):
        told = compared(spark, query.replace("FROM fact ", f"FROM {name} "), tmp_path / str(len(query)))
        assert told, "no source was narrowed"

"""The steps that a PySpark user looks for, on a real Spark; where PySpark has the same step, its answers are compared."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import Row, col
from firesteel.errors import JobExecutionError

pytestmark = pytest.mark.spark


def by(key, found):
    return sorted(found, key=lambda row: str(row[key]))


def test_functions_on_rows(env):
    lines = env.from_collection([{"line": "a b b"}, {"line": ""}, {"line": "b c"}])
    words = lines.flat_map(lambda row: row.line.split(), "word string").map(
        lambda row: (row.word, 1), "word string, n bigint"
    )
    counts = words.filter(lambda row: row.word != "c").key_by("word").reduce(lambda a, b: Row(word=a.word, n=a.n + b.n))
    assert by("word", counts.collect()) == [{"word": "a", "n": 1}, {"word": "b", "n": 3}]
    longest = words.rebalance().reduce(lambda a, b: a if (a.n, a.word) >= (b.n, b.word) else b)
    assert longest.collect() == [{"word": "c", "n": 1}]
    assert words.filter(lambda row: False).reduce(lambda a, b: a).collect() == []
    small = env.from_collection([{"x": 5}])
    assert lines.with_broadcast(small=small).map(lambda row, small: small["x"][0].as_py(), "n bigint").take(1) == [
        {"n": 5}
    ]
    with pytest.raises(
        JobExecutionError, match=r"map\(<lambda>\).*'a b b' \(a str\) for column 'n', which is no int64"
    ):
        lines.map(lambda row: row.line, "n bigint").collect()


@pytest.fixture
def people(env):
    names = ["ann", "bob", None, "dee", "eve", "fay"]
    return pa.table({
        "name": names, "age": pa.array([30, None, 25, 41, 41, 30], pa.int64()), "size": [1.5, float("nan"), 1.7, None, 1.6, 2.0],
    })  # fmt: skip


def as_spark(env, table):
    """A Spark DataFrame with nulls, not NaN, in the place of nulls."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return env.spark.createDataFrame(
        [tuple(row.values()) for row in table.to_pylist()], from_arrow_schema(table.schema)
    )


def same_rows(found, frame):
    def key(row):
        return [(v is None, v != v, str(v)) for v in row]

    mine = sorted((tuple(row.values()) for row in found.collect()), key=key)
    theirs = sorted((tuple(row) for row in frame.collect()), key=key)
    assert [[str(v) for v in row] for row in mine] == [[str(v) for v in row] for row in theirs]
    assert found.columns == frame.columns


def test_named_steps_equal_pysparks(env, people):
    stream, frame = env.from_arrow(people), as_spark(env, people)
    same_rows(stream.dropna(), frame.dropna())
    same_rows(stream.dropna(how="all", subset=["age", "size"]), frame.dropna(how="all", subset=["age", "size"]))
    same_rows(stream.fillna(0), frame.fillna(0))
    same_rows(stream.fillna("?"), frame.fillna("?"))
    same_rows(stream.fillna({"age": 7, "name": "x"}), frame.fillna({"age": 7, "name": "x"}))
    same_rows(stream.withColumnRenamed("age", "years"), frame.withColumnRenamed("age", "years"))
    same_rows(stream.groupBy("age").count(), frame.groupBy("age").count())
    same_rows(stream.dropDuplicates(["age"]).select("age"), frame.dropDuplicates(["age"]).select("age"))
    same_rows(stream.drop_duplicates(), frame.dropDuplicates())
    other, other_frame = stream.select("size", "name", more=col("age")), frame.selectExpr("size", "name", "age as more")
    same_rows(stream.unionByName(other, True), frame.unionByName(other_frame, allowMissingColumns=True))
    summary = {row["summary"]: row for row in stream.describe("age", "name").collect()}
    for row in frame.describe("age", "name").collect():
        mine = summary[row["summary"]]
        assert mine["name"] == row["name"]
        assert float(mine["age"]) == pytest.approx(float(row["age"]))


def test_repartition_coalesce_and_sample(env, tmp_path):
    stream = env.from_arrow(pa.table({"n": pa.array(range(20_000)), "k": [i % 5 for i in range(20_000)]}))
    stream.repartition(3).write_parquet(tmp_path / "even")
    stream.repartition(4, "k").write_parquet(tmp_path / "by_k")
    stream.repartition(4).coalesce(1).write_parquet(tmp_path / "one")
    env.execute("how rows lie")
    even = [pq.read_table(p) for p in (tmp_path / "even").glob("*.parquet")]
    assert len(even) == 3
    assert sum(t.num_rows for t in even) == 20_000
    by_k = [set(pq.read_table(p)["k"].to_pylist()) for p in (tmp_path / "by_k").glob("*.parquet")]
    assert sorted(k for keys in by_k for k in keys) == [0, 1, 2, 3, 4]
    assert len(list((tmp_path / "one").glob("*.parquet"))) == 1
    drawn = stream.sample(0.1, seed=3).to_arrow()
    assert 1700 < drawn.num_rows < 2300
    assert drawn == stream.sample(0.1, seed=3).to_arrow()
    assert stream.sample(0.5, seed=3).key_by("k").count().to_arrow().num_rows == 5


def test_small_actions(env):
    stream = env.from_collection([{"n": 1}])
    assert (stream.first(), stream.is_empty(), stream.isEmpty()) == ({"n": 1}, False, False)
    none = stream.filter(lambda row: row.n > 1)
    assert (none.first(), none.is_empty()) == (None, True)

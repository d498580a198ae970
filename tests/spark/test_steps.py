"""Named steps give PySpark's answers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel import col

pytestmark = pytest.mark.spark


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

"""Plans as they are read, on whichever Spark is installed, compared with those that are kept of it."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.functions import udf

import sql_plans_kit as kit
from firesteel.sql.plans import versions

VERSION = kit.version()
pytestmark = [
    pytest.mark.spark,
    pytest.mark.full,
    pytest.mark.skipif(VERSION not in versions.VERSIONS, reason="plans of this Spark are not read"),
]


@pytest.fixture
def found(spark, tmp_path):
    before = {name: spark.conf.get(name) for name in kit.SETTINGS}
    for name, value in kit.SETTINGS.items():
        spark.conf.set(name, value)
    kit.view(spark, tmp_path)
    yield kit.plans(spark)
    for name, value in before.items():
        spark.conf.set(name, value)


def test_plans_are_read_as_they_were(found):
    """A plan that has changed means that a rule may give another answer: look, then write the new one with the kit."""
    kept = json.loads(kit.kept(VERSION).read_text())
    assert json.loads(kit.text_of(found)) == kept


def test_each_spark_that_is_taken_over_has_its_plans():
    assert {path.stem for path in kit.HOME.glob("*.json")} == set(versions.VERSIONS)


@pytest.mark.skipif(kit.calls_functions(), reason="our tasks call them: test_sql_python")
def test_python_functions_of_older_sparks_are_sparks(spark, env, tmp_path):
    spark.range(5).write.parquet(str(tmp_path / "numbers"))
    frame = spark.read.parquet(str(tmp_path / "numbers")).select(udf(lambda n: n * 2, "long")("id").alias("twice"))
    stream = env.from_dataframe(frame)
    assert f"Python functions in plans of Spark {VERSION} are Spark's" in stream.explain()
    assert sorted(stream.to_arrow()["twice"].to_pylist()) == [0, 2, 4, 6, 8]


@pytest.mark.skipif(VERSION == "3.5", reason="there are none")
def test_a_collation_is_seen(spark, env, tmp_path):
    """It is a part of the type, and of no expression, where a column has it."""
    spark.sql(f"CREATE TABLE collated (s STRING COLLATE UTF8_LCASE, n INT) USING parquet LOCATION '{tmp_path / 'c'}'")
    try:
        spark.sql("INSERT INTO collated VALUES ('ann', 1), ('ANN', 2), ('bob', 3)")
        stream = env.from_dataframe(spark.sql("SELECT n FROM collated WHERE s = 'Ann'"))
        assert stream._pipeline.node.kind == "from_dataframe"
        assert sorted(stream.to_arrow()["n"].to_pylist()) == [1, 2]
    finally:
        spark.sql("DROP TABLE collated")

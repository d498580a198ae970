"""Spark's configuration as a layer of options."""

from __future__ import annotations

import pytest

from firesteel import ExecutionEnvironment
from firesteel.options import MAX_PARALLELISM

pytestmark = pytest.mark.spark


def counted(env, rows=2000):
    numbers = env.from_collection([{"k": i % 97, "v": i} for i in range(rows)])
    return numbers.key_by("k").aggregate({"v": "sum"})


def test_sparks_configuration_is_a_layer_of_options(spark, tmp_path, monkeypatch):
    context = spark.sparkContext
    pairs = [("spark.firesteel.max-parallelism", "3"), ("spark.firesteel.data-volume-per-task", "1b")]
    given = context.getConf

    def with_ours():
        conf = given()
        for key, value in pairs:
            conf = conf.set(key, value)
        return conf

    monkeypatch.setattr(context, "getConf", with_ours)
    env = ExecutionEnvironment(spark, options={"firesteel.progress": False, "journal.directory": str(tmp_path / "j")})
    assert env.options.origin(MAX_PARALLELISM).where == "spark.firesteel.max-parallelism"
    counted(env).write_parquet(tmp_path / "out")
    decided = [d for d in env.execute("conf").decision_records if d.what == "parallelism"]
    assert [d.result["parallelism"] for d in decided] == [3]
    over = ExecutionEnvironment(spark, options={"max-parallelism": 2})
    assert over.options[MAX_PARALLELISM] == 2

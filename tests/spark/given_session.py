"""A driver for the tests: a worker of its job is killed, on a local session that Firesteel did not make. Prints what is told of it, and
how Spark speaks with workers."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import SparkSession

from firesteel import ExecutionEnvironment
from firesteel.report.explain import attempts_report, explain
from firesteel.report.fold import JobHistory
from firesteel.spark.driver.runtime import submit
from runtime_support import DiesBeside, Seen, collected, options, two_steps

UNIX = "PYTHON_UNIX_DOMAIN_ENABLED"


def speaks_unix(_rows):
    return [os.environ.get(UNIX)]


def preloaded(_row):
    """What tasks import was there when the worker was forked, and what this process starts does not import it."""
    there = "import sys; print('sitecustomize' in sys.modules and 'pyarrow' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True).stdout
    return {"frozen": gc.get_freeze_count(), "started": out.strip() == "True"}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable  # standing tasks are for workers that run the driver's interpreter
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    context = spark.sparkContext
    before = sorted(context.getConf().getAll())
    seen = Seen()
    given = options(folder, **{"firesteel.standing-tasks": False})  # each of these would be a Spark job of its own
    outcome = submit(two_steps(splits=6, source=DiesBeside(str(folder))), spark, given, [seen]).result()
    alone, own = Seen(), folder / "alone"
    own.mkdir()
    again = submit(two_steps(splits=6, source=DiesBeside(str(own))), spark, options(own), [alone]).result()
    ours = (
        ExecutionEnvironment(spark=spark)
        .from_collection([{"n": 1}], "n int")
        .map(lambda row: speaks_unix(row)[0], "s string")
    )
    (forked,) = (
        ExecutionEnvironment(spark=spark)
        .from_collection([{"n": 1}], "n int")
        .map(preloaded, "frozen bigint, started boolean")
        .collect()
    )
    print(
        json.dumps(
            {
                "preloaded": [forked["frozen"] > 10_000, forked["started"]],
                "unix": [ours.collect()[0]["s"], context.parallelize([1], 1).mapPartitions(speaks_unix).first()],
                "changed": sorted(context.getConf().getAll()) != before,
                "values": sorted(collected(outcome)["v"].to_pylist()),
                "failed": seen.states("FAILED", 0),
                "canceled": seen.states("CANCELED", 0),
                "restarts": JobHistory(seen.records).metrics["numRestarts"],
                "report": attempts_report(seen.records),
                "alone": [alone.states("FAILED", 0), alone.states("CANCELED", 0), collected(again).num_rows],
                "died": attempts_report(alone.records),
                "explained": explain(seen.records),
            }
        )
    )
    spark.stop()

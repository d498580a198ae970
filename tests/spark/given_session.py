"""A driver for the tests: a worker of its job is killed, on a local session that Firesteel did not make. Prints what is told of it, and
how Spark speaks with workers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import SparkSession

from firesteel import ExecutionEnvironment
from firesteel.report.attempts_report import report
from firesteel.report.explain import explain
from firesteel.report.history import JobHistory
from firesteel.spark.driver.runtime import submit
from runtime_support import DiesBeside, Seen, collected, options, two_steps

UNIX = "PYTHON_UNIX_DOMAIN_ENABLED"


def speaks_unix(_rows):
    return [os.environ.get(UNIX)]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    context = spark.sparkContext
    before = sorted(context.getConf().getAll())
    seen = Seen()
    outcome = submit(two_steps(splits=6, source=DiesBeside(str(folder))), spark, options(folder), [seen]).result()
    ours = (
        ExecutionEnvironment(spark=spark)
        .from_collection([{"n": 1}], "n int")
        .map(lambda row: speaks_unix(row)[0], "s string")
    )
    print(
        json.dumps(
            {
                "unix": [ours.collect()[0]["s"], context.parallelize([1], 1).mapPartitions(speaks_unix).first()],
                "changed": sorted(context.getConf().getAll()) != before,
                "values": sorted(collected(outcome)["v"].to_pylist()),
                "failed": seen.states("FAILED", 0),
                "canceled": seen.states("CANCELED", 0),
                "restarts": JobHistory(seen.records).metrics["numRestarts"],
                "report": report(seen.records),
                "explained": explain(seen.records),
            }
        )
    )
    spark.stop()

"""Spark DataFrames into our jobs and out of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from firesteel.errors import JobExecutionError, UsageError
from firesteel.model.job_graph import SourceInfo
from firesteel.spark.dataframes import dataframe_schema, dataframe_source, to_dataframe
from firesteel.spark.driver.runtime import submit
from firesteel.task.functions.batch_functions import MapInArrow
from firesteel.task.program import ResultOutput, SparkHead, VertexProgram
from runtime_support import NUMBERS, collected, left_behind, options, two_steps

pytestmark = pytest.mark.spark


def job_over(dataframe, fn=None):
    """The DataFrame's rows (k, v) -> hash on k -> collect."""
    source = dataframe_source(dataframe)
    job = two_steps()
    vertex = job.job_graph.vertices[0]
    vertex.parallelism = -1
    vertex.source = SourceInfo(np.zeros(source.num_partitions, dtype=np.int64), fixed_parallelism=source.num_partitions)
    chain = () if fn is None else (MapInArrow("fn", fn, NUMBERS),)
    vertex.program = VertexProgram(SparkHead(), chain, (ResultOutput(0, NUMBERS, ("k",)),))
    job.splits = {}
    job.dataframes = {0: source.dataframe}
    return job


def numbers(spark, n, partitions):
    return spark.range(0, n, 1, partitions).selectExpr("id % 7 as k", "id as v")


@pytest.mark.full
@pytest.mark.parametrize("partitions", [1, 5])
def test_a_dataframe_is_a_source(spark, tmp_path, partitions):
    outcome = submit(job_over(numbers(spark, 1000, partitions)), spark, options(tmp_path)).result()
    assert outcome.error is None
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(1000))


def test_a_dataframe_with_exchanges_runs_them_once_and_keeps_its_partitions(spark, tmp_path):
    frame = numbers(spark, 1000, 4).groupBy("k").count().selectExpr("k", "count as v")
    outcome = submit(job_over(frame), spark, options(tmp_path)).result()
    assert outcome.error is None
    assert sorted(collected(outcome).column("k").to_pylist()) == list(range(7))
    assert sum(collected(outcome).column("v").to_pylist()) == 1000


def test_tasks_know_the_settings_of_the_dataframes_session(spark, tmp_path):
    """Before and after its exchange, where a task reads the pattern. The letter u is the day of the week for Spark 2, and an error for Spark 3."""
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")

    def of_week(number):  # from a Monday on
        return f"bigint(date_format(date_add(date'2024-01-01', int({number})), array('u', 'u')[int({number} % 2)]))"

    days = session.range(0, 30, 1, 2).selectExpr(f"{of_week('id')} as k")
    frame = days.groupBy("k").count().selectExpr("k", f"{of_week('count')} as v")
    outcome = submit(job_over(frame), spark, options(tmp_path)).result()
    assert outcome.error is None
    found = collected(outcome)
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
        k: 6 if k < 3 else 5 for k in range(1, 8)
    }


@pytest.mark.full
def test_an_empty_dataframe_has_a_subtask_too(spark, tmp_path):
    frame = spark.createDataFrame([], "k bigint, v bigint")
    outcome = submit(job_over(frame), spark, options(tmp_path)).result()
    assert outcome.error is None
    assert collected(outcome).num_rows == 0
    sparse = numbers(spark, 3, 4)
    outcome = submit(job_over(sparse), spark, options(tmp_path)).result()
    assert sorted(collected(outcome)["v"].to_pylist()) == [0, 1, 2]


def test_a_failed_subtask_runs_again_on_its_own_partition(spark, tmp_path):
    flag = tmp_path / "flag"

    def once(batches):
        from pyspark import TaskContext

        rows = list(batches)
        if TaskContext.get().partitionId() == 2 and not flag.exists():
            flag.touch()
            raise ValueError("once")
        yield from rows

    outcome = submit(job_over(numbers(spark, 100, 4), once), spark, options(tmp_path)).result()
    assert outcome.error is None
    assert flag.exists()
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(100))


@pytest.mark.full
def test_an_error_of_sparks_own_is_a_sentence(spark, tmp_path):
    frame = spark.range(0, 10, 1, 2).selectExpr("id as k", "if(id = 7, raise_error('seven'), id) as v")
    given = options(tmp_path).with_values({"restart-strategy.type": "none"})
    outcome = submit(job_over(frame), spark, given).result()
    assert isinstance(outcome.error, JobExecutionError)
    assert "seven" in str(outcome.error)
    assert "\tat " not in str(outcome.error)
    assert left_behind(tmp_path) == []


@pytest.mark.full
def test_what_is_no_batch_dataframe_is_refused(spark):
    with pytest.raises(UsageError, match="streaming"):
        dataframe_schema(spark.readStream.format("rate").load())
    with pytest.raises(UsageError, match="not a"):
        dataframe_schema(pa.table({}))
    with pytest.raises(UsageError, match="nine"):
        dataframe_source(spark.range(10).repartition(3, "id").selectExpr("raise_error('nine') as x").repartition(2))


def test_a_result_is_a_dataframe_again(spark, tmp_path):
    outcome = submit(two_steps(splits=3, rows=100), spark, options(tmp_path)).result()
    frame = to_dataframe(spark, outcome.store, outcome.persistent[1], NUMBERS)
    outcome.keep()
    assert frame.columns == ["k", "v"]
    assert frame.groupBy().sum("v").collect()[0][0] == sum(range(300))
    assert frame.count() == 300
    outcome.close()

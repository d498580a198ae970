"""Spark DataFrames as sources: computed by our own tasks as far as they give Spark's answers, and by Spark."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from firesteel.api.connectors import reading
from firesteel.api.ddl import dataframe_schema
from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.errors import UsageError
from firesteel.options import SQL_DATAFRAMES

if TYPE_CHECKING:
    from firesteel.api.environment import ExecutionEnvironment


def from_dataframe(env: ExecutionEnvironment, dataframe: Any) -> Pipeline:
    with step_at("from_dataframe") as place:
        dataframe_schema(dataframe)  # raises for what is no DataFrame of this Spark
        env._adopt(dataframe.sparkSession)  # pyright: ignore[reportPrivateUsage]
        by_spark = reading.from_spark(env, "from_dataframe", dataframe, place)
        if env.options[SQL_DATAFRAMES] == "spark":
            return by_spark
        return _taken_over(env, dataframe, by_spark, place)


def _taken_over(env: ExecutionEnvironment, dataframe: Any, by_spark: Pipeline, place: str) -> Pipeline:
    if find_spec("duckdb") is None:
        return by_spark.left_to_spark(["DuckDB is not installed (pip install 'firesteel[sql]')"])
    from firesteel.sql.plans.nodes import Unsupported  # loads what only these jobs need
    from firesteel.sql.takeover import take_over

    try:
        taken, left = take_over(env, dataframe, by_spark.schema, place)
    except (Unsupported, UsageError) as reason:  # what cannot be read is told by Spark
        return by_spark.left_to_spark([str(reason)])
    return taken.left_to_spark(left).or_by_spark(by_spark)

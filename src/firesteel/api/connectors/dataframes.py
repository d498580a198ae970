"""Spark DataFrames as sources: computed by our own tasks as far as they give Spark's answers, and by Spark."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
        schema = dataframe_schema(dataframe)
        env._adopt(dataframe.sparkSession)  # pyright: ignore[reportPrivateUsage]
        by_spark = reading.from_spark(env, "from_dataframe", dataframe, place)
        taken = _taken_over(env, dataframe, schema, place)
        return by_spark if taken is None else taken.or_by_spark(by_spark)


def _taken_over(env: ExecutionEnvironment, dataframe: Any, schema: pa.Schema, place: str) -> Pipeline | None:
    """None: Spark runs the DataFrame itself."""
    if env.options[SQL_DATAFRAMES] == "spark" or find_spec("duckdb") is None:
        return None
    from firesteel.sql.plans.nodes import Unsupported  # loads what only these jobs need
    from firesteel.sql.takeover import take_over

    try:
        return take_over(env, dataframe, schema, place)[0]
    except (Unsupported, UsageError):  # what cannot be read is told by Spark
        return None

"""A DataFrame as a pipeline of steps: where to begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from firesteel.api.steps.pipeline import Pipeline
from firesteel.plan.expr import Unsupported
from firesteel.plan.types import quoted
from firesteel.sql.operators.rows import Rows
from firesteel.sql.planner import Planner
from firesteel.sql.plans.catalyst import read_plan


def take_over(
    env: Any, dataframe: Any, schema: pa.Schema, place: str, streams: Mapping[int, Pipeline] | None = None
) -> tuple[Pipeline, list[str]]:
    """The DataFrame's rows, computed by steps, and what of it Spark computes all the same, with the reasons.

    ``streams``: of the environment, by the number of the RDD that stands for them in the plan. Raises Unsupported where nothing would
    be gained (none of its relations can be read without Spark), or where a part with a stream of ours would be left to Spark.
    """
    if len(set(schema.names)) < len(schema.names) or not schema.names or "" in schema.names:
        raise Unsupported("columns without names of their own")
    catalyst = read_plan(dataframe)
    planner = Planner(catalyst, env, dict(streams or {}))
    rows = planner.rows(catalyst.root)
    if not planner.taken:
        raise Unsupported("; ".join(planner.left) or "it reads nothing")
    return _under(rows, schema, place, catalyst.output_of(catalyst.root)), planner.left


def _under(rows: Rows, schema: pa.Schema, place: str, output: list[Any]) -> Pipeline:
    """The columns under the DataFrame's names and types."""
    items = ", ".join(f"{a.id} AS {quoted(name)}" for a, name in zip(output, schema.names, strict=True))
    columns = {name: rows.columns[a.id] for a, name in zip(output, schema.names, strict=True)}
    return rows.selecting(items, columns, "select").step(schema, place)

"""A DataFrame as a pipeline of steps: where to begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from firesteel.api.steps.pipeline import Pipeline
from firesteel.plan.expr import Unsupported
from firesteel.plan.types import quoted
from firesteel.sql.plans.catalyst import Catalyst
from firesteel.sql.reader import Reader
from firesteel.sql.steps.steps import Steps


def take_over(
    env: Any, catalyst: Catalyst, schema: pa.Schema, place: str, streams: Mapping[int, Pipeline] | None = None
) -> tuple[Pipeline, list[str]]:
    """The rows of a plan, computed by steps, and what of it Spark computes all the same, with the reasons.

    ``schema``: their names and types for users. ``streams``: of the environment, by the number of the RDD that stands for them in the plan. Raises Unsupported where nothing would
    be gained (none of its relations can be read without Spark), or where a part with a stream of ours would be left to Spark.
    """
    if len(set(schema.names)) < len(schema.names) or not schema.names or "" in schema.names:
        raise Unsupported("columns without names of their own")
    steps = Steps(env)
    reader = Reader(catalyst, steps.rows, dict(streams or {}))
    rows = steps.rows(reader.relation(catalyst.root))
    if not reader.taken:
        raise Unsupported("; ".join(reader.left) or "it reads nothing")
    named = list(zip(catalyst.output_of(catalyst.root), schema.names, strict=True))
    items = ", ".join(f"{a.id} AS {quoted(name)}" for a, name in named)
    columns = {name: rows.columns[a.id] for a, name in named}
    return rows.selecting(items, columns, "select").step(schema, place), reader.left

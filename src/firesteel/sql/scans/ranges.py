"""``spark.range`` and the table function ``range``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.api.connectors import reading
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import SourceStep, StreamNode
from firesteel.connectors.ranges import RangeSource
from firesteel.plan.expr import Unsupported
from firesteel.sql.operators.rows import Rows, schema_of
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.planner import Planner


def range_of(planner: Planner, node: Operator) -> Rows:
    """Its numbers, from the start in steps up to the end, which is not among them."""
    if node["isStreaming"] or len(node["output"]) != 1 or node["output"][0].type != "long":
        raise Unsupported("this range is Spark's own")
    if abs(node["end"] - node["start"]) >= 1 << 63:
        raise Unsupported("a range longer than bigint counts is Spark's own")
    count = len(range(node["start"], node["end"], node["step"]))
    columns = {node["output"][0].id: "long"}
    planner.taken += 1
    if not count:
        return Rows(reading.from_arrow(planner.env, schema_of(columns).empty_table()), columns)  # type: ignore[arg-type]
    source = RangeSource(node["start"], node["step"], count)
    begun = Pipeline(planner.env, StreamNode(source.name, SourceStep(source), source.schema))  # type: ignore[arg-type]
    return Rows(begun, columns).selecting(f"id AS {node['output'][0].id}", columns, "range")

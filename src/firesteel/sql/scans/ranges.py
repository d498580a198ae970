"""``spark.range`` and the table function ``range``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.connectors.memory import RangeSource
from firesteel.plan.expr import Unsupported
from firesteel.plan.relation import Relation, Scan, Values, schema_of
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.reader import Reader


def range_of(reader: Reader, node: Operator) -> Relation:
    """Its numbers, from the start in steps up to the end, which is not among them."""
    if node["isStreaming"] or len(node["output"]) != 1 or node["output"][0].type != "long":
        raise Unsupported("this range is Spark's own")
    if abs(node["end"] - node["start"]) >= 1 << 63:
        raise Unsupported("a range longer than bigint counts is Spark's own")
    count = len(range(node["start"], node["end"], node["step"]))
    columns = {node["output"][0].id: "long"}
    reader.taken += 1
    if not count:
        return Values(columns, schema_of(columns).empty_table())
    return Scan(columns, RangeSource(node["start"], node["step"], count), dict.fromkeys(columns, "id"))

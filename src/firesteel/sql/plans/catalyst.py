"""Spark's optimised logical plan of a DataFrame, read in one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firesteel.plan.expr import Expr, Unsupported
from firesteel.render.expressions.times.zones import ask_for_zones
from firesteel.sql.plans.java import instance_of
from firesteel.sql.plans.plan_reader import SOURCE
from firesteel.sql.plans.versions import Version, checked_version


@dataclass(frozen=True, slots=True, eq=False)
class Operator(Expr):
    """An operator of a plan. ``handle``: its number among the reader's Java objects."""

    handle: int = -1


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as Spark listed it. ``path``: without escapes."""

    scheme: str | None
    authority: str | None
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Folder:
    """Files with the same values of the partition columns, which are written as constants in plans are."""

    values: list[Any]
    files: list[FoundFile]


@dataclass(frozen=True, slots=True)
class Catalyst:
    """A plan that was read. ``root``: its nodes; ``dataframe_of(node)`` gives a subtree back to Spark."""

    root: Operator
    session: Any
    version: Version
    _reader: Any

    def output_of(self, node: Operator) -> list[Expr]:
        """The attributes of an operator, in order."""
        return _node(json.loads(self._reader.output(node.handle)), self.version)

    def firsts(self) -> list[int]:
        """For the handle of each operator, that of the first one that gives the same rows, but for the ids of its columns."""
        return [int(number) for number in self._reader.firsts().split()]

    def files_of(self, relation: Operator, filters: Sequence[Operator]) -> list[Folder]:
        """The files of a relation, without directories that partition columns in the conditions of these Filter operators rule out.
        Raises Unsupported."""
        try:
            text = self._reader.files(relation.handle, ",".join(str(one.handle) for one in filters))
        except Exception as error:
            raise Unsupported(f"Spark cannot list the files: {str(error).strip().splitlines()[0]}") from error
        return [Folder(one["values"], [FoundFile(*file) for file in one["files"]]) for one in json.loads(text)]

    def dataframe_of(self, node: Operator, names: list[str]) -> Any:
        """The subtree as a DataFrame of Spark's, its columns called ``names``."""
        from firesteel.spark.session.versions import dataframe_of_plan

        return dataframe_of_plan(self._reader.plan(node.handle), self.session).toDF(*names)

    def table_of(self, node: Operator, names: list[str]) -> pa.Table:
        """The rows of a subtree that has some. Raises Unsupported where this Spark cannot hand them over."""
        try:
            return pa.Table.from_batches(self.dataframe_of(node, names)._collect_as_arrow())
        except Exception as error:
            raise Unsupported(f"Spark cannot hand over its rows: {str(error).strip().splitlines()[0]}") from error


def read_plan(dataframe: Any) -> Catalyst:
    """Plans the DataFrame, runs nothing. Raises Unsupported where this Spark's plans cannot be read."""
    session = dataframe.sparkSession
    version = checked_version(session)
    if session.conf.get("spark.sql.legacy.timeParserPolicy", "CORRECTED").upper() == "LEGACY":
        raise Unsupported("dates by the patterns of Spark 2 are not taken over")
    try:
        plan = dataframe._jdf.queryExecution().optimizedPlan()
        reader = _reader(session, version)
        text = reader.read(plan)
    except Exception as error:
        raise Unsupported(f"Spark's plan cannot be read: {str(error).strip().splitlines()[0]}") from error
    return Catalyst(_node(json.loads(text), version), session, version, reader)


def offsets_of(zone: str) -> dict[str, Any]:
    """This JVM's knowledge of a zone: ``name``, ``fixed``, and ``offsets``, as [second, offset from then on]. Raises Unsupported."""
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    reader = _reader(session, checked_version(session))
    try:
        return json.loads(reader.zone(zone))
    except Exception as error:
        raise Unsupported(f"the zone {zone} is not known") from error


def _reader(session: Any, version: Version) -> Any:
    return instance_of(SOURCE + version.field_name, session)


def _node(value: Any, version: Version) -> Any:
    """Nodes of what the reader wrote; types and what it does not know stay dicts."""
    if isinstance(value, list):
        return [_node(item, version) for item in value]
    if isinstance(value, dict) and "c" in value:
        fields = {name: _node(field, version) for name, field in value["f"].items()}
        cls = version.class_of(value["c"])
        return Operator(cls, fields, handle=value["h"]) if "h" in value else Expr(cls, fields, value.get("t"))
    return value


ask_for_zones(offsets_of)

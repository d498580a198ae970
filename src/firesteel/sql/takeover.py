"""A DataFrame as a relation, and by steps: where to begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from firesteel.compile.relations.steps import Steps
from firesteel.compile.stream_graph import StreamEdge, StreamNode
from firesteel.connectors.base import Source
from firesteel.engine.files import FileRows, by_place
from firesteel.plan.expr import Unsupported
from firesteel.plan.relation import Relation, Scan
from firesteel.plan.rules import IN_STAGES, optimise
from firesteel.plan.rules.estimates import Estimates
from firesteel.plan.rules.facts import Facts
from firesteel.sql.plans.catalyst import Catalyst
from firesteel.sql.reader import Reader
from firesteel.task.program import FileSource


@dataclass(frozen=True, slots=True)
class TakenOver:
    """``relation``: the DataFrame's rows; ``columns``: those of the relation that are the DataFrame's, in order; ``left``: what of it Spark
    computes all the same, with the reasons."""

    relation: Relation
    columns: list[str]
    left: list[str]
    schema: pa.Schema
    _steps: Steps

    def step(self, place: str) -> StreamNode:
        """The last of the steps that compute it. Raises Unsupported. ``place``: where the user asked."""
        facts = replace(Facts.of_files(cache(_files), self._steps.names), count=cache(_count), values=cache(_values))
        relation, rules = optimise(self.relation, facts, IN_STAGES)
        rows = self._steps.guessing(Estimates(facts).rows).rows(relation)
        named = dict(zip(by_place(self.schema), self.columns, strict=True))  # a column may be there under several names
        items = ", ".join(f"{column} AS {name}" for name, column in named.items())
        columns = {name: rows.columns[column] for name, column in named.items()}
        return replace(rows.selecting(items, columns, "select").step(self.schema, place), rules=rules)


def take_over(
    catalyst: Catalyst,
    schema: pa.Schema,
    streams: Mapping[int, StreamEdge] | None = None,
    *,
    whole: bool = False,
    near: bool = False,
) -> TakenOver:
    """``schema``: the names and types of the rows for users. ``streams``: of the environment, by the number of the RDD that stands for them in the plan.
    ``whole``, ``near``: as of :class:`Reader`.

    Raises Unsupported where nothing would be gained (none of its relations can be read without Spark), or where a part with a stream of
    ours would be left to Spark.
    """
    if len(set(schema.names)) < len(schema.names) or not schema.names or "" in schema.names:
        raise Unsupported("columns without names of their own")
    steps = Steps()
    reader = Reader(catalyst, steps.rows, streams or {}, whole, near)
    relation = reader.relation(catalyst.root)
    if not reader.taken and not (whole and reader.handed and catalyst.gains):
        only = "it only passes on rows that Spark has" if whole and reader.handed else "it reads nothing"
        raise Unsupported("; ".join(reader.left) or only)
    columns = [attribute.id for attribute in catalyst.output_of(catalyst.root)]
    return TakenOver(relation, columns, reader.left, schema, steps)


def _files(scan: Scan) -> Sequence[FileRows] | None:
    """The parts of files that stages read, without row groups that their conditions leave out."""
    source: Source = scan.source
    return (
        source.files([one.payload for one in source.list_splits(1 << 62)]) if isinstance(source, FileSource) else None
    )


def _count(scan: Scan) -> int | None:
    return scan.source.count_rows() if isinstance(scan.source, FileSource) else None


def _values(scan: Scan, name: str) -> int | None:
    return scan.source.count_values(scan.names[name]) if isinstance(scan.source, FileSource) else None

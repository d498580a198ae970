"""Columns and filters pushed into a source that can read less (``Source.push_down``), with the very same rows as result.

Looked at is the run of projections and filters that alone read a source. A filter goes down as long as the columns it
reads come unchanged from the source and nothing before it computes. Filters were applied one after another, each to the
rows the one before it left; in the source they are applied at once: only the first may be one that can raise on a row.
Columns that nothing behind the run needs are neither read nor computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import push_down as source_push_down
from firesteel.expressions import cannot_fail, passed_columns, referenced_columns
from firesteel.graph.plan import Rewrite
from firesteel.graph.stream_graph import ChainedStep, SourceStep, StepConfig, StreamEdge, StreamNode
from firesteel.operators.relational import Project

Rewrites = dict[StreamNode, Rewrite]
Readers = dict[StreamNode, list[tuple[StreamNode, StreamEdge]]]


def push_down(nodes: Iterable[StreamNode]) -> Rewrites:
    """What to put in the place of which step. ``nodes``: all steps of the job."""
    nodes = list(nodes)
    readers: Readers = {}
    for node in nodes:
        for edge in (*node.inputs, *(e for _, e in node.sides)):
            readers.setdefault(edge.source, []).append((node, edge))
    rewrites: Rewrites = {}
    for node in nodes:
        if isinstance(node.work, SourceStep) and hasattr(node.work.source, "push_down"):
            run = _run(node, readers)
            rewrites.update(_rewrite_run(node, run, _read_of(run[-1] if run else node, readers)))
    return rewrites


def _run(source: StreamNode, readers: Readers) -> list[StreamNode]:
    """The projections and filters behind the source that have one reader each."""
    run: list[StreamNode] = []
    node = source
    while len(readers.get(node, ())) == 1:
        node, edge = readers[node][0]
        work = node.work
        if not isinstance(work, ChainedStep) or (work.projection is None and work.filter is None):
            break
        if edge.ship is not None:
            break
        run.append(node)
    return run


def _read_of(node: StreamNode, readers: Readers) -> set[str]:
    """The columns of the step that its readers look at."""
    read: set[str] = set()
    for reader, edge in readers.get(node, ()):
        work = reader.work
        if isinstance(work, ChainedStep) and work.projection is not None:
            read |= referenced_columns([expression for _, expression in work.projection], node.schema)
        else:
            read |= set(node.schema.names if edge.reads is None else edge.reads)
    return read


def _rewrite_run(source: StreamNode, run: list[StreamNode], read: set[str]) -> Rewrites:
    filters = _pushable_filters(source, run)
    pushed = set(filters)
    kept = [node for node in run if node not in pushed]
    needed = _needed_columns(kept, read)
    if not needed[0]:  # rows without columns have no number
        needed[0].add(narrowest(source.schema))
    columns = None if needed[0] == set(source.schema.names) else [n for n in source.schema.names if n in needed[0]]
    if columns is None and not filters:
        return {}
    expression: Any = reduce(and_, (f.work.filter for f in filters)) if filters else None  # type: ignore[union-attr]
    assert isinstance(source.work, SourceStep)
    smaller = source_push_down(source.work.source, columns, expression)
    assert smaller is not None
    rewrites: Rewrites = {source: Rewrite(SourceStep(smaller), smaller.schema)}
    schema = smaller.schema
    for node in run:
        if node in pushed:
            rewrites[node] = Rewrite(None, schema)
            continue
        rewrites[node] = _narrowed(node, schema, needed[kept.index(node) + 1])
        schema = rewrites[node].schema
    return rewrites


def _pushable_filters(source: StreamNode, run: list[StreamNode]) -> list[StreamNode]:
    """The filters that can go into the source. Stops at the first that cannot: order matters where rows can raise."""
    filters: list[StreamNode] = []
    unchanged = {name: name for name in source.schema.names}
    for node in run:
        work, before = node.work, node.inputs[0].source.schema
        assert isinstance(work, ChainedStep)
        if work.projection is not None:
            passed = passed_columns(work.projection, before)
            if len(passed) != len(work.projection):
                break
            unchanged = {name: name for name, came in passed.items() if unchanged.get(came) == name == came}
            continue
        assert work.filter is not None
        reads = referenced_columns([work.filter], before)
        same = all(unchanged.get(name) == name for name in reads)
        if not same or (filters and not cannot_fail(work.filter)) or node.config != StepConfig():
            break
        filters.append(node)
    return filters


def _needed_columns(kept: list[StreamNode], read: set[str]) -> list[set[str]]:
    """Columns needed behind the source and behind each step of ``kept``, found from the end backwards."""
    needed = [read]
    for node in reversed(kept):
        work, before = node.work, node.inputs[0].source.schema
        assert isinstance(work, ChainedStep)
        if work.projection is not None:
            reads = referenced_columns([e for name, e in work.projection if name in needed[0]], before)
        else:
            assert work.filter is not None
            reads = needed[0] | referenced_columns([work.filter], before)
        needed.insert(0, reads)
    return needed


def narrowest(schema: pa.Schema) -> str:
    """The column that is cheapest to read."""

    def width(field: pa.Field) -> int:
        try:
            return field.type.bit_width
        except ValueError:
            return 1 << 20

    return min(schema, key=width).name


def _narrowed(node: StreamNode, before: pa.Schema, needed: set[str]) -> Rewrite:
    """The step when only these of its columns are needed."""
    work = node.work
    assert isinstance(work, ChainedStep)
    if work.projection is None:
        return Rewrite(work, before)
    columns: tuple[tuple[str, pc.Expression], ...] = tuple(c for c in work.projection if c[0] in needed)
    schema = pa.schema([node.schema.field(name) for name, _ in columns], node.schema.metadata)
    operator = Project(work.operator.name, columns, schema)
    return Rewrite(replace(work, operator=operator, projection=columns, passed=passed_columns(columns, before)), schema)

"""Columns and filters pushed into a source that can read less (``Source.push_down``), with the very same rows as result.

Looked at is the run of projections and filters that alone read a source. A filter goes down as long as the columns it
reads come unchanged from the source and nothing before it computes. Filters were applied one after another, each to the
rows the one before it left; in the source they are applied at once: only the first may be one that can raise on a row.
Columns that nothing behind the run needs are neither read nor computed.

Of a source that several branches read, rows that none of them lets through are not read: it is filtered by any_of what each
branch filters by first, and every filter stays where it is. These are only such as cannot raise and are the same each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.compile.below_unions import only_expressions
from firesteel.compile.plan import Rewrite
from firesteel.compile.stream_graph import ChainedStep, SourceStep, StepConfig, StreamEdge, StreamNode, UnionStep, width
from firesteel.connectors.base import push_down as source_push_down
from firesteel.task.expressions import all_of, any_of, cannot_fail, passed_columns, referenced_columns
from firesteel.task.operators.relational import Project

_MOST_BRANCHES = 16
"""A source that more branches filter in different ways is not filtered: each row would be looked at so many times more."""
Rewrites = dict[StreamNode, Rewrite]
Readers = dict[StreamNode, list[tuple[StreamNode, StreamEdge]]]


def push_down(nodes: Iterable[StreamNode]) -> Rewrites:
    """Replacements by step. ``nodes``: all steps of the job."""
    nodes = list(nodes)
    readers: Readers = {}
    for node in nodes:
        for edge in (*node.inputs, *(e for _, e in node.sides)):
            readers.setdefault(edge.source, []).append((node, edge))
    rewrites: Rewrites = {}
    for node in nodes:
        if isinstance(node.work, SourceStep) and hasattr(node.work.source, "push_down"):
            rewrites.update(_rewrite(node, readers))
    return rewrites


def _runs(source: StreamNode, readers: Readers) -> list[list[StreamNode]]:
    """Per reader of the source that is a projection or a filter: it and those behind it that have one reader each."""
    runs: list[list[StreamNode]] = []
    for node, edge in readers.get(source, ()):
        run: list[StreamNode] = []
        following = [(node, edge)]
        while len(following) == 1 and only_expressions(following[0][0]) and following[0][1].ship is None:
            run.append(following[0][0])
            following = readers.get(run[-1], [])
        if run:
            runs.append(run)
    return runs


def _wanted(node: StreamNode, readers: Readers) -> pc.Expression | None:
    """A condition that is true of every row of the step that a reader lets through; None: nothing is known."""
    found: list[pc.Expression] = []
    for reader, edge in readers.get(node, ()):
        wanted = None if edge.ship is not None else _let_through(reader, readers)
        if wanted is None:
            return None
        found.append(wanted)
    distinct = {str(expression): expression for expression in found}
    return any_of(list(distinct.values())) if 0 < len(distinct) <= _MOST_BRANCHES else None


def _let_through(reader: StreamNode, readers: Readers) -> pc.Expression | None:
    """Of a reader that looks at its rows by nothing but filters first: what it lets through, by the names of its input."""
    conditions: list[pc.Expression] = []
    node, work = reader, reader.work
    unchanged = {name: name for name in node.inputs[0].source.schema.names}
    while isinstance(work, ChainedStep | UnionStep):
        if isinstance(work, UnionStep):
            pass
        elif work.projection is not None and work.passed is not None and len(work.passed) == len(work.projection):
            unchanged = _unchanged(unchanged, work.passed)
        elif work.selection is not None and not work.selection.raises:
            reads = {name for hint in work.selection.hints for name in referenced_columns([hint], node.schema)}
            if all(unchanged.get(name) == name for name in reads):
                conditions += work.selection.hints
            unchanged = _unchanged(unchanged, work.selection.passed)
        elif work.filter is not None and cannot_fail(work.filter, node.inputs[0].source.schema):
            reads = referenced_columns([work.filter], node.inputs[0].source.schema)
            if all(unchanged.get(name) == name for name in reads):
                conditions.append(work.filter)
        else:
            break
        following = readers.get(node, ())
        if len(following) != 1 or following[0][1].ship is not None:
            break
        node = following[0][0]
        work = node.work
    return all_of(conditions) if conditions else None


def _read_of(node: StreamNode, readers: Readers, besides: Iterable[StreamNode] = ()) -> set[str]:
    """The columns of the step that its readers look at; ``besides``: those of them that are looked at elsewhere."""
    read: set[str] = set()
    left_out = set(besides)
    for reader, edge in readers.get(node, ()):
        work = reader.work
        if reader in left_out:
            continue
        if isinstance(work, ChainedStep) and work.projection is not None:
            read |= referenced_columns([expression for _, expression in work.projection], node.schema)
        elif isinstance(work, ChainedStep) and work.selection is not None:
            read |= work.selection.reads(set(reader.schema.names))
        else:
            read |= set(node.schema.names if edge.reads is None else edge.reads)
    return read


def _rewrite(source: StreamNode, readers: Readers) -> Rewrites:
    runs = _runs(source, readers)
    alone = len(readers.get(source, ())) == 1 and bool(runs)
    filters, hints = _pushable_filters(source, runs[0]) if alone else ([], [])
    pushed = set(filters)
    kept = [[node for node in run if node not in pushed] for run in runs]
    needed = [_needed_columns(k, _read_of(run[-1], readers)) for k, run in zip(kept, runs, strict=True)]
    read = _read_of(source, readers, (run[0] for run in runs)).union(*(columns[0] for columns in needed))
    if not read:  # rows without columns have no number
        read.add(narrowest(source.schema))
    columns = None if read == set(source.schema.names) else [n for n in source.schema.names if n in read]
    expression = _condition_of(filters) if alone else _wanted(source, readers)
    if columns is None and expression is None and not hints:
        return {}
    assert isinstance(source.work, SourceStep)
    whole: Any = source.work.source
    if hints and hasattr(whole, "hinted"):
        whole = whole.hinted(hints)
    elif hints:
        expression = all_of([*hints, *([] if expression is None else [expression])])
    smaller = source_push_down(whole, columns, expression)
    assert smaller is not None
    rewrites: Rewrites = {source: Rewrite(SourceStep(smaller), smaller.schema)}
    for run, wanted in zip(runs, needed, strict=True):
        schema = smaller.schema
        behind = iter(wanted[1:])
        for node in run:
            rewrites[node] = Rewrite(None, schema) if node in pushed else _narrowed(node, schema, next(behind))
            schema = rewrites[node].schema
        assert next(behind, None) is None, "each step that stays has its columns"
    return rewrites


def _condition_of(filters: list[StreamNode]) -> pc.Expression | None:
    """All conditions of these filters in one; None: there is no filter."""
    return all_of([f.work.filter for f in filters]) if filters else None  # type: ignore[union-attr]


def _pushable_filters(source: StreamNode, run: list[StreamNode]) -> tuple[list[StreamNode], list[pc.Expression]]:
    """The filters that can go into the source, and conditions of those by the engine, which stay where they are. Stops at the first that
    cannot: order matters where rows can raise."""
    filters: list[StreamNode] = []
    hints: list[pc.Expression] = []
    stay = risky = False  # some stay where they are; the first may raise
    unchanged = {name: name for name in source.schema.names}
    for node in run:
        work, before = node.work, node.inputs[0].source.schema
        assert isinstance(work, ChainedStep)
        if work.selection is not None:
            if node.config != StepConfig():
                break
            for hint in work.selection.hints:
                if not risky and all(unchanged.get(name) == name for name in referenced_columns([hint], before)):
                    hints.append(hint)
            if work.selection.raises:
                break
            stay |= work.selection.where is not None
            unchanged = _unchanged(unchanged, work.selection.passed)
            continue
        if work.projection is not None:
            passed = passed_columns(work.projection, before)
            if len(passed) != len(work.projection):
                break
            unchanged = _unchanged(unchanged, passed)
            continue
        assert work.filter is not None
        reads = referenced_columns([work.filter], before)
        same = all(unchanged.get(name) == name for name in reads)
        if not same or ((filters or stay) and not cannot_fail(work.filter, before)) or node.config != StepConfig():
            break
        risky |= not cannot_fail(work.filter, before)
        filters.append(node)
    return filters, hints


def _unchanged(before: dict[str, str], passed: Mapping[str, str]) -> dict[str, str]:
    """The columns that a step hands on under their names, of those that came so from the source."""
    return {name: name for name, came in passed.items() if before.get(came) == name == came}


def _needed_columns(kept: list[StreamNode], read: set[str]) -> list[set[str]]:
    """Columns needed behind the source and behind each step of ``kept``, found from the end backwards."""
    needed = [read]
    for node in reversed(kept):
        work, before = node.work, node.inputs[0].source.schema
        assert isinstance(work, ChainedStep)
        if work.selection is not None:
            reads = work.selection.reads(needed[0])
        elif work.projection is not None:
            reads = referenced_columns([e for name, e in work.projection if name in needed[0]], before)
        else:
            assert work.filter is not None
            reads = needed[0] | referenced_columns([work.filter], before)
        needed.insert(0, reads)
    return needed


def narrowest(schema: pa.Schema) -> str:
    """The column that is cheapest to read."""
    return min(schema, key=width).name


def _narrowed(node: StreamNode, before: pa.Schema, needed: set[str]) -> Rewrite:
    """The step when only these of its columns are needed."""
    work = node.work
    assert isinstance(work, ChainedStep)
    if work.selection is not None:
        step = work.selection.step(needed, before)
        assert step.selection is not None
        return Rewrite(step, step.selection.schema)
    if work.projection is None:
        return Rewrite(work, before)
    columns: tuple[tuple[str, pc.Expression], ...] = tuple(c for c in work.projection if c[0] in needed)
    schema = pa.schema([node.schema.field(name) for name, _ in columns], node.schema.metadata)
    operator = Project(work.operator.name, columns, schema)
    return Rewrite(replace(work, operator=operator, projection=columns, passed=passed_columns(columns, before)), schema)

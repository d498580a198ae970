"""All that a job reads and writes: data sets outside of it, as its connectors name them, and which columns come from which.

Columns are followed through expressions and operators whose work is known, and through steps that pass them on. Of a function's columns
nothing is known, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from firesteel.compile.stream_graph import (
    ChainedStep,
    CollectStep,
    KeyedStep,
    SinkStep,
    SortStep,
    SourceStep,
    StreamEdge,
    StreamNode,
    UnionStep,
)
from firesteel.errors import UsageError
from firesteel.model.external import Columns, External, ExternalDataset, Origin
from firesteel.task.expressions import plain_column, referenced_columns
from firesteel.task.operators.groups import SqlGroups
from firesteel.task.operators.join import BroadcastJoin, HashJoin

Origins = frozenset[Origin]
NOTHING: Origins = frozenset()
_RANKS = {"IDENTITY": 0, "TRANSFORMATION": 1, "AGGREGATION": 2}


@dataclass(frozen=True, slots=True)
class StepColumns:
    """``direct``: by column; one that is not there, nothing is known of. ``indirect``: columns that say which rows there are."""

    direct: dict[str, Origins] = field(default_factory=dict[str, Origins])
    indirect: Origins = NOTHING

    def of(self, names: Iterable[str], how: str) -> Origins | None:
        """The origins of a column that is made of these; None: not known of all of them."""
        names = list(names)
        if any(name not in self.direct for name in names):
            return None
        return frozenset(_by(origin, how) for name in names for origin in self.direct[name])

    def deciding(self, names: Iterable[str], how: str) -> Origins:
        """Origins of columns that decide on rows, as far as they are known."""
        return frozenset(replace(o, how=how) for name in names for o in self.direct.get(name, NOTHING))


def step_columns(nodes: Iterable[StreamNode], sources: Mapping[StreamNode, int]) -> dict[StreamNode, StepColumns]:
    """``nodes``: every step behind its inputs; ``sources``: those whose columns are told, with their vertices."""
    known: dict[StreamNode, StepColumns] = {}
    for node in nodes:
        known[node] = _of(node, [_read(edge, known) for edge in node.inputs], known, sources)
    return known


def _read(edge: StreamEdge, known: Mapping[StreamNode, StepColumns]) -> StepColumns:
    """Rows that a function could not do are not the step's."""
    return StepColumns() if edge.routed else known[edge.source]


def _of(  # noqa: PLR0911 - one for each kind of step
    node: StreamNode,
    inputs: list[StepColumns],
    known: Mapping[StreamNode, StepColumns],
    sources: Mapping[StreamNode, int],
) -> StepColumns:
    match node.work:
        case SourceStep():
            return _source(node, sources.get(node))
        case ChainedStep(operator=BroadcastJoin(join=join)):
            return _joined(join, [*inputs, *(_read(edge, known) for _, edge in node.sides)])
        case ChainedStep() as work:
            return _chained(work, node, inputs[0])
        case KeyedStep() as work:
            return _keyed(work, node, inputs)
        case SortStep():
            order = node.inputs[0].order
            by = () if order is None else order.names
            return StepColumns(inputs[0].direct, inputs[0].indirect | inputs[0].deciding(by, "SORT"))
        case UnionStep():
            return _united(inputs)
        case SinkStep() | CollectStep():
            return inputs[0]
        case _:
            return StepColumns()


def _source(node: StreamNode, vertex: int | None) -> StepColumns:
    """Of a source that no data set is told of, columns come of nothing that could be named."""
    if vertex is None:
        return StepColumns(dict.fromkeys(node.schema.names, NOTHING))
    return StepColumns({name: frozenset({Origin(vertex, name, "IDENTITY")}) for name in node.schema.names})


def _chained(work: ChainedStep, node: StreamNode, before: StepColumns) -> StepColumns:
    schema = node.inputs[0].source.schema
    if work.projection is not None:
        direct: dict[str, Origins | None] = {}
        for name, expression in work.projection:
            plain = plain_column(expression, schema)
            how = "TRANSFORMATION" if plain is None else "IDENTITY"
            reads = referenced_columns([expression], schema) if plain is None else [plain]
            direct[name] = before.of(reads, how)
        return StepColumns(_known(direct), before.indirect)
    if work.selection is not None:
        passed = work.selection.passed
        hows = {name: "IDENTITY" if name in passed else "TRANSFORMATION" for name in work.selection.items}
        direct = {name: before.of(reads, hows[name]) for name, (_, reads) in work.selection.items.items()}
        where = work.selection.where
        chosen = NOTHING if where is None else before.deciding(where[1], "FILTER")
        return StepColumns(_known(direct), before.indirect | chosen)
    passed = StepColumns(
        _known({name: before.of([came], "IDENTITY") for name, came in (work.passed or {}).items()}), before.indirect
    )
    if work.filter is None:
        return passed
    return replace(
        passed, indirect=before.indirect | before.deciding(referenced_columns([work.filter], schema), "FILTER")
    )


def _keyed(work: KeyedStep, node: StreamNode, inputs: list[StepColumns]) -> StepColumns:
    operator: Any = work.direct
    if work.made is not None:
        is_window = work.ordered_by is not None
        return _windowed(work, inputs[0]) if is_window else _aggregated(work.keys[0], work.made, inputs[0])
    match operator:
        case SqlGroups() if len(inputs) == 2:
            direct = {**inputs[1].direct, **inputs[0].direct}
            return StepColumns(direct, inputs[0].indirect | inputs[1].indirect)
        case SqlGroups():  # the row that is kept is found by all columns
            before, keys = inputs[0], work.keys[0]
            by = before.deciding(keys, "GROUP_BY")
            if set(keys) != set(node.schema.names):
                by |= before.deciding(node.schema.names, "SORT")
            return StepColumns(before.direct, before.indirect | by)
        case HashJoin():
            return _joined(operator, inputs)
        case _ if len(inputs) == 1:
            kept = dict(zip(work.kept or (), work.keys[0], strict=False))
            before = inputs[0]
            keys = before.deciding(work.keys[0], "GROUP_BY")
            return StepColumns(
                _known({name: before.of([key], "IDENTITY") for name, key in kept.items()}), before.indirect | keys
            )
        case _:
            return StepColumns({}, frozenset().union(*(before.indirect for before in inputs)))


def _aggregated(keys: Sequence[str], made: Mapping[str, tuple[str, ...]], before: StepColumns) -> StepColumns:
    direct = {key: before.of([key], "IDENTITY") for key in keys}
    direct |= {output: before.of(reads, "AGGREGATION") for output, reads in made.items()}
    return StepColumns(_known(direct), before.indirect | before.deciding(keys, "GROUP_BY"))


def _joined(join: HashJoin, inputs: Sequence[StepColumns]) -> StepColumns:
    """As ``join_schema`` names what comes out: the left columns, and the right ones that are no keys."""
    left, right = inputs
    outer = join.how in ("right", "full")  # a key is the right side's, where there is no left row
    direct: dict[str, Origins | None] = {}
    pairs = dict(zip(join.left_keys, join.right_keys, strict=True))
    names = join.schema.names
    for name in join.left_schema.names:
        found = left.of([name], "IDENTITY")
        other = right.of([pairs[name]], "IDENTITY") if outer and name in pairs else NOTHING
        direct[name] = None if found is None or other is None else found | other
    rest = [item.name for item in join.payload]
    for name, came in zip(names[len(join.left_schema.names) :], rest, strict=False):
        direct[name] = right.of([came], "IDENTITY")
    by = left.deciding([a for a, _ in join.compared], "JOIN") | right.deciding([b for _, b in join.compared], "JOIN")
    return StepColumns(_known(direct), left.indirect | right.indirect | by)


def _windowed(work: KeyedStep, before: StepColumns) -> StepColumns:
    made = {output: before.of(reads, "TRANSFORMATION") for output, reads in (work.made or {}).items()}
    by = before.deciding([*work.keys[0], *(work.ordered_by or ())], "WINDOW")
    return StepColumns({**before.direct, **_known(made)}, before.indirect | by)


def _united(inputs: Sequence[StepColumns]) -> StepColumns:
    """A column is known if it is of every input."""
    shared = set.intersection(*(set(before.direct) for before in inputs))
    direct = {
        name: frozenset().union(*(before.direct[name] for before in inputs))
        for name in inputs[0].direct
        if name in shared
    }
    return StepColumns(direct, frozenset().union(*(before.indirect for before in inputs)))


def _known(direct: Mapping[str, Origins | None]) -> dict[str, Origins]:
    return {name: origins for name, origins in direct.items() if origins is not None}


def _by(origin: Origin, how: str) -> Origin:
    """The origin, with more done to it: once aggregated it stays so."""
    return origin if _RANKS[origin.how] >= _RANKS[how] else replace(origin, how=how)


Placed = Iterable[tuple[StreamNode, Any, int]]
"""Steps, their connectors, and the vertices that they are in."""


def external(sources: Placed, sinks: Placed, nodes: Sequence[StreamNode] | None) -> External:
    """``nodes``: all steps, each behind its inputs, where columns are wanted too; else None.

    Raises UsageError for a connector of the user's whose ``datasets()`` gives something else.
    """
    places = list(sources)
    inputs = [
        ExternalDataset(vertex, *name, columns=_columns(node.schema) if nodes is not None else ())
        for node, source, vertex in places
        for name in _names(source, node)
    ]
    told = {dataset.vertex for dataset in inputs}
    known: Mapping[StreamNode, StepColumns] = {}
    if nodes is not None:
        known = step_columns(nodes, {node: vertex for node, _, vertex in places if vertex in told})
    outputs = [
        _output(ExternalDataset(vertex, *name, counted=getattr(sink, "writes_all_rows", True)), node, known)
        for node, sink, vertex in sinks
        for name in _names(sink, node)
    ]
    return External(tuple(inputs), tuple(outputs))


def _output(dataset: ExternalDataset, node: StreamNode, known: Mapping[StreamNode, StepColumns]) -> ExternalDataset:
    if node not in known:
        return dataset
    columns = known[node]
    origins = {name: tuple(sorted(found)) for name, found in columns.direct.items() if found}
    return replace(
        dataset,
        columns=_columns(node.schema),
        origins=origins,
        decided_by=tuple(sorted(columns.indirect)),
    )


def _columns(schema: pa.Schema) -> Columns:
    return tuple((field.name, str(field.type)) for field in schema)


def _names(connector: Any, node: StreamNode) -> list[tuple[str, str]]:
    """Of a connector that does not tell: none."""
    tell = getattr(connector, "datasets", None)
    if not callable(tell):
        return []
    told: Any = tell()
    names: list[Any] = list(told) if isinstance(told, Iterable) else [told]
    if not all(map(_is_name, names)):
        raise UsageError(
            f"datasets() of {node} gave {told!r}.",
            hint='Let it return pairs of texts, a namespace and a name: [("postgres://host:5432", "db.table")].',
        )
    return list(dict.fromkeys(names))


def _is_name(name: Any) -> bool:
    return isinstance(name, tuple) and len(name) == 2 and all(isinstance(part, str) and part for part in name)

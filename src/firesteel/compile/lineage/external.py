"""The data sets outside of a job, as its connectors name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from firesteel.compile.lineage.columns import StepColumns, step_columns
from firesteel.compile.stream_graph import StreamNode
from firesteel.errors import UsageError
from firesteel.model.external import Columns, External, ExternalDataset

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

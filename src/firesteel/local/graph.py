"""A pipeline over other rows than its sources': those that a test gives, or only the first ones. The sources of such rows are here, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.compile.caching import over
from firesteel.compile.stream_graph import DataFrameStep, SourceStep, StreamNode, reachable
from firesteel.connectors.base import Source, Split
from firesteel.connectors.memory import TableSource, as_table, table_from_collection, table_from_pandas
from firesteel.errors import UsageError
from firesteel.task.program import TaskContext


def with_first_rows(ends: Sequence[StreamNode], rows: int | None) -> list[StreamNode]:
    """The same ends, each source giving at most so many rows; None: all."""
    if rows is None:
        return list(ends)

    def shortened(node: StreamNode) -> Source | None:
        return FirstRows(node.work.source, rows) if isinstance(node.work, SourceStep) else None

    return _with_sources(ends, shortened)


def with_rows(end: StreamNode, rows: Mapping[str, Any]) -> StreamNode:
    """The same end, these steps giving these rows. ``rows``: by name or uid of a step, most often a source; "": of the only source that is not
    named.

    Raises UsageError for a name that no step has, or several; for rows that do not fit; for a source that is left without.
    """
    nodes = reachable([end])
    named = {name: _step(name, nodes) for name in rows if name}
    steps = {name: named[name] if name else _only_source(nodes, set(named.values())) for name in rows}
    tables = {step: _table(rows[name], step, name) for name, step in steps.items()}
    needed = reachable([end], lambda node: node not in tables)
    for step in tables:
        if step not in needed:
            raise UsageError(
                f"The rows for {step} are not read: those for a step behind it are.", hint="Leave them out."
            )
    without = [node for node in needed if _is_source(node) and node not in tables and not _is_made_here(node)]
    if without:
        raise UsageError(
            f"No rows are given for {_several(without)}, and a test reads nothing from outside.",
            hint=f"Name the source, and give it rows: {_example(without[0])}.",
        )
    return _with_sources([end], lambda node: GivenRows(node.name, tables[node]) if node in tables else None)[0]


def refuse_spark(ends: Sequence[StreamNode]) -> None:
    """Raises UsageError for a step whose rows Spark would compute."""
    for node in reachable(ends):
        if isinstance(node.work, DataFrameStep):
            raise UsageError(
                f"The {node} is computed by Spark, and a local run does without.",
                hint="Name the step, and give it rows with test_with; or read files with env.read_parquet and its likes.",
            )


def _only_source(nodes: Sequence[StreamNode], named: Set[StreamNode]) -> StreamNode:
    sources = [node for node in nodes if _is_source(node) and node not in named]
    outside = [node for node in sources if not _is_made_here(node)]
    found = outside if len(outside) == 1 else sources
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError("All sources of the pipeline are named, and there are rows for one more.")
    raise UsageError(
        f"The pipeline reads several sources: {_several(sources)}.",
        hint=f"Name them, and give rows by name: {_example(found[0])}.",
    )


def _step(name: str, nodes: Sequence[StreamNode]) -> StreamNode:
    """The step of this name or uid."""
    found = [node for node in nodes if name in (node.config.name, node.config.uid)]
    if len(found) != 1:
        who = "No step" if not found else "More than one step"
        raise UsageError(
            f"{who} of the pipeline is named '{name}'. Its sources are {_several(filter(_is_source, nodes))}.",
            hint=f"Name a step: env.read_parquet(...).name('{name}').",
        )
    return found[0]


def _table(rows: Any, step: StreamNode, name: str) -> pa.Table:
    """The rows in the step's schema."""
    try:
        return table_of(rows, step.schema)
    except UsageError as error:
        whose = f"'{name}'" if name else str(step)
        raise UsageError(f"The rows for {whose}: {error.message}", hint=error.hint) from None


def _with_sources(ends: Sequence[StreamNode], source_of: Callable[[StreamNode], Source | None]) -> list[StreamNode]:
    """The same ends over sources in the place of the steps for which there are some."""
    sources: dict[StreamNode, Source] = {}

    def needs_inputs(node: StreamNode) -> bool:
        source = source_of(node)
        if source is not None:
            sources[node] = source
        return source is None

    copies: dict[StreamNode, StreamNode] = {}
    for node in reachable(ends, needs_inputs):
        if node in sources:
            work = SourceStep(sources[node])
            copies[node] = replace(node, work=work, inputs=(), sides=(), instead=None, left_to_spark=())
        else:
            copies[node] = over(node, copies)
    return [copies[end] for end in ends]


def _is_source(node: StreamNode) -> bool:
    return isinstance(node.work, SourceStep | DataFrameStep)


def _is_made_here(node: StreamNode) -> bool:
    """Its rows come from the script itself (``from_collection`` and its likes)."""
    return isinstance(node.work, SourceStep) and isinstance(node.work.source, TableSource)


def _several(nodes: Iterable[StreamNode]) -> str:
    return ", ".join(map(str, nodes))


def _example(node: StreamNode) -> str:
    name = node.config.name or node.config.uid
    how = "" if name else "env.read_parquet(...).name('orders'), then "
    return f"{how}test_with({name if name and name.isidentifier() else 'orders'}=[{{...}}])"


_BATCH_ROWS = 1 << 16


class GivenRows:
    """The rows of a table, as one split."""

    supports_concurrent_execution_attempts = True

    def __init__(self, name: str, table: pa.Table) -> None:
        self.name = name
        self.schema: pa.Schema = table.schema
        self._table = table

    def list_splits(self, data_volume: int) -> list[Split]:
        return [Split(None, max(self._table.nbytes, 1), self.name)]

    def read(self, split: None, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches(_BATCH_ROWS)


class FirstRows:
    """The first rows of a source, in the order of its splits. Nothing is pushed into the source: they are its first ones as it is."""

    supports_concurrent_execution_attempts = True

    def __init__(self, source: Source, rows: int) -> None:
        self.name = source.name
        self.schema = source.schema
        self._source, self._rows = source, rows

    def list_splits(self, data_volume: int) -> list[Split]:
        """Returns one; the source's own are listed when it is read."""
        return [Split(data_volume, 1, self.name)]

    def read(self, split: int, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        left = self._rows
        for one in self._source.list_splits(split) if left else ():
            ctx.place = one.description
            for batch in self._source.read(one.payload, ctx):
                yield batch.slice(0, left)
                left -= batch.num_rows
                if left <= 0:
                    return


def table_of(rows: Any, schema: pa.Schema) -> pa.Table:
    """The rows (dicts, tuples, a table, a pandas frame) as a table of this schema. Raises UsageError for those that do not fit."""
    if hasattr(rows, "iloc"):
        table = table_from_pandas(rows, schema)
    elif isinstance(rows, pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__"):
        table = _cast(as_table(rows), schema)
    else:
        table = table_from_collection(rows, schema)
    for field, column in zip(schema, table.columns, strict=True):
        if column.null_count and not field.nullable:
            row = pc.index(column.is_null(), True).as_py()
            raise UsageError(f"column '{field.name}' is null in row {row}, and its schema says NOT NULL.")
    return table


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if set(table.column_names) != set(schema.names):
        raise UsageError(
            f"The table has the columns {', '.join(table.column_names)}, and the step {', '.join(schema.names)}."
        )
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(f"The table does not fit {schema.to_string(show_schema_metadata=False)!r}: {error}") from None

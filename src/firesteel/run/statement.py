"""A plan as one statement for the engine of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from firesteel.connectors.base import Source, Split
from firesteel.engine.files import FileRows, by_place, identifier, scan_of
from firesteel.plan.expr import Unsupported
from firesteel.plan.relation import BySpark, Leaf, Names, Relation, Scan, Values
from firesteel.plan.rules import Applied, optimise
from firesteel.plan.rules.facts import Facts
from firesteel.render.query import Query
from firesteel.run.reading import SPLIT_BYTES
from firesteel.task.program import FileSource

_WHOLE = 1 << 62
"""Bytes of a split: one is enough."""
_UNPRUNED = 1 << 30
"""Most plain bytes of a table whose row groups are not looked at here: the engine leaves out the same ones as it reads."""


@dataclass(frozen=True, slots=True)
class Statement:
    """``first``: queries that are to run before, each as a table of this name, in order. ``tables``: rows that the text names; ``held``: rows
    that it names and Spark hands over; ``sources``: what it names and the engine cannot read itself; ``files``: paths that it names. ``nbytes``: plain bytes of the columns that it reads; of
    tables above 1 GiB without the row groups that are left out."""

    text: str
    first: dict[str, str]
    tables: dict[str, pa.Table]
    sources: dict[str, tuple[Source, Sequence[Split]]]
    files: frozenset[str]
    nbytes: int
    rules: tuple[Applied, ...] = ()
    """What each did to the plan."""
    held: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict[str, Callable[[], pa.Table]])


_Rows = tuple[Sequence[Split], Sequence[FileRows] | None]
"""Of a source. No files: the engine cannot read them itself."""


def _rows_of(source: Source) -> _Rows:
    if isinstance(source, FileSource):
        whole: Source = source.without_hints()
        splits = whole.list_splits(_WHOLE)
        if sum(split.bytes for split in splits) > _UNPRUNED:
            splits = source.list_splits(_WHOLE)
        parts = source.files([split.payload for split in splits])
        if parts is not None:
            return splits, parts
    return source.list_splits(SPLIT_BYTES), None


def statement_of(relation: Relation, columns: list[str]) -> Statement:
    """The statement that gives these columns of a relation. Raises Unsupported where a stage has to compute some of it."""
    names, tables, held = Names(), dict[str, pa.Table](), dict[str, Callable[[], pa.Table]]()
    found: dict[Scan, _Rows] = {}
    sources = dict[str, tuple[Source, Sequence[Split]]]()
    files: set[str] = set()
    total = 0

    def table(rows: pa.Table) -> str:
        name = names.new("rows")
        tables[name] = rows
        return name

    def rows(scan: Scan) -> _Rows:
        if scan not in found:
            found[scan] = _rows_of(scan.source)
        return found[scan]

    def read(leaf: Leaf) -> str:
        nonlocal total
        if isinstance(leaf, Values):
            return table(leaf.rows)
        if isinstance(leaf, BySpark) and leaf.rows is not None:
            name = names.new("rows")
            held[name] = leaf.rows
            return name
        if not isinstance(leaf, Scan):
            raise Unsupported("Spark computes a part of it")
        source, (splits, parts) = leaf.source, rows(leaf)
        if not splits:
            return table(source.schema.empty_table().rename_columns(by_place(source.schema)))
        total += sum(split.bytes for split in splits)
        if parts is None:
            name = names.new("rows")
            sources[name] = source, splits
            return name
        files.update(part.path for part in parts)
        wanted = {name: f"c{source.schema.get_field_index(name)}" for name in leaf.names.values()}
        return f"({scan_of(parts, wanted)}) {names.new('scan')}"

    query = Query(read, names)
    items = ", ".join(f"{column} AS {identifier(str(i))}" for i, column in enumerate(columns))
    relation, rules = optimise(relation, Facts.of_files(lambda scan: rows(scan)[1], names))
    text = f"SELECT {items} FROM {query.rows(relation)}"
    first, text = query.statements(text)
    return Statement(text, first, tables, sources, frozenset(files), total, rules, held)

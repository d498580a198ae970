"""A plan as one statement for the engine of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from firesteel.connectors.base import Source, Split
from firesteel.engine.files import identifier, scan_of
from firesteel.plan.expr import Unsupported
from firesteel.plan.relation import Leaf, Names, Relation, Scan, Values
from firesteel.render.query import Query
from firesteel.run.reading import SPLIT_BYTES
from firesteel.task.program import FileSource

_WHOLE = 1 << 62
"""Bytes of a split: one is enough."""


@dataclass(frozen=True, slots=True)
class Statement:
    """``first``: queries that are to run before, each as a table of this name, in order. ``tables``: rows that the text names; ``sources``: what
    it names and the engine cannot read itself; ``files``: paths that it names. ``nbytes``: plain bytes of the columns that it reads, without
    the row groups that are left out."""

    text: str
    first: dict[str, str]
    tables: dict[str, pa.Table]
    sources: dict[str, tuple[Source, Sequence[Split]]]
    files: frozenset[str]
    nbytes: int


def statement_of(relation: Relation, columns: list[str]) -> Statement:
    """The statement that gives these columns of a relation. Raises Unsupported where a stage has to compute some of it."""
    names, tables = Names(), dict[str, pa.Table]()
    sources = dict[str, tuple[Source, Sequence[Split]]]()
    files: set[str] = set()
    total = 0

    def table(rows: pa.Table) -> str:
        name = names.new("rows")
        tables[name] = rows
        return name

    def read(leaf: Leaf) -> str:
        nonlocal total
        if isinstance(leaf, Values):
            return table(leaf.rows)
        if not isinstance(leaf, Scan):
            raise Unsupported("Spark computes a part of it")
        by_engine, source = isinstance(leaf.source, FileSource), leaf.source
        splits = source.list_splits(_WHOLE if by_engine else SPLIT_BYTES)
        parts = source.files([split.payload for split in splits]) if by_engine else None
        if by_engine and parts is None:
            splits = source.list_splits(SPLIT_BYTES)
        if not splits:
            return table(source.schema.empty_table())
        total += sum(split.bytes for split in splits)
        if parts is None:
            name = names.new("rows")
            sources[name] = source, splits
            return name
        files.update(part.path for part in parts)
        return f"({scan_of(parts, list(dict.fromkeys(leaf.names.values())))}) {names.new('scan')}"

    query = Query(read, names)
    items = ", ".join(f"{column} AS {identifier(str(i))}" for i, column in enumerate(columns))
    text = f"SELECT {items} FROM {query.rows(relation)}"
    return Statement(text, query.before, tables, sources, frozenset(files), total)

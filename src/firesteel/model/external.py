"""Data sets outside of a job: what it reads and writes, and which columns come from which. Names are OpenLineage's: a namespace, and a name in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Columns = tuple[tuple[str, str], ...]
"""Names and types."""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A column of what the source vertex ``source`` reads, and how another one comes of it: by IDENTITY, TRANSFORMATION or AGGREGATION;
    or all rows do: by FILTER, JOIN, GROUP_BY, SORT or WINDOW."""

    source: int
    column: str
    how: str


@dataclass(frozen=True, slots=True)
class ExternalDataset:
    """One that ``vertex`` reads or writes: ``("file", "/data/sales")``, ``("s3://bucket", "sales")``. ``columns``: empty where nobody asked for lineage."""

    vertex: int
    namespace: str
    name: str
    columns: Columns = ()
    origins: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict[str, "tuple[Origin, ...]"])
    """Of what is written, by column; of a column that is not here nothing is known."""
    decided_by: tuple[Origin, ...] = ()
    """Of what is written: columns that say which rows there are."""
    counted: bool = True
    """Of what is written: the rows that leave the vertex are those that are written."""


@dataclass(frozen=True, slots=True)
class External:
    """All that a job reads and writes, as far as its connectors tell."""

    inputs: tuple[ExternalDataset, ...] = ()
    outputs: tuple[ExternalDataset, ...] = ()

"""The columns of a relation that a query wants: of the files, and of the directories they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.relation import type_of_column
from firesteel.plan.types import checked


@dataclass(frozen=True, slots=True)
class DataColumn:
    """A column of the files. ``default``: files that lack it have a value all the same. ``exact``: its case matters."""

    name: str
    kind: Any
    default: bool
    exact: bool

    def is_called(self, name: str) -> bool:
        return name == self.name if self.exact else name.lower() == self.name.lower()


@dataclass(frozen=True, slots=True)
class Columns:
    """``wanted``: (id, type, name) of all. ``data``: those of the files; ``partitions``: by partition column of the relation its name and
    its type, empty if it is not wanted."""

    wanted: list[tuple[str, Any, str]]
    data: list[DataColumn]
    partitions: list[tuple[str, str]]


def columns_of(files: Expr, chosen: list[Expr], exact: bool) -> Columns:
    """Raises Unsupported for a type that is not taken over, and for columns of Spark's own, such as ``_metadata``."""
    parts = {_key(one["name"], exact): one for one in files["partitions"]["fields"]}
    data = {_key(name, exact): (name, default) for name, default in files["data"]}
    if len(data) < len(files["data"]) or len({one.id for one in chosen}) < len(chosen):
        raise Unsupported("columns that differ by case alone, or one twice")
    if len({one["name"].lower() for one in chosen}) < len(chosen):
        raise Unsupported("columns that differ by case alone")  # the engine takes them for one
    wanted: list[tuple[str, Any, str]] = []
    own: list[DataColumn] = []
    kinds: dict[str, str] = {}
    for one in chosen:
        kind, key = type_of_column(one), _key(one["name"], exact)
        if key in parts:
            name = parts[key]["name"]
            kinds[key] = checked(kind)
        elif key in data:
            name, default = data[key]
            own.append(DataColumn(name, kind, default, exact))
        else:
            raise Unsupported(f"the column {one['name']} is Spark's own")
        wanted.append((one.id, kind, name))
    return Columns(wanted, own, [(part["name"], kinds.get(key, "")) for key, part in parts.items()])


def _key(name: str, exact: bool) -> str:
    return name if exact else name.lower()

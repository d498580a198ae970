"""The order of rows: by which columns, up or down. How keys compare as bytes is said in ``results.order.ordering``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PRODUCER_BYTES = 4
"""Of the producer's number, where keys end with it."""


@dataclass(frozen=True, slots=True)
class OrderColumn:
    name: str
    ascending: bool = True


@dataclass(frozen=True, slots=True)
class Order:
    """Of rows. ``split_equal``: rows that are equal by all columns are ordered by their producer's number, too, so that
    they need not lie in one range; else they do."""

    columns: tuple[OrderColumn, ...]
    split_equal: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __str__(self) -> str:
        columns = ", ".join(f"{column.name} {'up' if column.ascending else 'down'}" for column in self.columns)
        return f"{columns}, then by producer" if self.split_equal else columns

    def places(self, schema: Any) -> list[int]:
        """Returns the positions of the columns. Raises ValueError for names that the schema does not have."""
        if missing := [name for name in self.names if name not in schema.names]:
            raise ValueError(f"Cannot order by {', '.join(missing)}: the columns are {', '.join(schema.names)}.")
        return [schema.names.index(name) for name in self.names]

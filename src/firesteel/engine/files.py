"""Files that the engine reads itself, as text of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

_OPTIONS = "hive_partitioning=false, can_have_nan=true"
"""Nothing is read out of paths; and statistics say nothing of NaN, which is greater than all else."""
_RANGES = 32
"""Of one branch. Each costs a comparison a row, and each branch opens the file again."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one local Parquet file. ``ranges``: (first, end) of the numbers they have in it; empty: all. ``nbytes``: plain ones, as
    estimated."""

    path: str
    ranges: tuple[tuple[int, int], ...]
    count: int
    nbytes: int


def scan_of(parts: Sequence[FileRows], columns: Mapping[str, str]) -> str:
    """A query on the rows of these parts. ``columns``: by name in the files that in the query. It names files whole where all their rows are wanted; of others it has a branch whose condition
    leaves out row groups by their numbers of rows."""
    chosen = (
        f"SELECT {', '.join(f'{identifier(there)} AS {name}' for there, name in columns.items())} FROM read_parquet"
    )
    whole = [literal(part.path) for part in parts if not part.ranges]
    texts = [f"{chosen}([{', '.join(whole)}], {_OPTIONS})"] if whole else []
    by_file: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        if part.ranges:
            by_file.setdefault(part.path, []).extend(part.ranges)
    for path, ranges in ((path, ranges) for path, given in by_file.items() for ranges in _merged(given)):
        for first in range(0, len(ranges), _RANGES):
            any_of = " OR ".join(
                f"(file_row_number >= {begin} AND file_row_number < {end})"
                for begin, end in ranges[first : first + _RANGES]
            )
            texts.append(f"{chosen}({literal(path)}, {_OPTIONS}, file_row_number=true) WHERE {any_of}")
    return " UNION ALL ".join(texts)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """In order, those that touch each other as one. A range that overlaps others is in a list of its own: its rows are wanted twice,
    because the file was listed twice."""
    lists: list[list[tuple[int, int]]] = []
    for begin, end in sorted(ranges):
        for one in lists:
            if one[-1][1] == begin:
                one[-1] = one[-1][0], end
                break
            if one[-1][1] < begin:
                one.append((begin, end))
                break
        else:
            lists.append([(begin, end)])
    return lists


def by_place(schema: pa.Schema) -> tuple[str, ...]:
    """Names of columns for a query, by their places: the engine takes names that differ by case for the same."""
    return tuple(f"c{place}" for place in range(len(schema)))


def placed(schema: pa.Schema) -> pa.Schema:
    """The same under these names."""
    return pa.schema([field.with_name(name) for field, name in zip(schema, by_place(schema), strict=True)])


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

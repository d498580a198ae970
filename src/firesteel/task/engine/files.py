"""Files that the engine reads itself, as text of a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from firesteel.task.program import FileRows

_OPTIONS = "hive_partitioning=false, can_have_nan=true"
"""Nothing is read out of paths; and statistics say nothing of NaN, which is greater than all else."""
_RANGES = 32
"""Of one branch. Each costs a comparison a row, and each branch opens the file again."""


def scan_of(parts: Sequence[FileRows], columns: Sequence[str]) -> str:
    """A query on the rows of these parts. It names files whole where all their rows are wanted; of others it has a branch whose condition
    leaves out row groups by their numbers of rows."""
    chosen = f"SELECT {', '.join(map(identifier, columns))} FROM read_parquet"
    whole = [literal(part.path) for part in parts if not part.ranges]
    texts = [f"{chosen}([{', '.join(whole)}], {_OPTIONS})"] if whole else []
    by_file: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        if part.ranges:
            by_file.setdefault(part.path, []).extend(part.ranges)
    for path, given in by_file.items():
        ranges = list(_merged(given))
        for first in range(0, len(ranges), _RANGES):
            any_of = " OR ".join(
                f"(file_row_number >= {begin} AND file_row_number < {end})"
                for begin, end in ranges[first : first + _RANGES]
            )
            texts.append(f"{chosen}({literal(path)}, {_OPTIONS}, file_row_number=true) WHERE {any_of}")
    return " UNION ALL ".join(texts)


def _merged(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """In order, those that touch each other as one."""
    last: tuple[int, int] | None = None
    for begin, end in sorted(ranges):
        if last is not None and last[1] == begin:
            last = last[0], end
            continue
        if last is not None:
            yield last
        last = begin, end
    if last is not None:
        yield last


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""What rules ask about a plan's sources."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from firesteel.plan.relation import Names, Scan


@dataclass(frozen=True, slots=True)
class Facts:
    """``rows_of``: equal for scans that read the same rows, whatever columns; None: not known. ``count``: of a scan's rows; None: not known.

    ``values``: at most so many a column of a scan has; None: not known. ``names``: of new columns.
    """

    rows_of: Callable[[Scan], Hashable | None] = lambda _: None
    count: Callable[[Scan], int | None] = lambda _: None
    values: Callable[[Scan, str], int | None] = lambda _, __: None
    names: Names = field(default_factory=Names)

    @classmethod
    def of_files(cls, files: Callable[[Scan], Sequence[Any] | None], names: Names) -> Self:
        """``files``: takes a scan, and gives the parts of files that it reads (``engine.files.FileRows``); None: not known."""

        def rows_of(scan: Scan) -> Hashable | None:
            parts = files(scan)
            return None if parts is None else tuple((part.path, part.ranges) for part in parts)

        def count(scan: Scan) -> int | None:
            parts = files(scan)
            return None if parts is None else sum(part.count for part in parts)

        return cls(rows_of, count, names=names)

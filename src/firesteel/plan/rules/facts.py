"""What rules ask about a plan's sources."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from firesteel.plan.relation import Names, Scan


@dataclass(frozen=True, slots=True)
class Facts:
    """``rows_of``: equal for scans that read the same rows, whatever columns; None: not known. ``count``: of a scan's rows; None: not known.

    ``names``: of new columns.
    """

    rows_of: Callable[[Scan], Hashable | None] = lambda _: None
    count: Callable[[Scan], int | None] = lambda _: None
    names: Names = field(default_factory=Names)

"""Questions that the pages ask: the server gives it, tests give it from records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from firesteel.errors import UsageError
from firesteel.humanize import format_count
from firesteel.ui.views.comparing import Comparison, WhatIf
from firesteel.ui.views.structs import (
    Attempt,
    Decision,
    Failure,
    Job,
    JobSummary,
    NodeUse,
    Page,
    Script,
    SlotUse,
    Stream,
    Subtask,
    Timeline,
    UnknownThing,
    Vertex,
)
from firesteel.view.svg import cut


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page: what stands in its path and in its query, as text. Of a parameter given twice the last counts."""

    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    root: str = ""
    """Before all addresses, without a slash at its end: where a proxy has the server under a path of its own."""

    @property
    def id(self) -> str:
        return self.path["id"]

    def number(self, name: str) -> int:
        """Of the path. Raises UnknownThing."""
        value = self.path[name]
        if not value.isdecimal() or len(value) > 9:
            raise UnknownThing(f"There is no {name} '{cut(value, 40)}': a {name} is a number.")
        return int(value)

    def text(self, name: str) -> str:
        """Of the query; empty: not given."""
        return self.query.get(name, "").strip()

    def integer(self, name: str, default: int | None = None, most: int = 1 << 31) -> int | None:
        """Of the query, from 0 to ``most``. Raises UsageError."""
        value = self.text(name)
        if not value:
            return default
        if not value.isdecimal() or len(value) > 12 or int(value) > most:
            raise UsageError(
                f"'{name}={cut(value, 40)}' makes no sense: it is a whole number from 0 to {format_count(most)}."
            )
        return int(value)

    def seconds(self, name: str) -> float | None:
        """Of the query; None: not given. Raises UsageError."""
        value = self.text(name)
        try:
            found = float(value) if value else None
        except ValueError:
            found = math.nan
        if found is not None and not math.isfinite(found):
            raise UsageError(f"'{name}={cut(value, 40)}' makes no sense: it is a number of seconds, as 12.5.")
        return found


class Source(Protocol):
    """Jobs and streams by id. All raise UnknownThing for an id, vertex or subtask that there is not,
    and UsageError for a value that makes no sense. ``offset`` and ``limit`` are those of the answer's Page."""

    def jobs(self, *, text: str, status: str, kind: str, sort: str, offset: int, limit: int) -> Page[JobSummary]:
        """``text``: a part of a name or id; ``status``, ``kind``: as in JobSummary, empty: any; ``sort``: a field of it, "-" before it: descending."""
        ...

    def job(self, id: str) -> Job | Stream | Script: ...

    def vertex(self, id: str, vertex: int) -> Vertex: ...

    def subtasks(self, id: str, vertex: int, *, state: str, sort: str, offset: int, limit: int) -> Page[Subtask]:
        """``sort``: a field of Subtask, "-" before it: descending."""
        ...

    def attempts(self, id: str, vertex: int, subtask: int) -> list[Attempt]: ...

    def timeline(self, id: str, *, vertex: int | None, begin: float | None, end: float | None) -> Timeline:
        """``begin``, ``end``: seconds since the job began; None: all of it."""
        ...

    def slots(self, id: str) -> Sequence[SlotUse]:
        """By group."""
        ...

    def nodes(self, id: str, *, offset: int, limit: int) -> Page[NodeUse]: ...

    def decisions(self, id: str, *, what: str, vertex: int | None, offset: int, limit: int) -> Page[Decision]: ...

    def failures(self, id: str, *, offset: int, limit: int) -> Page[Failure]: ...

    def what_if(self, id: str, values: Mapping[str, str]) -> WhatIf: ...

    def comparison(self, left: str, right: str) -> Comparison: ...

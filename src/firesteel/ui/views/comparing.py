"""Structs of a job beside another one, or beside what it would be with other options; units as in ``structs``."""

from __future__ import annotations

from firesteel.ui.views.structs import JobSummary, Option, VertexSummary, View


class Outcome(View, frozen=True):
    """One way to decide a vertex."""

    parallelism: int
    rule: str
    bounds: list[str]
    reason: str
    smallest: int | None = None
    """Bytes of a subtask."""
    median: int | None = None
    largest: int | None = None


class WhatIfVertex(View, frozen=True):
    vertex: int
    name: str
    was: Outcome
    would_be: Outcome | None
    why_not: str = ""
    """Why it cannot be told; only with ``would_be`` None."""


class WhatIfJoin(View, frozen=True):
    vertex: int
    """The vertex that it is told of ..."""
    join: int
    """... and that of the join."""
    was: str
    would_be: str
    was_reason: str
    would_be_reason: str


class WhatIf(View, frozen=True):
    """Decisions of a job again, from the bytes of that run, with some options changed."""

    job: JobSummary
    values: dict[str, str]
    """The options as given; empty: nothing was asked yet."""
    choices: list[Option]
    """Options that can be changed, with the value that the job had."""
    vertices: list[WhatIfVertex]
    joins: list[WhatIfJoin]


class ComparedVertex(View, frozen=True):
    """A vertex of two runs; of the same step where the journals tell steps, else of the same name."""

    name: str
    left: VertexSummary | None
    right: VertexSummary | None
    seconds_more: float | None = None
    """right - left."""


class ComparedOption(View, frozen=True):
    key: str
    left: str
    """Empty: its default there."""
    right: str


class Comparison(View, frozen=True):
    """Two jobs side by side: why was ``right`` slower than ``left``?"""

    left: JobSummary
    right: JobSummary
    notes: list[str]
    """Sentences, the most telling first; at most 10."""
    vertices: list[ComparedVertex]
    """In the order of the right one; those of the left one alone at the end."""
    options: list[ComparedOption]
    """The options that differ."""

"""Structs that only REST has; units as in ``structs``."""

from __future__ import annotations

from firesteel.ui.views.structs import Attempt, Subtask, VertexSummary, View


class AttemptRow(View, frozen=True):
    """One execution in the table of all of a job's."""

    vertex: int
    name: str
    subtask: int
    attempt: int
    state: str
    node: str
    mirror: bool
    won: bool
    void: bool
    created: float | None
    began: float | None
    ended: float | None
    seconds: float | None
    peak_bytes: int | None
    cause: str


class SubtaskAttempts(View, frozen=True):
    """A subtask with all of its attempts, by number."""

    vertex: int
    subtask: Subtask
    attempts: list[Attempt]


class Requirements(View, frozen=True):
    """Bounds of a stream's parallelism; None: not known."""

    lower: int | None
    upper: int | None


class Pulse(View, frozen=True):
    """An event of ``/api/v1/jobs/:id/events``: how a live job or stream stands. Sent at most once a second, when it has changed."""

    version: int
    """Counts up; a page that was made of an older version is stale."""
    status: str
    """As in JobSummary."""
    seconds: float
    is_over: bool
    progress: float | None = None
    vertices: list[VertexSummary] = []  # noqa: RUF012 - msgspec copies it
    """Of a job, at most 200."""
    parallelism: int | None = None
    """Of a stream."""
    state: str = ""
    """Of a stream."""
    batches: int | None = None

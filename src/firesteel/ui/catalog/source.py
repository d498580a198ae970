"""Answers what REST and the pages ask for: finds the job, makes the view of its fold."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from msgspec.structs import replace

from firesteel.errors import FiresteelError, UsageError
from firesteel.report.fold import Fold, JobFold, ScriptFold, StreamFold, VertexHistory
from firesteel.scheduler.streaming.records import StreamStatus
from firesteel.ui.catalog.jobs import LIVE, Catalog
from firesteel.ui.catalog.runs import Handler
from firesteel.ui.views.compare import comparison, what_if_view
from firesteel.ui.views.jobs import (
    decisions_page,
    edges,
    failures_page,
    job_pulse,
    job_view,
    options_of,
    vertex_summary,
    vertex_view,
)
from firesteel.ui.views.streams import rescales_page, script_view, stream_pulse, stream_view
from firesteel.ui.views.structs import (
    USUAL_ITEMS,
    Attempt,
    AttemptRow,
    Comparison,
    Decision,
    Failure,
    Job,
    JobSummary,
    NodeUse,
    Option,
    Page,
    Pulse,
    Requirements,
    Rescale,
    Script,
    SlotUse,
    Stream,
    Subtask,
    SubtaskAttempts,
    Timeline,
    UnknownThing,
    Vertex,
    VertexSummary,
    WhatIf,
    page,
)
from firesteel.ui.views.subtasks import Subtasks, attempts_of, attempts_page
from firesteel.ui.views.timeline import nodes_page, slots_over_time, timeline


class Conflict(UsageError):
    """It cannot be done with a job that is as it is."""


class Source(Catalog):
    """The answers, by the job's id. Each method raises UnknownThing for a thing that does not exist, and UsageError for a wrong argument."""

    # --- reading ---

    def job(self, id: str) -> Job | Stream | Script:
        handler = self.handler(id)
        status = _status(handler)
        spark_url = self.spark_url(id)
        with self.reading(id) as (summary, fold):
            may = handler is not None and not fold.is_over
            match fold:
                case JobFold():
                    return job_view(fold, summary, spark_url=spark_url, may_cancel=may)
                case StreamFold():
                    return stream_view(fold, summary, status, spark_url=spark_url, may_change=may)
                case _:
                    return script_view(fold, summary)

    def vertices(self, id: str, *, offset: int = 0, limit: int = USUAL_ITEMS) -> Page[VertexSummary]:
        with self._job(id) as (_, fold):
            return page(sorted(fold.vertices), lambda one: vertex_summary(fold, fold.vertices[one]), offset, limit)

    def vertex(self, id: str, vertex: int) -> Vertex:
        spark_url, stage_url = self.spark_url(id), self.stage_url(id, vertex)
        with self._job(id) as (summary, fold):
            view = vertex_view(fold, summary, _vertex(fold, vertex), edges(fold))
            return replace(view, spark_url=spark_url, stage_url=stage_url)

    def subtasks(
        self, id: str, vertex: int, *, state: str = "", sort: str = "index", offset: int = 0, limit: int = USUAL_ITEMS
    ) -> Page[Subtask]:
        with self._job(id) as (_, fold):
            _vertex(fold, vertex)
            return Subtasks(fold, vertex).page(state=state, sort=sort or "index", offset=offset, limit=limit)

    def subtask(self, id: str, vertex: int, subtask: int) -> SubtaskAttempts:
        with self._job(id) as (_, fold):
            _vertex(fold, vertex)
            found = _subtask(Subtasks(fold, vertex), subtask)
            return SubtaskAttempts(vertex=vertex, subtask=found, attempts=attempts_of(fold, vertex, subtask))

    def attempts(self, id: str, vertex: int, subtask: int) -> list[Attempt]:
        return self.subtask(id, vertex, subtask).attempts

    def attempt(self, id: str, vertex: int, subtask: int, attempt: int) -> Attempt:
        found = next((each for each in self.attempts(id, vertex, subtask) if each.number == attempt), None)
        if found is None:
            raise UnknownThing(f"Subtask {subtask} of vertex {vertex} has no attempt {attempt}.")
        return found

    def all_attempts(
        self, id: str, *, vertex: int | None = None, offset: int = 0, limit: int = USUAL_ITEMS
    ) -> Page[AttemptRow]:
        with self._job(id) as (_, fold):
            chosen = sorted(fold.executions) if vertex is None else [_vertex(fold, vertex).id]
            return attempts_page(fold, chosen, offset, limit)

    def timeline(
        self, id: str, *, vertex: int | None = None, begin: float | None = None, end: float | None = None
    ) -> Timeline:
        with self._job(id) as (_, fold):
            if vertex is not None:
                _vertex(fold, vertex)
            return timeline(fold, vertex, begin, end)

    def slots(self, id: str) -> list[SlotUse]:
        with self._job(id) as (_, fold):
            return slots_over_time(fold)

    def nodes(self, id: str, *, offset: int = 0, limit: int = USUAL_ITEMS) -> Page[NodeUse]:
        with self._job(id) as (_, fold):
            return nodes_page(fold, offset=offset, limit=limit)

    def decisions(
        self, id: str, *, what: str = "", vertex: int | None = None, offset: int = 0, limit: int = USUAL_ITEMS
    ) -> Page[Decision]:
        with self._job(id) as (_, fold):
            return decisions_page(fold, what=what, vertex=vertex, offset=offset, limit=limit)

    def failures(self, id: str, *, offset: int = 0, limit: int = USUAL_ITEMS) -> Page[Failure]:
        with self._job(id) as (_, fold):
            return failures_page(fold, offset=offset, limit=limit)

    def rescales(self, id: str, *, offset: int = 0, limit: int = USUAL_ITEMS) -> Page[Rescale]:
        with self._stream(id) as fold:
            return rescales_page(fold, offset=offset, limit=limit)

    def options(self, id: str, *, offset: int = 0, limit: int = USUAL_ITEMS) -> Page[Option]:
        with self.reading(id) as (_, fold):
            plan = None if isinstance(fold, ScriptFold) else fold.plan
            return page(options_of(plan.options, plan.origins) if plan else [], lambda each: each, offset, limit)

    def what_if(self, id: str, values: Mapping[str, str]) -> WhatIf:
        with self._job(id) as (summary, fold):
            return what_if_view(fold, summary, values)

    def comparison(self, other: str, id: str) -> Comparison:
        """``other`` is the left one."""
        if other == id:
            with self._job(id) as (summary, fold):
                return comparison(fold, fold, (summary, summary))
        first, second = sorted((other, id))  # one order for all threads, so that no two wait for each other
        with self._job(first) as one, self._job(second) as another:
            (a, fold_a), (b, fold_b) = (one, another) if first == other else (another, one)
            return comparison(fold_a, fold_b, (a, b))

    def requirements(self, id: str) -> Requirements:
        """Of a stream: as it says, or as its journal says that it began."""
        status = _status(self.handler(id))
        with self._stream(id) as fold:
            if status is not None:
                return Requirements(lower=status.lower, upper=status.upper)
            plan = fold.plan
            return Requirements(lower=plan.lower if plan else None, upper=plan.upper if plan else None)

    def pulse(self, id: str) -> Pulse:
        with self.reading(id) as (summary, fold):
            pulse = pulse_of(fold, summary.status)
            return pulse if summary.status in LIVE else replace(pulse, is_over=True)

    # --- changing: each raises Conflict where it cannot be done with this job ---

    def terminate(self, id: str, mode: str = "cancel") -> None:
        """``mode``: "cancel", as in Flink, whose other ones are requests of their own."""
        if mode != "cancel":
            raise UsageError(f"There is no mode '{mode[:40]}'.", hint="Say mode=cancel, or POST .../stop.")
        self.cancel(id)

    def cancel(self, id: str) -> None:
        self._handler(id).cancel()

    def stop(self, id: str) -> None:
        """A stream, with its checkpoint."""
        self._handler(id).stop()

    def rescale(self, id: str, parallelism: int | None = None) -> None:
        self._handler(id).rescale(parallelism)

    def update_requirements(self, id: str, lower: int | None = None, upper: int | None = None) -> None:
        if lower is None and upper is None:
            raise UsageError("Neither a lower nor an upper bound was given.", hint="Give one of them, or both.")
        self._handler(id).update_requirements(lower, upper)

    def _handler(self, id: str) -> Handler:
        handler = self.handler(id)
        if handler is None:
            _cannot_be_reached(self.known(id).summary)
        return handler

    @contextmanager
    def _job(self, id: str) -> Generator[tuple[JobSummary, JobFold]]:
        with self.reading(id) as (summary, fold):
            if not isinstance(fold, JobFold):
                raise UnknownThing(f"'{summary.name}' is a {summary.kind}: it has no vertices.")
            yield summary, fold

    @contextmanager
    def _stream(self, id: str) -> Generator[StreamFold]:
        with self.reading(id) as (summary, fold):
            if not isinstance(fold, StreamFold):
                raise UnknownThing(f"'{summary.name}' is a {summary.kind}, no stream.")
            yield fold


def pulse_of(fold: Fold, status: str) -> Pulse:
    match fold:
        case JobFold():
            return job_pulse(fold, status)
        case StreamFold():
            return stream_pulse(fold, status)
        case _:
            return Pulse(version=fold.version, status=status, seconds=fold.elapsed, is_over=fold.is_over)


def _vertex(fold: JobFold, number: int) -> VertexHistory:
    found = fold.vertices.get(number)
    if found is None:
        there = ", ".join(str(each) for each in sorted(fold.vertices)[:20])
        raise UnknownThing(f"The job has no vertex {number}.", hint=f"There are: {there}." if there else None)
    return found


def _subtask(subtasks: Subtasks, number: int) -> Subtask:
    if not 0 <= number < len(subtasks.rows):
        raise UnknownThing(f"The vertex has no subtask {number}.", hint=f"It has {len(subtasks.rows)}, from 0.")
    return subtasks.subtask(number)


def _status(handler: Handler | None) -> StreamStatus | None:
    try:
        return None if handler is None else handler.status()
    except FiresteelError:  # it does not answer just now
        return None


def _cannot_be_reached(summary: JobSummary) -> NoReturn:
    if summary.status not in LIVE:
        raise Conflict(f"'{summary.name}' does not run any more.")
    raise Conflict(
        f"'{summary.name}' runs in another process, which cannot be reached from here.",
        hint="Ask there, or where the command 'firesteel' runs on its machine.",
    )

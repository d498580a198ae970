"""A trace for each job and stream: a span for it, for its vertices and for attempts, or for rescales; decisions are events of the spans that they are about.

The parent is what the user's thread had as its current span when the job was started. Of very many attempts a part have spans of their own, the rest are
counted in their vertex'. Times are the records', placed on the epoch.
"""

from __future__ import annotations

from typing import Any

from firesteel.journal.file import masked
from firesteel.masking import Masker
from firesteel.monitoring.opentelemetry.attempts import Attempts
from firesteel.monitoring.opentelemetry.providers import api, tracer
from firesteel.monitoring.opentelemetry.spans import Clock, Spans, attributes_of
from firesteel.scheduler.kernel.records import (
    Decision,
    GraphChanged,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    StateChange,
)
from firesteel.scheduler.streaming.records import (
    EndState,
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

MOST_VERTICES = 200
"""Of one job, with spans of their own."""
MOST_RESCALES = 1_000
"""Of one stream; further ones are counted."""
_OVER = ("FINISHED", "FAILED", "CANCELED")


def exporter() -> SpansExporter:
    """Of one job or stream that the calling thread starts. Raises UsageError without the library."""
    return SpansExporter(tracer(), api("opentelemetry.context").get_current())


class SpansExporter:
    """``tracer``: of OpenTelemetry; ``context``: whose current span is the parent."""

    def __init__(self, tracer: Any, context: Any) -> None:
        self._spans = Spans(tracer)
        self._context = context
        self._masker = Masker()
        self._clock = Clock()
        self._trace: _JobTrace | _StreamTrace | None = None

    def apply(self, record: JournalRecord, arrived: float) -> None:
        at = self._clock.epoch(record.at, arrived)
        told = masked(record, self._masker)
        if isinstance(told, JobPlanned):
            self._trace = _JobTrace(self._spans, self._context, told, self._clock, arrived)
        elif isinstance(told, StreamPlanned):
            self._trace = _StreamTrace(self._spans, self._context, told, self._clock, arrived)
        elif self._trace is not None:
            self._trace.apply(told, at)

    def close(self, dropped: int) -> None:
        if self._trace is not None:
            self._trace.end(dropped)


class _JobTrace:
    def __init__(self, spans: Spans, context: Any, plan: JobPlanned, clock: Clock, at: float) -> None:
        self._spans, self._clock = spans, clock
        self._names = {int(vertex["id"]): str(vertex["name"]) for vertex in plan.vertices}
        self._job = spans.begin(
            plan.job_name,
            at,
            context,
            {
                "firesteel.job.id": plan.job_id,
                "firesteel.job.name": plan.job_name,
                "firesteel.job.vertices": len(self._names),
            },
        )
        self._vertices: dict[int, _VertexSpan] = {}
        self._last = at

    def apply(self, record: JournalRecord, at: float) -> None:
        self._last = max(self._last, at)
        match record:
            case StateChange():  # most of all records
                vertex = self._vertex(record.vertex, at)
                if vertex is not None:
                    vertex.last = max(vertex.last, at)
                    vertex.attempts.apply(record, self._clock)
            case Decision(vertex=None):
                self._spans.event(self._job, f"decision: {record.what}", at, attributes_of(record))
            case Decision():
                vertex = self._vertex(record.vertex, at)
                self._spans.event(
                    vertex.span if vertex else self._job, f"decision: {record.what}", at, attributes_of(record)
                )
            case MetricsSnapshot():
                self._measured(record)
            case GraphChanged():
                self._names[record.into] = str(record.vertex.get("name") or self._names.get(record.into, ""))
            case JobStatusRecord():
                self._spans.event(
                    self._job, f"status: {record.status}", at, {"firesteel.cause": record.cause} if record.cause else {}
                )
                if record.status in _OVER:
                    self._end(record.status, record.cause, at)
            case _:
                pass

    def _vertex(self, number: int | None, at: float) -> _VertexSpan | None:
        assert number is not None
        found = self._vertices.get(number)
        if found is None and self._job is not None and len(self._vertices) < MOST_VERTICES:
            name = self._names.get(number, f"vertex {number}")
            span = self._spans.begin(
                name, at, self._job, {"firesteel.vertex.id": number, "firesteel.vertex.name": name}
            )
            found = self._vertices[number] = _VertexSpan(span, Attempts(self._spans, span), at)
        return found

    def _measured(self, record: MetricsSnapshot) -> None:
        for number, metrics in record.vertices.items():
            if number in self._vertices:
                self._vertices[number].metrics = metrics

    def _end(self, status: str, cause: str, at: float) -> None:
        for vertex in self._vertices.values():
            told = {name: value for name, value in (vertex.metrics or {}).items() if "." not in name and value}
            self._spans.set(
                vertex.span,
                {**{f"firesteel.{name}": value for name, value in told.items()}, **vertex.attempts.attributes()},
            )
            self._spans.end(vertex.span, vertex.last)
        self._vertices = {}
        if self._job is not None:
            self._spans.set(self._job, {"firesteel.job.status": status})
            self._spans.end(self._job, at, failed=cause or status if status == "FAILED" else None)
            self._job = None

    def end(self, dropped: int) -> None:
        if self._job is not None:
            if dropped:
                self._spans.set(self._job, {"firesteel.dropped_records": dropped})
            self._end("FAILED", "The job ended without a word of how.", self._last)


class _VertexSpan:
    """The span of a vertex while the job runs: it may run again at any time. ``last``: when something was heard of it."""

    __slots__ = ("attempts", "last", "metrics", "span")

    def __init__(self, span: Any, attempts: Attempts, last: float) -> None:
        self.span = span
        self.attempts = attempts
        self.last = last
        self.metrics: Any = None


class _StreamTrace:
    """Rescales are spans, told as they end; a stream may run for weeks, and its own span is told at its end."""

    def __init__(self, spans: Spans, context: Any, plan: StreamPlanned, clock: Clock, at: float) -> None:
        self._spans, self._clock = spans, clock
        self._stream = spans.begin(
            plan.name,
            at,
            context,
            {
                "firesteel.stream.id": plan.stream_id,
                "firesteel.stream.name": plan.name,
                "firesteel.stream.checkpoint": plan.checkpoint,
            },
        )
        self._rescales = self._batches = self._rows = 0
        self._last = at

    def apply(self, record: JournalRecord, at: float) -> None:
        if self._stream is None:
            return
        self._last = max(self._last, at)
        match record:
            case Decision():
                self._spans.event(self._stream, f"decision: {record.what}", at, attributes_of(record))
            case StreamStateChange():
                what = f"{record.state}, {record.phase}" if record.phase else record.state
                self._spans.event(
                    self._stream, f"state: {what}", at, {"firesteel.cause": record.cause} if record.cause else {}
                )
            case StreamBatch():
                self._batches += record.batches
                self._rows += record.rows
            case RescaleRecord():
                self._rescaled(record, at)
            case StreamEnded():
                self._end(record.status, record.cause, at)
            case _:
                pass

    def _rescaled(self, record: RescaleRecord, at: float) -> None:
        self._rescales += 1
        if self._rescales > MOST_RESCALES:
            return
        began = self._clock.epoch(record.first_change or record.triggered or record.at)
        told = {
            "firesteel.rescale.cause": record.cause,
            "firesteel.rescale.what": record.what,
            "firesteel.rescale.action": record.action,
            "firesteel.rescale.parallelism.before": record.before,
            "firesteel.rescale.parallelism.requested": record.requested,
            "firesteel.rescale.parallelism.granted": record.granted,
            "firesteel.rescale.trigger": record.trigger,
            "firesteel.rescale.end": record.end,
            "firesteel.rescale.reason": record.reason,
            "firesteel.rescale.downtime_seconds": record.downtime,
            **{
                f"firesteel.rescale.seconds.{step.replace(' ', '_')}": seconds for step, seconds in record.steps.items()
            },
        }
        span = self._spans.begin(f"rescale to {record.requested}", began, self._stream, told)
        self._spans.end(span, at, failed=record.reason or record.end if record.end == EndState.FAILED.value else None)

    def _end(self, status: str, cause: str, at: float) -> None:
        totals = {"batches": self._batches, "rows": self._rows, "rescales": self._rescales, "status": status}
        self._spans.set(self._stream, {f"firesteel.stream.{name}": value for name, value in totals.items()})
        self._spans.end(self._stream, at, failed=cause or status if status == "FAILED" else None)
        self._stream = None

    def end(self, dropped: int) -> None:
        if self._stream is not None:
            if dropped:
                self._spans.set(self._stream, {"firesteel.dropped_records": dropped})
            self._end("FAILED", "The stream ended without a word of how.", self._last)

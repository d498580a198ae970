"""A trace for each job and stream: a span for it, for its vertices and for attempts, or for rescales; decisions are events of the spans that they are about.

The parent is what the user's thread had as its current span when the job was started. Of very many attempts a part have spans of their own, the rest are
counted in their vertex'. Times are the records', placed on the epoch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from firesteel.journal.file import masked, plain
from firesteel.masking import Masker
from firesteel.monitoring.metering import api, tracer
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

MOST_CHARACTERS = 2_000
"""Of one attribute."""


MOST_ATTEMPTS = 2_000
"""The most spans of attempts that one job gets."""


class Clock:
    """Places the seconds of records on the epoch. Each record says when its clock began at the latest; the earliest of these is right."""

    def __init__(self) -> None:
        self._began = math.inf

    def epoch(self, at: float, arrived: float | None = None) -> float:
        if arrived is not None:
            self._began = min(self._began, arrived - at)
        return self._began + at


class Spans:
    """Begins and ends them. None in the place of a span: it is over, and nothing is added."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self.attempts_left = MOST_ATTEMPTS
        self._trace = api("opentelemetry.trace")

    def begin(self, name: str, at: float, parent: Any, attributes: Mapping[str, Any]) -> Any:
        """``parent``: a span, or a context of OpenTelemetry."""
        context = self._trace.set_span_in_context(parent) if isinstance(parent, self._trace.Span) else parent
        return self._tracer.start_span(
            name or "?", context=context, start_time=_nanoseconds(at), attributes=_plain(attributes)
        )

    def event(self, span: Any, name: str, at: float, attributes: Mapping[str, Any]) -> None:
        if span is not None:
            span.add_event(name, _plain(attributes), _nanoseconds(at))

    def set(self, span: Any, attributes: Mapping[str, Any]) -> None:
        if span is not None:
            span.set_attributes(_plain(attributes))

    def end(self, span: Any, at: float, failed: str | None = None) -> None:
        """``failed``: why; None: it did not. Never before it began."""
        if failed is not None:
            text = failed[:MOST_CHARACTERS]
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text.partition("\n")[0]))
            span.add_event("exception", {"exception.message": text}, _nanoseconds(at))
        span.end(max(_nanoseconds(at), getattr(span, "start_time", None) or 0))


def attributes_of(decision: Decision) -> dict[str, Any]:
    """All that a decision says."""
    told = {
        "reason": decision.reason,
        "rule": decision.rule,
        "result": _text(decision.result),
        "bounds": decision.bounds,
        "inputs": _text(decision.inputs) if decision.inputs else "",
    }
    return {f"firesteel.decision.{name}": value for name, value in told.items()}


def _text(value: Any) -> str:
    """As JSON, cut before it is made of what is very long."""
    if isinstance(value, list | tuple) and len(value) > MOST_CHARACTERS // 2:
        value = list(value[: MOST_CHARACTERS // 2])  # pyright: ignore[reportUnknownArgumentType]
    return _encoder.encode(value).decode()


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known, and in the types that OpenTelemetry takes."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, bool | int | float):
            found[name] = value
        elif isinstance(value, list | tuple):
            if value:
                found[name] = [str(item)[:MOST_CHARACTERS] for item in value[:MOST_CHARACTERS]]
        elif value is not None and value != "":
            found[name] = str(value)[:MOST_CHARACTERS]
    return found


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)


_encoder = msgspec.json.Encoder(enc_hook=plain)


MOST_FINISHED = 100
"""Spans of plain attempts that finished, of one vertex."""
MOST_ODD = 100
"""Spans of attempts that did not, and of mirrors, of one vertex."""
MOST_BEGUN = 4_096
"""Attempts of one vertex whose beginnings are kept until they end; the span of a further one begins when it ends, unless its end tells."""
_ENDS = ("FINISHED", "FAILED", "CANCELED")


class Attempts:
    def __init__(self, spans: Spans, vertex: Any) -> None:
        """``vertex``: its span."""
        self._spans = spans
        self._vertex = vertex
        self._finished, self._odd = MOST_FINISHED, MOST_ODD
        self._begun: dict[tuple[int, int], tuple[float, str | None]] = {}
        """When, and on which node, where that is known."""
        self._mirrors: set[tuple[int, int]] = set()
        self._ended: Counter[str] = Counter()
        self._left_out = 0

    def apply(self, record: StateChange, clock: Clock) -> None:
        if record.state in _ENDS:
            self._ended[record.state] += len(record.subtasks)
            self._end(record, clock)
        elif record.state == "CREATED":
            self._mirrors.update(
                key for place, key in enumerate(_keys(record)) if record.mirrors and record.mirrors[place]
            )
        elif record.state in ("DEPLOYING", "RUNNING"):
            self._begin(record)

    def attributes(self) -> dict[str, int]:
        """Of the vertex: attempts by their end, and how many have no span of their own."""
        ended = {f"firesteel.attempts.{state.lower()}": count for state, count in self._ended.items()}
        return {**ended, "firesteel.attempts.without_span": self._left_out}

    def _begin(self, record: StateChange) -> None:
        for place, key in enumerate(_keys(record)):
            at, node = self._begun.get(key, (None, None))
            if at is None and len(self._begun) >= MOST_BEGUN:
                continue
            if record.nodes and record.nodes[place] >= 0:
                node = record.hosts[record.nodes[place]]
            self._begun[key] = (_time(record, place) if at is None else at, node)

    def _end(self, record: StateChange, clock: Clock) -> None:
        odd = record.state != "FINISHED"
        for place, key in enumerate(_keys(record)):
            begun, node = self._begun.pop(key, (None, None))
            mirror = key in self._mirrors
            self._mirrors.discard(key)
            if not self._takes(odd or mirror):
                self._left_out += 1
                continue
            ended = _time(record, place)
            began = record.deployed[place] if record.deployed else begun if begun is not None else ended
            self._write(record, key, (clock.epoch(began), clock.epoch(ended)), node, mirror)

    def _takes(self, odd: bool) -> bool:
        """Takes one from what is left, if there is any."""
        left = self._odd if odd else self._finished
        if not left or not self._spans.attempts_left:
            return False
        self._spans.attempts_left -= 1
        if odd:
            self._odd -= 1
        else:
            self._finished -= 1
        return True

    def _write(
        self, record: StateChange, key: tuple[int, int], times: tuple[float, float], node: str | None, mirror: bool
    ) -> None:
        told = {
            "firesteel.subtask": key[0],
            "firesteel.attempt": key[1],
            "firesteel.attempt.state": record.state,
            "firesteel.node": node,
            **({"firesteel.attempt.mirror": True} if mirror else {}),
            **({"firesteel.cause": record.cause} if record.cause else {}),
        }
        span = self._spans.begin("attempt", times[0], self._vertex, told)
        self._spans.end(span, times[1], failed=record.cause or "failed" if record.state == "FAILED" else None)


def _keys(record: StateChange) -> Iterator[tuple[int, int]]:
    """Subtask and attempt of each execution."""
    return zip(record.subtasks, record.attempts, strict=True)


def _time(record: StateChange, place: int) -> float:
    return record.times[place] if record.times else record.at


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

"""Spans of OpenTelemetry with the records' times, in seconds of the epoch, and attributes cut to a length that every receiver takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from firesteel.monitoring.opentelemetry.providers import api
from firesteel.scheduler.kernel.records import Decision

MOST_CHARACTERS = 2_000
"""Of one attribute."""


MOST_ATTEMPTS = 2_000
"""Spans of attempts of one job."""


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


_encoder = msgspec.json.Encoder(enc_hook=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))

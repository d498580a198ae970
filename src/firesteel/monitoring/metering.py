"""Metrics of jobs and streams as OpenTelemetry's observable instruments: read from a board when they are collected; and the providers of OpenTelemetry."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

from firesteel.extras import load
from firesteel.monitoring.background import at_exit
from firesteel.monitoring.numbers import COUNTER, FAMILIES, Board, Family, Number, NumbersExporter, samples
from firesteel.options import OTEL_TRACES

PREFIX = "firesteel."
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
FRESH_SECONDS = 0.5
"""A reading is as good as new for so long."""


def exporter() -> NumbersExporter:
    """Of one job or stream. Raises UsageError without the library."""
    return NumbersExporter(_board())


@cache
def _board() -> Board:
    """Of all jobs of the process, registered with the meter."""
    board = Board()
    observe(meter(), board)
    return board


def observe(meter: Any, board: Board, fresh: float = FRESH_SECONDS) -> None:
    """Makes an instrument for each family, of which a reading is good for ``fresh`` seconds."""
    observation = api("opentelemetry.metrics").Observation
    readings = _Readings(board, fresh)
    for family in FAMILIES:

        def read(_options: Any, family: Family = family) -> Iterable[Any]:
            return [
                observation(value, dict(zip(family.labels, labels, strict=True)))
                for labels, value in readings.of(family)
            ]

        make = meter.create_observable_counter if family.kind == COUNTER else meter.create_observable_gauge
        make(instrument_name(family), callbacks=[read], description=family.help)


def instrument_name(family: Family) -> str:
    """``firesteel.job.num_restarts``: names are the same in any case there, and words are parted by underscores."""
    scope, _, name = family.name.partition("_")
    return f"{PREFIX}{scope}.{_HUMP.sub('_', name).lower()}"


class _Readings:
    """One reading of the board serves all instruments of a collection: each asks for its part in turn."""

    def __init__(self, board: Board, fresh: float) -> None:
        self._board = board
        self._fresh = fresh
        self._read_at = -math.inf
        self._found: dict[str, list[tuple[tuple[str, ...], Number]]] = {}

    def of(self, family: Family) -> list[tuple[tuple[str, ...], Number]]:
        if time.monotonic() - self._read_at > self._fresh:
            found: dict[str, list[tuple[tuple[str, ...], Number]]] = {}
            for read, labels, value in samples(self._board):
                found.setdefault(read.name, []).append((labels, value))
            self._found, self._read_at = found, time.monotonic()
        return self._found.get(family.name, [])


SCOPE = "firesteel"
"""The instrumentation scope of all spans and metrics."""

_log = logging.getLogger("firesteel.monitoring")


def api(module: str = "opentelemetry.trace") -> Any:
    """A module of the library. Raises UsageError without it."""
    return load(module, "otel", f"'{OTEL_TRACES.key}'")


def tracer() -> Any:
    """Raises UsageError without the library."""
    found = api("opentelemetry.trace").get_tracer_provider()
    return (_own_tracer_provider() if _is_unset(found) else found).get_tracer(SCOPE)


def meter() -> Any:
    """Raises UsageError without the library."""
    found = api("opentelemetry.metrics").get_meter_provider()
    return (_own_meter_provider() if _is_unset(found) else found).get_meter(SCOPE)


def _is_unset(provider: Any) -> bool:
    """The API's stand-in for a provider that the program has not set."""
    return type(provider).__name__.startswith(("Proxy", "_Proxy"))


@cache
def _own_tracer_provider() -> Any:
    sdk, export = api("opentelemetry.sdk.trace"), api("opentelemetry.sdk.trace.export")
    otlp = api("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    provider = sdk.TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(_once(otlp.OTLPSpanExporter, otlp.__name__, "Traces")))
    at_exit(lambda _seconds: provider.shutdown())
    return provider


@cache
def _own_meter_provider() -> Any:
    sdk, export = api("opentelemetry.sdk.metrics"), api("opentelemetry.sdk.metrics.export")
    otlp = api("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    reader = export.PeriodicExportingMetricReader(_once(otlp.OTLPMetricExporter, otlp.__name__, "Metrics"))
    provider = sdk.MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
    at_exit(lambda _seconds: provider.shutdown())
    return provider


def _resource() -> Any:
    resources = api("opentelemetry.sdk.resources")
    made = resources.Resource.create()
    named = str(made.attributes.get("service.name", ""))
    return (
        made
        if named and not named.startswith("unknown_service")
        else made.merge(resources.Resource({"service.name": SCOPE}))
    )


def _once(kind: Any, logger: str, what: str) -> Any:
    """An exporter of this kind whose failures are logged once, in a sentence, and not by its library with each batch."""
    quiet = threading.local()
    logging.getLogger(logger).addFilter(lambda _record: not getattr(quiet, "exporting", False))

    class Once(kind):
        failed = False

        def export(self, *args: Any, **kwargs: Any) -> Any:
            quiet.exporting = True
            try:
                result = super().export(*args, **kwargs)
            finally:
                quiet.exporting = False
            if result.name != "SUCCESS" and not self.failed:
                self.failed = True
                _log.warning(
                    "%s cannot be sent by OpenTelemetry to %s. Jobs go on; what cannot be sent is dropped, and not told of again.",
                    what,
                    self._endpoint,
                )
            return result

    return Once()

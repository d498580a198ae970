"""The tracer and the meter that are used: those of the user's program, where it has set providers; else our own, which send by OTLP over HTTP.

Our own are made once in a process, configured by OpenTelemetry's variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, ...), and set nowhere: what else
the program traces stays as it is.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import Any

from firesteel.extras import load
from firesteel.monitoring.background import at_exit
from firesteel.options import OTEL_TRACES

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

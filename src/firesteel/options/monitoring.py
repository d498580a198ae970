"""Options of monitoring: metrics, traces and lineage, all off unless they are asked for."""

from __future__ import annotations

from firesteel.options.registry import register as _register
from firesteel.options.values import Option, Scope, parse_bool, parse_int


def _port(value: int | None) -> str | None:
    return None if value is None or 0 <= value < 1 << 16 else "must be a port: 0 (any that is free) to 65535"


PROMETHEUS_ENABLED = _register(
    Option(
        "firesteel.metrics.prometheus.enabled",
        parse_bool,
        False,
        "Keep the metrics of jobs and streams for Prometheus: the web page serves them at /metrics. Needs the extra prometheus.",
        scope=Scope.BOTH,
    )
)
PROMETHEUS_PORT = _register(
    Option[int | None](
        "firesteel.metrics.prometheus.port",
        parse_int,
        None,
        "Serve the metrics of this process to Prometheus at this port too, by a small server of their own; 0: at any that is free. It means firesteel.metrics.prometheus.enabled = true. One that is taken is logged, and the job goes on without.",
        check=_port,
        scope=Scope.BOTH,
    )
)
PROMETHEUS_HOST = _register(
    Option(
        "firesteel.metrics.prometheus.host",
        str,
        "127.0.0.1",
        "The address at which metrics are served. Whoever reaches another one than 127.0.0.1 can read the names and numbers of all jobs.",
        scope=Scope.BOTH,
    )
)
OTEL_TRACES = _register(
    Option(
        "firesteel.traces.opentelemetry.enabled",
        parse_bool,
        False,
        "Send a trace of each job and stream by OpenTelemetry: to the tracer provider of your program, if it has set one; else by OTLP over HTTP to where the OTEL_... variables say (http://localhost:4318). Needs the extra otel.",
        scope=Scope.BOTH,
    )
)
OTEL_METRICS = _register(
    Option(
        "firesteel.metrics.opentelemetry.enabled",
        parse_bool,
        False,
        "Send the metrics of jobs and streams by OpenTelemetry: to the meter provider of your program, if it has set one; else by OTLP over HTTP to where the OTEL_... variables say. Needs the extra otel.",
        scope=Scope.BOTH,
    )
)
LINEAGE = _register(
    Option(
        "firesteel.lineage.openlineage.enabled",
        parse_bool,
        False,
        "Tell by OpenLineage what each job and stream reads and writes, with schemas, columns and rows, where OpenLineage's own configuration says (OPENLINEAGE_URL, openlineage.yml). Needs the extra lineage.",
        scope=Scope.BOTH,
    )
)

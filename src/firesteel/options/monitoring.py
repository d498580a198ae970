"""Options of monitoring: metrics, traces and lineage, all off unless they are asked for."""

from __future__ import annotations

from firesteel.options.registry import Scope, switch, text, whole

_switch, _text = switch.of(Scope.BOTH), text.of(Scope.BOTH)


def _port(value: int | None) -> str | None:
    return None if value is None or 0 <= value < 1 << 16 else "must be a port: 0 (any that is free) to 65535"


PROMETHEUS_ENABLED = _switch(
    "firesteel.metrics.prometheus.enabled",
    False,
    "Keep the metrics of jobs and streams for Prometheus. A program serves them by registering firesteel.monitoring.prometheus.Collector. Needs the extra prometheus.",
)
PROMETHEUS_PORT = whole.of(Scope.BOTH)(
    "firesteel.metrics.prometheus.port",
    None,
    "Serve the metrics of this process to Prometheus at this port too, by a small server of their own; 0: at any that is free. It means firesteel.metrics.prometheus.enabled = true. One that is taken is logged, and the job goes on without.",
    check=_port,
)
PROMETHEUS_HOST = _text(
    "firesteel.metrics.prometheus.host",
    "127.0.0.1",
    "The address at which metrics are served. Whoever reaches another one than 127.0.0.1 can read the names and numbers of all jobs.",
)
OTEL_TRACES = _switch(
    "firesteel.traces.opentelemetry.enabled",
    False,
    "Send a trace of each job and stream by OpenTelemetry: to the tracer provider of your program, if it has set one; else by OTLP over HTTP to where the OTEL_... variables say (http://localhost:4318). Needs the extra otel.",
)
OTEL_METRICS = _switch(
    "firesteel.metrics.opentelemetry.enabled",
    False,
    "Send the metrics of jobs and streams by OpenTelemetry: to the meter provider of your program, if it has set one; else by OTLP over HTTP to where the OTEL_... variables say. Needs the extra otel.",
)
LINEAGE = _switch(
    "firesteel.lineage.openlineage.enabled",
    False,
    "Tell by OpenLineage what each job and stream reads and writes, with schemas, columns and rows, where OpenLineage's own configuration says (OPENLINEAGE_URL, openlineage.yml). Needs the extra lineage.",
)

"""The exporters that the options ask for, as instruments of a job or stream."""

from __future__ import annotations

from firesteel.extras import load
from firesteel.journal.file import Instrument
from firesteel.monitoring.background import Background, Exporter
from firesteel.options import LINEAGE, OTEL_METRICS, OTEL_TRACES, PROMETHEUS_ENABLED, PROMETHEUS_PORT, Options


def monitoring(options: Options) -> tuple[Instrument, ...]:
    """Of one job or stream that starts: none where the options ask for nothing. Called in the user's thread, whose context a trace continues.

    Raises UsageError where a library is not installed, or its own configuration is wrong.
    """
    exporters = _of_metrics(options)
    if options[OTEL_TRACES]:
        from firesteel.monitoring import tracing

        exporters.append(tracing.exporter())
    if options[LINEAGE]:
        load("openlineage.client", "lineage", f"'{LINEAGE.key}'")
        from firesteel.monitoring.openlineage import LineageExporter, process_emitter

        exporters.append(LineageExporter(process_emitter().emit))
    return (Background(exporters),) if exporters else ()


def script_metrics(options: Options) -> tuple[Instrument, ...]:
    """Of an accelerated script: its metrics alone, for traces and lineage are of its jobs. Raises UsageError as :func:`monitoring`."""
    exporters = _of_metrics(options)
    return (Background(exporters),) if exporters else ()


def _of_metrics(options: Options) -> list[Exporter]:
    exporters: list[Exporter] = []
    if options[PROMETHEUS_ENABLED] or options[PROMETHEUS_PORT] is not None:
        from firesteel.monitoring import prometheus

        exporters.append(prometheus.exporter(options))
    if options[OTEL_METRICS]:
        from firesteel.monitoring import metering

        exporters.append(metering.exporter())
    return exporters

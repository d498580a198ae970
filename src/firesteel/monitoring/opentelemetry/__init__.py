"""Traces and metrics by OpenTelemetry (the extra ``otel``).

Begin with ``tracing`` (a trace per job) and ``metering``; ``providers`` is whose tracer and meter are used, and where what they make is sent.
"""

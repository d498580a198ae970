"""Jobs and streams as metrics, traces and lineage, for Prometheus, OpenTelemetry and OpenLineage.

Begin with ``exporters``: what the options ask for. Each exporter folds records, on a thread beside the job's (``background``). Their libraries are loaded where
they are asked for.
"""

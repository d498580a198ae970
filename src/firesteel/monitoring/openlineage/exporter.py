"""The exporter of lineage, if its library is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.extras import load
from firesteel.options import LINEAGE

if TYPE_CHECKING:
    from firesteel.monitoring.openlineage.runs import LineageExporter


def exporter() -> LineageExporter:
    """Of one job or stream. Raises UsageError without the library, and where OpenLineage's own configuration is wrong."""
    load("openlineage.client", "lineage", f"'{LINEAGE.key}'")
    from firesteel.monitoring.openlineage.emitter import process_emitter
    from firesteel.monitoring.openlineage.runs import LineageExporter

    return LineageExporter(process_emitter().emit)

"""Steps of a job's sinks as its log has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firesteel.connectors.base import BEGUN, PUBLISHED
from firesteel.scheduler.recovery.records import AnyLogRecord, SinkStep
from firesteel.spark.storage.publish import TAKEN_BACK


def sink_steps(entries: Iterable[Sequence[AnyLogRecord]]) -> dict[tuple[int, int], list[tuple[str, bytes]]]:
    """By vertex and place of the sink: its steps in order, each with what was told with it."""
    found: dict[tuple[int, int], list[tuple[str, bytes]]] = {}
    for record in (record for entry in entries for record in entry if isinstance(record, SinkStep)):
        found.setdefault((record.vertex, record.sink), []).append((record.step, record.state))
    return found


def last_step(steps: Iterable[str]) -> str:
    """Returns how far a sink had come; ``steps``: those that the log has, the last one last. Each driver begins with it anew."""
    return next((step for step in reversed(list(steps)) if step not in (BEGUN, TAKEN_BACK)), BEGUN)


def stays_out(steps: Sequence[str]) -> bool:
    """Returns whether what a job that has ended by itself had published of the sink may be out still. One whose ``commit`` failed is not."""
    return PUBLISHED in steps and steps[-1] not in (BEGUN, TAKEN_BACK)

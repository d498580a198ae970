"""Events of OpenLineage made of a job's or stream's records: START, RUNNING from time to time, and COMPLETE, FAIL or ABORT."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import RunFacet

from firesteel.journal.file import masked
from firesteel.masking import Masker
from firesteel.monitoring.openlineage import datasets, facets
from firesteel.scheduler.kernel.records import (
    Decision,
    GraphChanged,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    StateChange,
)
from firesteel.scheduler.streaming.records import (
    StreamBatch,
    StreamDatasets,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

RUNNING_SECONDS = 60.0
"""A run that goes on is told of so often at most."""
_ENDS = {"FINISHED": RunState.COMPLETE, "FAILED": RunState.FAIL, "CANCELED": RunState.ABORT}


def run_id(job: str) -> str:
    """The same for a job that goes on under another driver."""
    return str(uuid5(NAMESPACE_URL, f"urn:firesteel:job:{job}"))


class LineageExporter:
    """``emit`` takes an event and returns at once. ``often``: seconds between RUNNING events."""

    def __init__(self, emit: Callable[[RunEvent], None], *, often: float = RUNNING_SECONDS) -> None:
        self._emit = emit
        self._often = often
        self._masker = Masker(home="")  # a data set under "~" would be another one for every user
        self._run: _Run | None = None
        self._told_at = 0.0

    def apply(self, record: JournalRecord, arrived: float) -> None:
        if not isinstance(record, StateChange):  # most of all records, and nothing in them but the time
            self._take(record, arrived)
        if self._run is not None and self._run.is_running and arrived >= self._told_at + self._often:
            self._tell(RunState.RUNNING, arrived)
            self._told_at = arrived

    def _take(self, record: JournalRecord, arrived: float) -> None:
        if isinstance(record, JobPlanned | StreamPlanned):
            plan = masked(record, self._masker)
            self._run = _of_job(plan) if isinstance(plan, JobPlanned) else _of_stream(plan)
            self._tell(RunState.START, arrived)
            return
        if self._run is None:
            return
        if isinstance(record, Decision | GraphChanged | JobStatusRecord | StreamDatasets | StreamEnded):
            record = masked(record, self._masker)
        self._run.apply(record)
        if isinstance(record, JobStatusRecord | StreamEnded) and record.status in _ENDS:
            self._tell(
                _ENDS[record.status], arrived, facets.error_facet(record.cause) if record.status == "FAILED" else {}
            )
            self._run = None

    def close(self, dropped: int) -> None:
        """A run whose end nobody told goes on under another driver, or is told by nobody."""

    def _tell(self, state: RunState, at: float, more: dict[str, RunFacet] | None = None) -> None:
        assert self._run is not None
        self._emit(self._run.event(state, at, more or {}))


@dataclass(slots=True)
class _Run:
    """``inputs``, ``outputs``: as planned. ``names``: of vertices. ``absorbed``: vertices whose work others do."""

    id: str
    name: str
    streaming: bool = False
    inputs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    outputs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    names: dict[int, str] = field(default_factory=dict[int, str])
    uncounted: set[int] = field(default_factory=set[int])
    """Sources whose rows nobody can tell from others that their tasks read."""
    rows_in: dict[int, int] = field(default_factory=dict[int, int])
    rows_out: dict[int, int] = field(default_factory=dict[int, int])
    decisions: list[Decision] = field(default_factory=list[Decision])
    left_out: int = 0
    is_running: bool = False

    def apply(self, record: JournalRecord) -> None:
        match record:
            case Decision():
                if len(self.decisions) < facets.MOST_DECISIONS:
                    self.decisions.append(record)
                else:
                    self.left_out += 1
            case MetricsSnapshot():
                for vertex, metrics in record.vertices.items():
                    self.rows_in[vertex] = int(metrics.get("numRecordsIn", 0))
                    self.rows_out[vertex] = int(metrics.get("numRecordsOut", 0))
            case GraphChanged():
                self.uncounted |= {record.absorbed, record.into}
            case JobStatusRecord():
                self.is_running = record.status == "RUNNING"
            case StreamStateChange():
                self.is_running = record.state == "Executing"
            case StreamDatasets():
                self.inputs = [{**one, "vertex": 0} for one in record.inputs]
                self.outputs = [{**one, "vertex": 0, "counted": False} for one in record.outputs]
            case StreamBatch():
                self.rows_in[0] = self.rows_in.get(0, 0) + record.rows
            case _:
                pass

    def event(self, state: RunState, at: float, more: dict[str, RunFacet]) -> RunEvent:
        run = {**facets.run_facets(), **more}
        if self.decisions:
            run[facets.DECISIONS] = facets.decisions_facet(self.decisions, self.left_out, self.names)
        rows = {vertex: count for vertex, count in self.rows_in.items() if vertex not in self.uncounted}
        event = RunEvent(
            eventTime=datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            producer=facets.PRODUCER,
            run=Run(self.id, run),
            job=Job(os.environ.get("OPENLINEAGE_NAMESPACE") or "default", self.name, facets.job_facets(self.streaming)),
            eventType=state,
            inputs=datasets.inputs(self.inputs, rows if state is not RunState.START else {}),
            outputs=datasets.outputs(self.outputs, self.inputs, self.rows_out if state is RunState.COMPLETE else {}),
        )
        facets.sign(event)
        return event


def _of_job(plan: JobPlanned) -> _Run:
    beside = {int(vertex["id"]) for vertex in plan.vertices if vertex.get("inputs")}
    names = {int(vertex["id"]): str(vertex["name"]) for vertex in plan.vertices}
    return _Run(
        run_id(plan.job_id), plan.job_name, inputs=plan.inputs, outputs=plan.outputs, names=names, uncounted=beside
    )


def _of_stream(plan: Any) -> _Run:
    return _Run(run_id(plan.stream_id), plan.name, streaming=True)

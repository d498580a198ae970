"""Events of OpenLineage made of a job's or stream's records: START, RUNNING from time to time, and COMPLETE, FAIL or ABORT."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from queue import Full, Queue
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import attr
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
)

from firesteel.errors import UsageError
from firesteel.journal.file import masked, own_version
from firesteel.masking import Masker
from firesteel.monitoring.background import at_exit
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

MOST_DECISIONS = 100
"""Of one run; further ones are counted."""
MOST_CHARACTERS = 500
"""Of each text in them."""
DECISIONS = "firesteel_decisions"
SCHEMA = "urn:firesteel:openlineage:1-0-0:DecisionsRunFacet.json"
"""The id of the schema."""


VERSION = own_version() or "0"
PRODUCER = f"urn:firesteel:{VERSION}"


@attr.define
class DecisionsRunFacet(RunFacet):
    decisions: list[dict[str, Any]]
    leftOut: int  # noqa: N815 - as OpenLineage writes names
    """Decisions beyond the first MOST_DECISIONS."""

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}#/$defs/DecisionsRunFacet"


def decisions_facet(decisions: Sequence[Decision], left_out: int, names: dict[int, str]) -> DecisionsRunFacet:
    """``names``: of vertices."""
    return DecisionsRunFacet([_decision(decision, names) for decision in decisions], left_out)


def _decision(decision: Decision, names: dict[int, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"what": decision.what, "seconds": decision.at}
    if decision.vertex is not None:
        told |= {"vertex": decision.vertex, "name": names.get(decision.vertex, "")}
    texts = {"rule": decision.rule, "result": str(decision.result), "reason": decision.reason}
    return told | {name: text[:MOST_CHARACTERS] for name, text in texts.items() if text}


def job_facets(streaming: bool) -> dict[str, JobFacet]:
    kind = "STREAMING" if streaming else "BATCH"
    return {"jobType": job_type_job.JobTypeJobFacet(kind, "FIRESTEEL", jobType="JOB")}


def run_facets() -> dict[str, RunFacet]:
    """The facets of every event."""
    engine = processing_engine_run.ProcessingEngineRunFacet(
        VERSION, name="firesteel", openlineageAdapterVersion=VERSION
    )
    parent = _parent()
    return {"processing_engine": engine, **({} if parent is None else {"parent": parent})}


def error_facet(cause: str) -> dict[str, RunFacet]:
    """``cause``: a sentence, and what Python said below it."""
    message, _, trace = cause.partition("\n")
    return {
        "errorMessage": error_message_run.ErrorMessageRunFacet(
            message or "No cause is known.", "python", stackTrace=trace or None
        )
    }


def _parent() -> RunFacet | None:
    """The run that started this process, as OPENLINEAGE_PARENT_ID has it: namespace/name/run id. One that cannot be read is left out."""
    parts = os.environ.get("OPENLINEAGE_PARENT_ID", "").rsplit("/", 2)
    try:
        namespace, name, run = parts
        run = str(UUID(run))
    except ValueError:
        return None
    return parent_run.ParentRunFacet(parent_run.Run(run), parent_run.Job(namespace, name))


def sign(event: RunEvent) -> None:
    """The library says of facets that it made them itself."""
    parts: list[Any] = [event.run.facets, event.job.facets]
    for dataset in (*(event.inputs or ()), *(event.outputs or ())):
        parts += [dataset.facets, getattr(dataset, "inputFacets", None), getattr(dataset, "outputFacets", None)]
    for facet in (facet for part in parts for facet in (part or {}).values()):
        facet._producer = PRODUCER  # pyright: ignore[reportPrivateUsage]


Planned = Mapping[str, Any]
"""One of ``JobPlanned.inputs`` or ``outputs``."""
Name = tuple[str, str]
_DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


def name_of(planned: Planned) -> Name:
    return str(planned["namespace"]), str(planned["name"])


def input_datasets(planned: Sequence[Planned], rows: Mapping[int, int]) -> list[InputDataset]:
    """Each data set once. ``rows``: read by vertices, where they are known; of a vertex that reads several data sets nobody knows of which."""
    by_name = _by_name(planned)
    alone = [one["vertex"] for one in planned]
    found: list[InputDataset] = []
    for (namespace, name), parts in by_name.items():
        counts = [rows.get(part["vertex"]) if alone.count(part["vertex"]) == 1 else None for part in parts]
        known = [count for count in counts if count is not None]
        told: dict[str, InputDatasetFacet] = {}
        if known and len(known) == len(counts):
            told["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(sum(known))
        found.append(InputDataset(namespace, name, inputFacets=told, facets=_schema(parts[0])))
    return found


def output_datasets(
    planned: Sequence[Planned], sources: Sequence[Planned], rows: Mapping[int, int]
) -> list[OutputDataset]:
    """``rows``: written by vertices; empty: not told."""
    found: list[OutputDataset] = []
    for (namespace, name), parts in _by_name(planned).items():
        counts = [rows.get(part["vertex"]) if part.get("counted", True) else None for part in parts]
        known = [count for count in counts if count is not None]
        told: dict[str, OutputDatasetFacet] = {}
        if known and len(known) == len(counts):
            told["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(sum(known))
        lineage = _lineage(parts[0], sources)
        facets = {**_schema(parts[0]), **({} if lineage is None else {"columnLineage": lineage})}
        found.append(OutputDataset(namespace, name, outputFacets=told, facets=facets))
    return found


def _by_name(planned: Iterable[Planned]) -> dict[Name, list[Planned]]:
    found: dict[Name, list[Planned]] = {}
    for one in planned:
        found.setdefault(name_of(one), []).append(one)
    return found


def _schema(planned: Planned) -> dict[str, DatasetFacet]:
    columns = planned.get("columns") or []
    if not columns:
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(str(name), str(kind)) for name, kind in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


def _lineage(planned: Planned, sources: Sequence[Planned]) -> DatasetFacet | None:
    names: dict[int, list[Name]] = {}
    for source in sources:
        names.setdefault(int(source["vertex"]), []).append(name_of(source))
    fields = {
        column: column_lineage_dataset.Fields(_fields(origins, names))
        for column, origins in (planned.get("origins") or {}).items()
    }
    decided_by = _fields(planned.get("decided_by") or (), names)
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields, decided_by) if fields or decided_by else None


def _fields(
    origins: Iterable[Sequence[Any]], names: Mapping[int, list[Name]]
) -> list[column_lineage_dataset.InputField]:
    """A column of each data set that the source reads, once, with all that is done to it."""
    done: dict[tuple[str, str, str], list[str]] = {}
    for source, column, how in origins:
        for namespace, name in names.get(int(source), ()):
            done.setdefault((namespace, name, str(column)), []).append(str(how))
    return [
        column_lineage_dataset.InputField(
            *where,
            transformations=[
                column_lineage_dataset.Transformation("DIRECT" if how in _DIRECT else "INDIRECT", how)
                for how in dict.fromkeys(ways)
            ],
        )
        for where, ways in done.items()
    ]


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
            self._tell(_ENDS[record.status], arrived, error_facet(record.cause) if record.status == "FAILED" else {})
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
                if len(self.decisions) < MOST_DECISIONS:
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
        run = {**run_facets(), **more}
        if self.decisions:
            run[DECISIONS] = decisions_facet(self.decisions, self.left_out, self.names)
        rows = {vertex: count for vertex, count in self.rows_in.items() if vertex not in self.uncounted}
        event = RunEvent(
            eventTime=datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            producer=PRODUCER,
            run=Run(self.id, run),
            job=Job(os.environ.get("OPENLINEAGE_NAMESPACE") or "default", self.name, job_facets(self.streaming)),
            eventType=state,
            inputs=input_datasets(self.inputs, rows if state is not RunState.START else {}),
            outputs=output_datasets(self.outputs, self.inputs, self.rows_out if state is RunState.COMPLETE else {}),
        )
        sign(event)
        return event


def _of_job(plan: JobPlanned) -> _Run:
    beside = {int(vertex["id"]) for vertex in plan.vertices if vertex.get("inputs")}
    names = {int(vertex["id"]): str(vertex["name"]) for vertex in plan.vertices}
    return _Run(
        run_id(plan.job_id), plan.job_name, inputs=plan.inputs, outputs=plan.outputs, names=names, uncounted=beside
    )


def _of_stream(plan: Any) -> _Run:
    return _Run(run_id(plan.stream_id), plan.name, streaming=True)


MOST_WAITING = 1_000
"""Events that wait at most; further ones are dropped and counted."""
_log = logging.getLogger("firesteel.monitoring")


class Emitter:
    def __init__(self, client: OpenLineageClient, *, most: int = MOST_WAITING) -> None:
        self.dropped = 0
        """Events that found no place, or could not be sent."""
        self._client = client
        self._waiting: Queue[RunEvent | threading.Event] = Queue(most)
        self._has_failed = False
        threading.Thread(target=self._work, name="firesteel-lineage", daemon=True).start()

    def emit(self, event: RunEvent) -> None:
        """Returns at once."""
        try:
            self._waiting.put_nowait(event)
        except Full:
            self._lost("too many of its events wait to be sent")

    def flush(self, seconds: float) -> bool:
        """Waits until what waits has been sent, or has failed, at most so long. True: it has."""
        done = threading.Event()
        try:
            self._waiting.put(done, timeout=seconds)
        except Full:
            return False
        return done.wait(seconds)

    def _work(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._client.emit(item)
            except Exception as error:
                said = (str(error).strip() or type(error).__name__).splitlines()[0]
                self._lost(said[:300])

    def _lost(self, why: str) -> None:
        self.dropped += 1
        if not self._has_failed:
            self._has_failed = True
            _log.warning(
                "Lineage cannot be sent by OpenLineage: %s. Jobs go on; what cannot be sent is dropped, and not told of again.",
                why,
            )


@cache
def process_emitter() -> Emitter:
    """The one of the process. Raises UsageError where OpenLineage's configuration is wrong."""
    try:
        client = OpenLineageClient()
    except Exception as error:
        raise UsageError(
            f"OpenLineage's own configuration cannot be used: {type(error).__name__}: {error}.",
            hint="Look at OPENLINEAGE_CONFIG, openlineage.yml and the variables OPENLINEAGE_...",
        ) from error
    emitter = Emitter(client)
    at_exit(emitter.flush)
    return emitter

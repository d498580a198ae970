"""The numbers of this process's jobs and streams as they stand, kept small: those that are over are let go after a while, and very many are not all kept."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from firesteel.journal.file import masked
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.masking import Masker
from firesteel.scheduler.kernel.records import (
    Decision,
    GraphChanged,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    SlotUsage,
    StateChange,
)
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

Number = int | float
KEPT_SECONDS = 300.0
"""A job that is over is shown for so long: several scrapes, whatever their interval."""
MOST_JOBS = 100
"""Jobs and streams that are shown at once; beyond, those that ended first are let go at once."""
MOST_VERTICES = 100
"""Of one job; further ones are counted."""
ENDED = ("FINISHED", "FAILED", "CANCELED")


@dataclass(slots=True)
class JobNumbers:
    """``began``, ``ended``: seconds of the epoch. ``vertices``: names by number, the first MOST_VERTICES."""

    id: str = ""
    name: str = ""
    began: float = 0.0
    ended: float | None = None
    status: str = "CREATED"
    vertices: dict[int, str] = field(default_factory=dict[int, str])
    left_out: int = 0
    """Vertices beyond the first MOST_VERTICES."""
    metrics: Mapping[str, Number] = field(default_factory=dict[str, Number])
    by_vertex: dict[int, Mapping[str, Number]] = field(default_factory=dict[int, "Mapping[str, Number]"])
    decisions: Counter[str] = field(default_factory=Counter[str])
    """By what was decided."""
    groups: dict[str, SlotUsage] = field(default_factory=dict[str, SlotUsage])
    """The last word on each slot sharing group, where any has resources."""
    dropped: int = 0


@dataclass(slots=True)
class StreamNumbers:
    """``began``, ``ended``: seconds of the epoch."""

    id: str = ""
    name: str = ""
    began: float = 0.0
    ended: float | None = None
    status: str = "RUNNING"
    """FINISHED, CANCELED or FAILED at its end."""
    state: str = ""
    """The scheduler's state."""
    lower: int = 0
    upper: int = 0
    last: StreamBatch | None = None
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    """Of its batches, together."""
    rescales: Counter[str] = field(default_factory=Counter[str])
    """By how they ended."""
    downtime: float = 0.0
    """Seconds of all rescales together."""
    decisions: Counter[str] = field(default_factory=Counter[str])
    dropped: int = 0


@dataclass(slots=True)
class ScriptNumbers:
    """Of an accelerated script. ``ended``: seconds of the epoch."""

    id: str = ""
    name: str = ""
    ended: float | None = None
    taken: int = 0
    """Queries that were taken over."""
    left: int = 0
    """Queries that Spark computed."""
    checks: Counter[str] = field(default_factory=Counter[str])
    """By how they ended: ``same``, ``differs``, ``skipped``."""
    dropped: int = 0


AnyNumbers = JobNumbers | StreamNumbers | ScriptNumbers


class Board:
    """All jobs, streams and scripts of the process that are shown. Written by the threads of jobs' exporters, read by whoever serves or sends them."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._shown: list[AnyNumbers] = []

    @contextmanager
    def locked(self) -> Generator[None]:
        """Nothing changes meanwhile."""
        with self._lock:
            yield

    def add(self, numbers: AnyNumbers) -> None:
        """Under the lock."""
        self._shown = [shown for shown in self._shown if shown.id != numbers.id]  # a job that goes on is one
        self._shown.append(numbers)
        self._let_go()

    def shown(self) -> list[AnyNumbers]:
        """Under the lock: oldest first."""
        self._let_go()
        return list(self._shown)

    def now(self) -> float:
        """Seconds of the epoch."""
        return self._now()

    def _let_go(self) -> None:
        past = self._now() - KEPT_SECONDS
        self._shown = [shown for shown in self._shown if shown.ended is None or shown.ended > past]
        over = sorted((shown.ended, place) for place, shown in enumerate(self._shown) if shown.ended is not None)
        surplus = {place for _, place in over[: max(0, len(self._shown) - MOST_JOBS)]}
        if surplus:
            self._shown = [shown for place, shown in enumerate(self._shown) if place not in surplus]


class NumbersExporter:
    """Folds the records of one job, stream or script into a board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._masker = Masker()
        self._numbers: AnyNumbers | None = None

    def apply(self, record: JournalRecord, arrived: float) -> None:
        if isinstance(record, StateChange):  # most of all records: snapshots tell the same
            return
        with self._board.locked():
            if isinstance(record, JobPlanned | StreamPlanned):
                plan = masked(record, self._masker)
                self._numbers = _job(plan, arrived) if isinstance(plan, JobPlanned) else _stream(plan, arrived)
                self._board.add(self._numbers)
            elif isinstance(record, ScriptPlanned):
                self._numbers = ScriptNumbers(record.script_id, self._masker.text(record.name))
                self._board.add(self._numbers)
            elif isinstance(self._numbers, JobNumbers):
                _apply_to_job(self._numbers, record, arrived, self._masker)
            elif isinstance(self._numbers, ScriptNumbers):
                _apply_to_script(self._numbers, record, arrived)
            elif self._numbers is not None:
                _apply_to_stream(self._numbers, record, arrived)

    def close(self, dropped: int) -> None:
        with self._board.locked():
            if self._numbers is not None:
                self._numbers.dropped = dropped
                self._numbers.ended = self._board.now() if self._numbers.ended is None else self._numbers.ended


def _job(plan: JobPlanned, began: float) -> JobNumbers:
    names = {int(vertex["id"]): str(vertex["name"]) for vertex in plan.vertices}
    kept = dict(list(names.items())[:MOST_VERTICES])
    return JobNumbers(plan.job_id, plan.job_name, began, vertices=kept, left_out=len(names) - len(kept))


def _stream(plan: Any, began: float) -> StreamNumbers:
    return StreamNumbers(plan.stream_id, plan.name, began, lower=plan.lower, upper=plan.upper)


def _apply_to_job(job: JobNumbers, record: JournalRecord, arrived: float, masker: Masker) -> None:
    match record:
        case MetricsSnapshot():
            told = masked(record, masker)
            assert isinstance(told, MetricsSnapshot)
            job.metrics = told.job
            job.by_vertex.update((vertex, told.vertices[vertex]) for vertex in told.vertices if vertex in job.vertices)
        case Decision():
            job.decisions[record.what] += 1
        case SlotUsage():
            job.groups[record.group] = record
        case JobStatusRecord():
            job.status = record.status
            job.ended = arrived if record.status in ENDED else None
        case GraphChanged():
            job.by_vertex.pop(record.absorbed, None)
            if record.into in job.vertices and record.vertex.get("name"):
                job.vertices[record.into] = masker.text(str(record.vertex["name"]))
        case _:
            pass


def _apply_to_stream(stream: StreamNumbers, record: JournalRecord, arrived: float) -> None:
    match record:
        case StreamBatch():
            stream.last = record
            stream.batches += record.batches
            stream.rows += record.rows
            stream.seconds += record.duration
        case StreamStateChange():
            stream.state = record.state
        case Decision():
            stream.decisions[record.what] += 1
        case RescaleRecord():
            stream.rescales[record.end] += 1
            stream.downtime += record.downtime or 0.0
        case StreamEnded():
            stream.status, stream.ended = record.status, arrived
        case _:
            pass


def _apply_to_script(script: ScriptNumbers, record: JournalRecord, arrived: float) -> None:
    match record:
        case QueryRecord():
            script.taken += not record.left
            script.left += bool(record.left)
            if record.check:
                script.checks[record.check] += 1
        case ScriptEnded():
            script.ended = arrived
        case _:
            pass


COUNTER, GAUGE = "counter", "gauge"
MOST_STEP_NUMBERS = 20
"""Of one vertex, of the numbers that its steps bring under names of their own."""

JOB, VERTEX, STREAM = ("job_id", "job"), ("job_id", "job", "vertex", "name"), ("stream_id", "stream")
COUNTERS = ("numRestarts", "numEffectiveSpeculativeExecutions")
"""Of the registry; all other numbers there are gauges."""


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    help: str
    kind: str = GAUGE
    labels: tuple[str, ...] = JOB


Sample = tuple[Family, tuple[str, ...], Number]
"""A family, the values of its labels, and the number."""

_REGISTRY_OF_JOBS = {
    "numRestarts": "Restarts after failures.",
    "numSlowExecutionVertices": "Subtasks that were found slow and have not finished.",
    "numEffectiveSpeculativeExecutions": "Mirrors of slow executions that finished first.",
    "numBlockedNodes": "Nodes that get nothing new.",
    "numSlotsAsked": "Executions that wait for a slot.",
    "numSlotsHeld": "Executions that hold a slot.",
}
_REGISTRY_OF_VERTICES = {
    "parallelism": "Subtasks, once decided.",
    **{f"num{state.name.title()}Tasks": f"Subtasks that are {state.name}." for state in ExecutionState},
    "numRecordsIn": "Rows read by the admitted attempts.",
    "numRecordsOut": "Rows given on by the admitted attempts.",
    "numBytesIn": "Plain bytes read by the admitted attempts.",
    "numBytesProduced": "Plain bytes of its results, a broadcast counted once.",
    "numBytesStored": "Bytes of its results as compressed on the storage.",
    "numBytesConsumed": "Plain bytes of what it read, as its parallelism was decided from, once it has finished.",
    "accumulateBusyTimeMs": "Milliseconds that its winners ran, together, once it has finished.",
}
OF_JOBS = {
    name: Family(f"job_{name}", text, COUNTER if name in COUNTERS else GAUGE)
    for name, text in _REGISTRY_OF_JOBS.items()
}
OF_VERTICES = {name: Family(f"vertex_{name}", text, labels=VERTEX) for name, text in _REGISTRY_OF_VERTICES.items()}

JOB_STATUS = Family("job_status", "1 for the status that the job has.", labels=(*JOB, "status"))
JOB_SECONDS = Family("job_uptime_seconds", "Seconds since the job began, until its end.")
JOB_VERTICES_LEFT_OUT = Family(
    "job_vertices_left_out", "Vertices of a very large job that have no metrics of their own."
)
JOB_DECISIONS = Family("job_decisions", "Decisions, by what was decided.", COUNTER, (*JOB, "what"))
JOB_DROPPED = Family("job_dropped_records", "Records that monitoring left out, for it could not keep up.", COUNTER)
STEP_REPORTED = Family(
    "step_reported",
    "What a step of the user's counts beside rows and bytes: rows it could not do, set-ups, calls of services.",
    labels=(*VERTEX, "step", "count"),
)
_GROUP = (*JOB, "group")
_GROUPS = {
    "asked": Family("group_slots_asked", "Executions of a slot sharing group that wait for a slot.", labels=_GROUP),
    "held": Family("group_slots_held", "Executions of a slot sharing group that hold a slot.", labels=_GROUP),
    "core_seconds": Family("group_core_seconds", "Seconds of cores that the group's slots were held.", COUNTER, _GROUP),
    "gib_seconds": Family("group_gib_seconds", "GiB times seconds that the group's slots were held.", COUNTER, _GROUP),
    "waited_seconds": Family(
        "group_waited_seconds", "Seconds in which any execution of the group waited.", COUNTER, _GROUP
    ),
}
"""By the fields of ``SlotUsage``."""

STREAM_STATUS = Family("stream_status", "1 for the status that the stream has.", labels=(*STREAM, "status"))
STREAM_STATE = Family("stream_state", "1 for the state that its scheduler is in.", labels=(*STREAM, "state"))
STREAM_SECONDS = Family("stream_uptime_seconds", "Seconds since the stream was started, until its end.", labels=STREAM)
STREAM_RESCALES = Family("stream_rescales", "Rescales by their end.", COUNTER, (*STREAM, "end"))
STREAM_DECISIONS = Family("stream_decisions", "Decisions, by what was decided.", COUNTER, (*STREAM, "what"))
_OF_STREAMS = {
    "lower": Family("stream_parallelism_lower", "The lower bound when the stream was started.", labels=STREAM),
    "upper": Family("stream_parallelism_upper", "The upper bound when the stream was started.", labels=STREAM),
    "batches": Family("stream_batches", "Batches that were committed.", COUNTER, STREAM),
    "rows": Family("stream_numRecordsIn", "Rows of the batches that were committed.", COUNTER, STREAM),
    "seconds": Family("stream_batch_seconds", "Seconds that batches took, together.", COUNTER, STREAM),
    "downtime": Family(
        "stream_downtime_seconds", "Seconds that rescales kept the stream from its work.", COUNTER, STREAM
    ),
    "dropped": Family("stream_dropped_records", "Records that monitoring left out.", COUNTER, STREAM),
}
"""By the fields of ``StreamNumbers``."""
_OF_LAST_BATCHES = {
    "parallelism": Family("stream_parallelism", "Partitions of the last batch.", labels=STREAM),
    "input_rate": Family("stream_input_rate", "Rows that come in a second, as of the last batch.", labels=STREAM),
    "state_rows": Family("stream_state_rows", "Rows of the query's state.", labels=STREAM),
    "state_bytes": Family("stream_state_bytes", "Bytes of the query's state.", labels=STREAM),
    "backlog": Family("stream_backlog", "What waits in the sources, where they say so: rows or files.", labels=STREAM),
}
"""By the fields of the last ``StreamBatch``."""

_SCRIPT = ("script_id", "script")
SCRIPT_QUERIES = Family(
    "script_queries",
    "Queries of an accelerated script, by who computed them: firesteel or spark.",
    COUNTER,
    (*_SCRIPT, "by"),
)
SCRIPT_CHECKS = Family(
    "script_checks",
    "Queries that firesteel.sql.verify has drawn, by how their check ended: same, differs or skipped.",
    COUNTER,
    (*_SCRIPT, "end"),
)
CHECK_ENDS = ("same", "differs", "skipped")

FAMILIES: tuple[Family, ...] = (
    *(JOB_STATUS, JOB_SECONDS, *OF_JOBS.values(), JOB_VERTICES_LEFT_OUT, JOB_DECISIONS, JOB_DROPPED),
    *(*OF_VERTICES.values(), STEP_REPORTED, *_GROUPS.values()),
    *(STREAM_STATUS, STREAM_STATE, STREAM_SECONDS, STREAM_RESCALES, STREAM_DECISIONS),
    *(*_OF_STREAMS.values(), *_OF_LAST_BATCHES.values(), SCRIPT_QUERIES, SCRIPT_CHECKS),
)
"""All there are."""


def samples(board: Board) -> list[Sample]:
    """All samples as they stand now."""
    with board.locked():
        return [sample for numbers in board.shown() for sample in _of(numbers, board.now())]


def _of(numbers: AnyNumbers, now: float) -> Iterator[Sample]:
    if isinstance(numbers, ScriptNumbers):
        return _of_script(numbers)
    return _of_job(numbers, now) if isinstance(numbers, JobNumbers) else _of_stream(numbers, now)


def _of_script(script: ScriptNumbers) -> Iterator[Sample]:
    whose = (script.id, script.name)
    yield SCRIPT_QUERIES, (*whose, "firesteel"), script.taken
    yield SCRIPT_QUERIES, (*whose, "spark"), script.left
    for end in CHECK_ENDS:
        yield SCRIPT_CHECKS, (*whose, end), script.checks[end]


def _of_job(job: JobNumbers, now: float) -> Iterator[Sample]:
    whose = (job.id, job.name)
    yield JOB_STATUS, (*whose, job.status), 1
    yield JOB_SECONDS, whose, (job.ended or now) - job.began
    yield JOB_DROPPED, whose, job.dropped
    if job.left_out:
        yield JOB_VERTICES_LEFT_OUT, whose, job.left_out
    for what, count in job.decisions.items():
        yield JOB_DECISIONS, (*whose, what), count
    for name, value in job.metrics.items():
        if name in OF_JOBS:
            yield OF_JOBS[name], whose, value
    for group, usage in job.groups.items():
        for name, family in _GROUPS.items():
            yield family, (*whose, group), getattr(usage, name)
    for vertex, metrics in job.by_vertex.items():
        yield from _of_vertex((*whose, str(vertex), job.vertices[vertex]), metrics)


def _of_vertex(whose: tuple[str, ...], metrics: Mapping[str, Number]) -> Iterator[Sample]:
    left = MOST_STEP_NUMBERS
    for name, value in metrics.items():
        if name in OF_VERTICES:
            yield OF_VERTICES[name], whose, value
        elif left and "." in name:
            left -= 1
            step, _, count = name.rpartition(".")
            yield STEP_REPORTED, (*whose, step, count), value


def _of_stream(stream: StreamNumbers, now: float) -> Iterator[Sample]:
    whose = (stream.id, stream.name)
    yield STREAM_STATUS, (*whose, stream.status), 1
    if stream.state:
        yield STREAM_STATE, (*whose, stream.state), 1
    yield STREAM_SECONDS, whose, (stream.ended or now) - stream.began
    for end, count in stream.rescales.items():
        yield STREAM_RESCALES, (*whose, end), count
    for what, count in stream.decisions.items():
        yield STREAM_DECISIONS, (*whose, what), count
    for families, told in ((_OF_STREAMS, stream), (_OF_LAST_BATCHES, stream.last)):
        for name, family in families.items():
            if (value := getattr(told, name, None)) is not None:
                yield family, whose, value

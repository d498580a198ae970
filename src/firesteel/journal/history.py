"""Folds a job's records into what is known of it: the one reading of the journal that explain and progress share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from firesteel.humanize import format_bytes, format_count, plural
from firesteel.scheduler.records import (
    Decision,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    StateChange,
)

WAITING = ("CREATED", "SCHEDULED")
RUNNING = ("DEPLOYING", "INITIALIZING", "RUNNING")
DONE = ("FINISHED",)
TERMINAL_STATUS = ("FINISHED", "FAILED", "CANCELED")


@dataclass(slots=True)
class Failure:
    at: float
    subtasks: list[int]
    attempts: list[int]
    cause: str


@dataclass(slots=True)
class VertexHistory:
    """What the records say of one job vertex. Bytes are plain, times as in the records."""

    id: int
    name: str
    inputs: list[int] = field(default_factory=list)
    """The vertices it reads from."""
    parallelism: int | None = None
    """None: still open."""
    decisions: list[Decision] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    metrics: Mapping[str, int | float] = field(default_factory=dict[str, "int | float"])
    """Its numbers by their names in ``scheduler.metrics``, as last written down."""
    first_at: float | None = None
    last_at: float | None = None
    attempts: dict[int, int] = field(default_factory=dict)
    """Subtask to its number of attempts, for those that needed more than one."""
    states: dict[int, str] = field(default_factory=dict)
    by_state: Counter[str] = field(default_factory=Counter)

    def number(self, name: str) -> int:
        """One of its metrics; 0 while it is not known."""
        return int(self.metrics.get(name, 0))

    def counts(self) -> tuple[int, int, int]:
        """Subtasks (waiting, running, done)."""
        running = sum(self.by_state[s] for s in RUNNING)
        done = sum(self.by_state[s] for s in DONE)
        total = self.parallelism if self.parallelism is not None else len(self.states)
        return max(0, total - running - done), running, done

    @property
    def is_done(self) -> bool:
        return self.parallelism is not None and self.counts()[2] >= self.parallelism

    @property
    def seconds(self) -> float | None:
        """From the first execution scheduled to the last one ended."""
        return None if self.first_at is None or self.last_at is None else max(0.0, self.last_at - self.first_at)


class JobHistory:
    """``apply`` takes the records of one job in order, live or from a journal."""

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        self.plan: JobPlanned | None = None
        self.vertices: dict[int, VertexHistory] = {}
        self.decisions: list[Decision] = []
        """Those that concern no single vertex."""
        self.metrics: Mapping[str, int | float] = {}
        """The job's own numbers."""
        self.status = "CREATED"
        self.cause = ""
        self.started_at: float | None = None
        self.last_at: float | None = None
        for record in records:
            self.apply(record)

    @property
    def seconds(self) -> float:
        return 0.0 if self.started_at is None or self.last_at is None else max(0.0, self.last_at - self.started_at)

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL_STATUS

    def apply(self, record: JournalRecord) -> None:
        self.started_at = record.at if self.started_at is None else min(self.started_at, record.at)
        self.last_at = record.at if self.last_at is None else max(self.last_at, record.at)
        match record:
            case JobPlanned():
                self._planned(record)
            case Decision():
                self._decided(record)
            case StateChange():
                self._changed(record)
            case MetricsSnapshot():
                self._measured(record)
            case JobStatusRecord():
                self.status, self.cause = record.status, record.cause or self.cause
            case _:
                pass

    def vertex(self, number: int) -> VertexHistory:
        return self.vertices.setdefault(number, VertexHistory(number, f"vertex {number}"))

    def _planned(self, record: JobPlanned) -> None:
        self.plan = record
        for number, described in enumerate(record.vertices):
            vertex = self.vertex(int(described.get("id", number)))
            vertex.name = str(described.get("name") or vertex.name)
            vertex.inputs = [int(producer) for producer in described.get("inputs") or []]

    def _decided(self, record: Decision) -> None:
        if record.vertex is None:
            self.decisions.append(record)
            return
        vertex = self.vertex(record.vertex)
        vertex.decisions.append(record)
        if is_parallelism(record):
            vertex.parallelism = _parallelism(record.result)

    def _changed(self, record: StateChange) -> None:
        vertex = self.vertex(record.vertex)
        vertex.by_state.subtract(vertex.states[s] for s in record.subtasks if s in vertex.states)
        vertex.states.update(dict.fromkeys(record.subtasks, record.state))
        vertex.by_state[record.state] += len(record.subtasks)
        _count_attempts(vertex, record.subtasks, record.attempts)
        if record.state != "CREATED" and vertex.first_at is None:
            vertex.first_at = record.at
        vertex.last_at = record.at
        if record.state == "FAILED":
            vertex.failures.append(Failure(record.at, record.subtasks, record.attempts, record.cause))

    def _measured(self, record: MetricsSnapshot) -> None:
        self.metrics = record.job
        for number, metrics in record.vertices.items():
            vertex = self.vertex(number)
            vertex.metrics = metrics
            vertex.parallelism = int(metrics["parallelism"])


def is_parallelism(decision: Decision) -> bool:
    return decision.what in ("parallelism", "source parallelism")


def _parallelism(result: Any) -> int:
    """A decision's result is the number, or a table that has it."""
    return int(result["parallelism"] if isinstance(result, dict) else result)


def _count_attempts(vertex: VertexHistory, subtasks: Sequence[int], attempts: Sequence[int]) -> None:
    for subtask, attempt in zip(subtasks, attempts, strict=False):
        if attempt > 0:
            vertex.attempts[subtask] = max(vertex.attempts.get(subtask, 0), attempt + 1)


def produced(vertex: VertexHistory) -> str:
    """``200 rows, 3 MiB``; what goes to a sink has rows only."""
    return weighed(vertex.number("numRecordsOut"), vertex.number("numBytesProduced"))


def weighed(rows: int, size: int) -> str:
    """``200 rows, 3 MiB``. What is unknown is left out: rows of simulated bytes, bytes that went to a sink."""
    if size and not rows:
        return format_bytes(size)
    return f"{plural(rows, 'row')}, {format_bytes(size)}" if size else plural(rows, "row")


def vertex_count(count: int) -> str:
    return "1 vertex" if count == 1 else f"{format_count(count)} vertices"


def subtask_numbers(subtasks: Iterable[int], limit: int = 6) -> str:
    """``0-7, 12`` with runs folded; what is beyond ``limit`` runs as ``and 40 more``."""
    runs: list[tuple[int, int]] = []
    for subtask in sorted(set(subtasks)):
        if runs and runs[-1][1] == subtask - 1:
            runs[-1] = (runs[-1][0], subtask)
        else:
            runs.append((subtask, subtask))
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit])
    left = sum(b - a + 1 for a, b in runs[limit:])
    return f"{text} and {format_count(left)} more" if left else text

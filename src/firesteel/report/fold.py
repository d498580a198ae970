"""Everything known so far of one job, stream or script, which explain, history, progress and the page share: folds that take its records one by one, live or from a journal.

The fold of a job keeps numbers in columns and decisions as they are, so its size grows with the job, not with the time it runs. The fold of
a stream keeps the latest changes, and its batches thinned out.
"""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.journal.file import last_record
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.model.reports import SET_UP_BYTES, SET_UP_MS, SET_UPS
from firesteel.options import FRAMEWORK_MEMORY, MAX_PARALLELISM, PARALLELISM_DEFAULT, SPECULATIVE_ENABLED
from firesteel.report.executions import BusySlots, Executions, Lives
from firesteel.scheduler.kernel.records import (
    REJECTED,
    RELEASED,
    RETIRED,
    Decision,
    GraphChanged,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    OutputGone,
    RowErrors,
    SlotUsage,
    StateChange,
)
from firesteel.scheduler.kernel.states import PRIORITY
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

MIB = 1 << 20


@dataclass(slots=True)
class GroupHistory:
    """One slot sharing group. Times as in the records."""

    name: str
    profile: ResourceProfile = ResourceProfile.UNKNOWN
    """Of one slot, as last written down: network memory enters it when it is known. UNKNOWN: a coarse group."""
    asked: int = 0
    """Executions that wait for a slot now."""
    held: int = 0
    most_asked: int = 0
    most_held: int = 0
    waited: float = 0.0
    """Seconds in which any execution waited."""
    core_seconds: float = 0.0
    gib_seconds: float = 0.0
    is_used: bool = False

    def apply(self, record: SlotUsage) -> None:
        if record.profile:
            self.profile = ResourceProfile.of_numbers(record.profile)
        self.is_used = True
        self.asked, self.held = record.asked, record.held
        self.most_asked, self.most_held = max(self.most_asked, record.asked), max(self.most_held, record.held)
        self.core_seconds, self.gib_seconds = record.core_seconds, record.gib_seconds
        self.waited = record.waited_seconds

    @property
    def needs(self) -> str:
        """``2 cores, 2 GiB heap, 1 gpu`` of a slot."""
        return str(self.profile) if self.profile.is_specified else "coarse, slots as they are"


@dataclass(slots=True)
class Peaks:
    """Most resident memory of the workers of a vertex's subtasks, in MiB; of those that finished."""

    by_subtask: dict[int, int] = field(default_factory=dict)

    @property
    def largest(self) -> tuple[int, int]:
        """(subtask, MiB); of several the first subtask."""
        return min(self.by_subtask.items(), key=lambda item: (-item[1], item[0]))

    @property
    def median(self) -> float:
        return statistics.median(self.by_subtask.values())


Groups = Mapping[str, GroupHistory]


def group_lines(
    group: GroupHistory, vertices: list[int], at_once: int, largest_peak: int, framework: int | None
) -> Iterator[str]:
    """Yields lines on a group: the needs of a slot, the group's vertices, what its slots came to.

    ``at_once``: executions that are known to have run together. ``largest_peak``: MiB, 0 where not watched. ``framework``: bytes
    that a worker may hold beside its slot; None: not known.
    """
    members = ", ".join(f"[{number}]" for number in vertices)
    yield f"{group.name}: {group.needs}{f'; {members}' if members else ''}."
    if not group.is_used:
        return
    most = max(group.most_held, at_once)
    waited = f", {format_count(group.most_asked)} waited at most" if group.most_asked else ""
    waited += f" ({format_seconds(group.waited)} in all)" if group.waited else ""
    if not most:
        yield f"No slot was held{waited}."
        return
    seconds = f"{_amount(group.core_seconds)} core-seconds, {_amount(group.gib_seconds)} GiB-seconds"
    share = _share(group.profile, largest_peak, framework)
    used = f"; at most {share} of a slot's memory was used" if share else ""
    yield f"{plural(most, 'slot')} held at once at most{waited}; {seconds} held in all{used}."


def peaks_text(peaks: Peaks, profile: ResourceProfile, framework: int | None) -> str:
    """``at most 312 MiB (subtask 7), median 240 MiB, of 768 MiB that a worker may hold (41 %).``"""
    subtask, most = peaks.largest
    median = f", median {format_bytes(peaks.median * MIB)}" if len(peaks.by_subtask) > 1 else ""
    limit = worker_limit(profile, framework)
    of = f", of {format_bytes(limit)} that a worker may hold ({percent(most * MIB / limit)})" if limit else ""
    return f"at most {format_bytes(most * MIB)} (subtask {subtask}){median}{of}"


def worker_limit(profile: ResourceProfile, framework: int | None) -> int | None:
    """Most resident bytes of a worker with such a slot; None: not known, or not limited."""
    if framework is None or not profile.is_specified or not profile.memory:
        return None
    return profile.memory + framework


def waiting_text(groups: Groups) -> str:
    """``12 of gpu, 3 of light``: executions that wait for a slot; empty: none."""
    return ", ".join(f"{format_count(group.asked)} of {name}" for name, group in sorted(groups.items()) if group.asked)


def _share(profile: ResourceProfile, largest_peak: int, framework: int | None) -> str:
    limit = worker_limit(profile, framework)
    return percent(largest_peak * MIB / limit) if limit and largest_peak else ""


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


RUNNING = ("DEPLOYING", "INITIALIZING", "RUNNING")
DONE = ("FINISHED",)
CANCELLED = ("CANCELING", "CANCELED")
TERMINAL_STATUS = ("FINISHED", "FAILED", "CANCELED")
_RANK = {state.name: rank for rank, state in enumerate(PRIORITY)}


@dataclass(slots=True)
class Failure:
    at: float
    subtasks: list[int]
    attempts: list[int]
    cause: str


@dataclass(slots=True)
class Blocked:
    """A node that got nothing new from ``start`` to ``end`` (as in the records), because of ``cause``."""

    node: str
    cause: str
    start: float
    end: float
    is_over: bool = False


@dataclass(slots=True)
class TimeLeft:
    """Of one vertex. ``apply`` takes its records in order; times are the job's."""

    begun: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """Start time of each execution (subtask, attempt) that runs now: as many as run, not as many as there are."""
    finished: int = 0
    spent: float = 0.0
    """Seconds that the finished ones ran, together."""

    def apply(self, record: StateChange) -> None:
        times = record.times or [record.at] * len(record.subtasks)
        executions = zip(record.subtasks, record.attempts, strict=False)
        if record.state in RUNNING:
            for execution, at in zip(executions, times, strict=False):
                self.begun.setdefault(execution, at)
            return
        starts = record.deployed or [-1.0] * len(record.subtasks)
        for execution, at, start in zip(executions, times, starts, strict=False):
            began = self.begun.pop(execution, start)
            if record.state == "FINISHED" and began >= 0:
                self.finished += 1
                self.spent += max(0.0, at - began)

    def seconds(self, now: float, waiting: int) -> float | None:
        """With ``waiting`` subtasks still to begin after those that run, as many at once as run now, each taking as long as the
        finished ones did on average. None: none has finished, or none runs."""
        running = len(self.begun)
        if not self.finished or not running:
            return None
        mean = self.spent / self.finished
        still = sum(max(0.0, mean - (now - began)) for began in self.begun.values())
        return (waiting * mean + still) / running


@dataclass(slots=True)
class VertexHistory:
    """History of one job vertex as folded from the records. Bytes are plain, times as in the records."""

    id: int
    name: str
    inputs: list[int] = field(default_factory=list)
    """The vertices it reads from."""
    parallelism: int | None = None
    """None: still open."""
    absorbed_by: int | None = None
    """The vertex whose tasks do its work; its own parallelism is 0 then."""
    not_mirrored: str = ""
    """The reason for which its slow executions get no mirrors, as known before the job ran; empty: they may."""
    slot_sharing_group: str = ""
    """Empty where no group of the job has resources."""
    peaks: Peaks = field(default_factory=Peaks)
    decisions: list[Decision] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    row_errors: list[RowErrors] = field(default_factory=list[RowErrors])
    """Some of the rows that a step could not do."""
    metrics: Mapping[str, int | float] = field(default_factory=dict[str, "int | float"])
    """Its numbers by their names in ``scheduler.metrics``, as last written down."""
    first_at: float | None = None
    last_at: float | None = None
    attempts: dict[int, int] = field(default_factory=dict)
    """Subtask to its number of attempts, for those that needed more than one."""
    opened: dict[int, int] = field(default_factory=dict)
    """Subtask to the attempt that a restart of it began with; earlier ones are over, whatever is heard of them."""
    concurrent: dict[int, dict[int, str]] = field(default_factory=dict)
    """Subtasks that several executions stand for: attempt to state."""
    mirrors: set[tuple[int, int]] = field(default_factory=set)
    """(subtask, attempt) of the copies of slow executions."""
    effective: int = 0
    """Mirrors that won."""
    rejected: int = 0
    """Executions that were rejected by blocked nodes."""
    states: dict[int, str] = field(default_factory=dict)
    """Of the execution that stands for each subtask: the one nearest to FINISHED (FLIP-168)."""
    by_state: Counter[str] = field(default_factory=Counter)
    left: TimeLeft = field(default_factory=TimeLeft, compare=False)
    """Empty in a history of records that are all there: nothing runs."""

    def subtasks_in_words(self, undecided: str = "open") -> str:
        """``3 subtasks``, or whose tasks do its work. ``undecided``: the word for a parallelism that is still open."""
        if self.absorbed_by is not None:
            return f"in the tasks of [{self.absorbed_by}]"
        return undecided if self.parallelism is None else plural(self.parallelism, "subtask")

    @property
    def decided(self) -> Decision | None:
        """The decision on its parallelism; None: it is open, or was never written down."""
        return next((each for each in reversed(self.decisions) if is_parallelism(each)), None)

    @property
    def failed(self) -> int:
        """Attempts that failed."""
        return sum(len(failure.subtasks) for failure in self.failures)

    def known(self, name: str) -> int | None:
        """One of its metrics; None while it is not known."""
        return None if name not in self.metrics else int(self.metrics[name])

    def number(self, name: str) -> int:
        """One of its metrics; 0 while it is not known."""
        return self.known(name) or 0

    @property
    def steps(self) -> dict[str, dict[str, int]]:
        """The counts of its steps, beside rows and bytes, by step; "": of all together, as older journals have set-ups."""
        found: dict[str, dict[str, int]] = {}
        for name, number in self.metrics.items():
            step, dot, counter = name.rpartition(".")
            if dot or counter in (SET_UPS, SET_UP_MS, SET_UP_BYTES):
                found.setdefault(step, {})[counter] = int(number)
        return found

    def counts(self) -> tuple[int, int, int]:
        """Subtasks (waiting, running, done)."""
        running = sum(self.by_state[s] for s in RUNNING)
        done = sum(self.by_state[s] for s in DONE)
        total = self.parallelism if self.parallelism is not None else len(self.states)
        return max(0, total - running - done), running, done

    @property
    def running_mirrors(self) -> int:
        return sum(self.concurrent.get(subtask, {}).get(attempt) in RUNNING for subtask, attempt in self.mirrors)

    def enter(self, subtask: int, attempt: int, state: str) -> None:
        """One execution went to this state; its subtask is in that of its best one."""
        if attempt < self.opened.get(subtask, 0):
            return
        beside = self.concurrent.get(subtask)
        if beside is not None:
            beside[attempt] = state
            state = min(beside.values(), key=_RANK.__getitem__)
        if subtask in self.states:
            self.by_state[self.states[subtask]] -= 1
        self.states[subtask] = state
        self.by_state[state] += 1

    @property
    def is_done(self) -> bool:
        return self.parallelism is not None and self.counts()[2] >= self.parallelism

    @property
    def seconds(self) -> float | None:
        """From the first execution scheduled to the last one ended."""
        return None if self.first_at is None or self.last_at is None else max(0.0, self.last_at - self.first_at)


class RecordFold(ABC):
    """What the folds of jobs, streams and scripts share: the times of their records, in seconds of the records' own clock.

    ``apply`` takes the records in order, live or from a journal. ``zero`` is the earliest time.
    """

    def __init__(self, records: Iterable[JournalRecord] = (), *, runs: bool = False) -> None:
        """``runs``: time passes between records, too, until :meth:`stop` or the end."""
        self._runs = runs
        self._clock = math.inf
        """The value of ``time.monotonic`` at time 0 of the records, at the latest: each record arrives a little late."""
        self.started_at: float | None = None
        self.last_at: float | None = None
        self.version = 0
        """The number of records so far."""
        for record in records:
            self.apply(record)

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """The records say that it has ended."""

    @property
    def zero(self) -> float:
        return self.started_at or 0.0

    @property
    def now(self) -> float:
        """The time of the last record, or later while it runs."""
        last = self.last_at or 0.0
        return max(last, time.monotonic() - self._clock) if self._runs and not self.is_over else last

    @property
    def elapsed(self) -> float:
        """Seconds from its start until now."""
        return self.now - self.zero

    def began_by(self, moment: float) -> None:
        """``moment``: the value of ``time.monotonic`` at time 0 of the records, at the latest."""
        self._clock = min(self._clock, moment)

    def stop(self) -> None:
        """No more records are written: time stands still."""
        self._runs = False

    def apply(self, record: JournalRecord) -> None:
        if self._runs:
            self.began_by(time.monotonic() - record.at)
        self.started_at = record.at if self.started_at is None else min(self.started_at, record.at)
        self.last_at = record.at if self.last_at is None else max(self.last_at, record.at)
        self.version += 1


class JobHistory(RecordFold):
    """The history of one job."""

    def __init__(self, records: Iterable[JournalRecord] = (), *, runs: bool = False) -> None:
        self.plan: JobPlanned | None = None
        self.described: Mapping[int, Mapping[str, Any]] = {}
        """The vertices by id, as the plan describes them."""
        self.vertices: dict[int, VertexHistory] = {}
        self.decisions: list[Decision] = []
        """The decisions that concern no single vertex."""
        self.metrics: Mapping[str, int | float] = {}
        """The job's own numbers."""
        self.blocks: list[Blocked] = []
        self.groups: dict[str, GroupHistory] = {}
        """By name; none where no group of the job has resources."""
        self.status = "CREATED"
        self.cause = ""
        super().__init__(records, runs=runs)

    @property
    def seconds(self) -> float:
        """From its first record to its last one."""
        return 0.0 if self.started_at is None or self.last_at is None else max(0.0, self.last_at - self.started_at)

    @property
    def name(self) -> str:
        return self.plan.job_name if self.plan else "job"

    @property
    def id(self) -> str:
        return self.plan.job_id if self.plan else ""

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL_STATUS

    @property
    def is_speculative(self) -> bool:
        return self.plan is not None and self.plan.options.get(SPECULATIVE_ENABLED.key) is True

    @property
    def blocked(self) -> list[Blocked]:
        """The nodes that are blocked now."""
        return [block for block in self.blocks if not block.is_over]

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case JobPlanned():
                try:
                    self._planned(record)
                except (TypeError, ValueError, AttributeError) as error:
                    raise UsageError(f"The plan in the journal is not a job's: {error}.") from None
            case GraphChanged():
                self._absorbed(record)
            case Decision():
                self._decided(record)
            case StateChange():
                self._changed(record)
            case MetricsSnapshot():
                self._measured(record)
            case RowErrors():
                self.vertex(record.vertex).row_errors.append(record)
            case SlotUsage():
                self.groups.setdefault(record.group, GroupHistory(record.group)).apply(record)
            case JobStatusRecord():
                self.status, self.cause = record.status, record.cause or self.cause
            case _:
                pass

    def group_of(self, vertex: VertexHistory) -> GroupHistory | None:
        """None where no group of the job has resources."""
        return self.groups.get(vertex.slot_sharing_group)

    def vertex(self, number: int) -> VertexHistory:
        """One that was not heard of begins now."""
        found = self.vertices.get(number)
        if found is None:
            found = self.vertices[number] = VertexHistory(number, f"vertex {number}")
        return found

    def seconds_left(self, vertex: VertexHistory) -> float | None:
        """None: it cannot be known (yet)."""
        if vertex.parallelism is None or vertex.is_done or self.is_over:
            return None
        return vertex.left.seconds(self.now, vertex.counts()[0])

    def bound(self, vertex: VertexHistory) -> int | None:
        """The most subtasks that a vertex whose parallelism is open may get; the number itself where the user has fixed it.
        None: not known."""
        if self.plan is None:
            return None
        described, options = self.described.get(vertex.id, {}), self.plan.options
        fixed, own = described.get("parallelism"), described.get("max_parallelism")
        if isinstance(fixed, int) and fixed > 0:
            return fixed
        default = options.get(PARALLELISM_DEFAULT.key) or MAX_PARALLELISM.default
        common = options.get(MAX_PARALLELISM.key, default)
        return min(int(common), own) if isinstance(own, int) and own > 0 else int(common)

    @property
    def framework_memory(self) -> int | None:
        """Bytes that a worker may hold in addition to its slot's memory; None: the plan is not known."""
        return self.plan and int(self.plan.options.get(FRAMEWORK_MEMORY.key, FRAMEWORK_MEMORY.default))

    def memory_text(self, vertex: VertexHistory) -> str:
        """The most resident memory of the vertex' workers, and the limit; empty: not watched."""
        if not vertex.peaks.by_subtask:
            return ""
        group = self.group_of(vertex)
        return peaks_text(vertex.peaks, group.profile if group else ResourceProfile.UNKNOWN, self.framework_memory)

    def state_of(self, vertex: VertexHistory) -> str:
        """One word: ``waiting`` (for its inputs), ``queued``, ``running``, ``done``, ``restarting``, ``failed``, ``cancelled``."""
        if vertex.is_done:
            return "done"
        if self.is_over:
            return "failed" if vertex.by_state["FAILED"] else "cancelled" if vertex.states else "not begun"
        if vertex.parallelism is None:
            return "waiting"
        if vertex.counts()[1]:
            return "running"
        return "restarting" if vertex.by_state["FAILED"] or self.status == "RESTARTING" else "queued"

    def _planned(self, record: JobPlanned) -> None:
        self.plan = record
        for name, needs in record.slot_sharing_groups.items():
            self.groups[name] = GroupHistory(name, ResourceProfile.of_numbers(needs))
        self.described = {int(each.get("id", number)): each for number, each in enumerate(record.vertices)}
        for number, described in self.described.items():
            vertex = self.vertex(number)
            vertex.name = str(described.get("name") or vertex.name)
            vertex.not_mirrored = str(described.get("not_mirrored") or "")
            vertex.slot_sharing_group = str(described.get("slot_sharing_group") or "")
            vertex.inputs = [int(producer) for producer in described.get("inputs") or []]

    def _absorbed(self, record: GraphChanged) -> None:
        absorbed, into = self.vertex(record.absorbed), self.vertex(record.into)
        absorbed.absorbed_by, absorbed.parallelism = into.id, 0
        for vertex in self.vertices.values():
            if vertex.absorbed_by == absorbed.id:
                vertex.absorbed_by = into.id
        into.name = str(record.vertex.get("name") or into.name)
        into.inputs = [int(producer) for producer in record.vertex.get("inputs") or []]

    def _decided(self, record: Decision) -> None:
        if record.vertex is None:
            if not self._blocked(record):
                self.decisions.append(record)
            return
        vertex = self.vertex(record.vertex)
        vertex.decisions.append(record)
        if is_parallelism(record):
            vertex.parallelism = _parallelism(record.result)

    def _blocked(self, record: Decision) -> bool:
        """Folds a decision that blocks or unblocks a node, and returns True; False for any other decision."""
        if record.what != "blocklist" or "node" not in record.inputs:
            return False
        block = Blocked(*(record.inputs[name] for name in ("node", "cause", "start", "end")))
        for known in self.blocked:
            if known.node == block.node:
                known.end, known.is_over = block.end, record.result == "unblocked"
                return True
        self.blocks.append(block)
        return True

    def _changed(self, record: StateChange) -> None:
        vertex = self.vertex(record.vertex)
        if self._runs:
            vertex.left.apply(record)
        if record.state == "CREATED":
            _created(vertex, record)
        if vertex.opened or vertex.concurrent:
            for subtask, attempt in zip(record.subtasks, record.attempts, strict=True):
                vertex.enter(subtask, attempt, record.state)
        else:
            vertex.by_state.subtract(vertex.states[s] for s in record.subtasks if s in vertex.states)
            vertex.states.update(dict.fromkeys(record.subtasks, record.state))
            vertex.by_state[record.state] += len(record.subtasks)
        _count_attempts(vertex, record.subtasks, record.attempts)
        if record.state != "CREATED" and vertex.first_at is None:
            vertex.first_at = min(record.times, default=record.at)
        if not (record.state in CANCELLED and vertex.is_done):  # losers end when they end
            vertex.last_at = max(record.at, vertex.last_at or record.at)  # what is put together may overtake others
        if record.peaks:
            vertex.peaks.by_subtask.update(zip(record.subtasks, record.peaks, strict=False))
        if record.state == "FAILED":
            vertex.failures.append(Failure(record.at, list(record.subtasks), list(record.attempts), record.cause))
        elif record.state == "FINISHED" and vertex.mirrors:
            vertex.effective += len(vertex.mirrors.intersection(zip(record.subtasks, record.attempts, strict=True)))
        elif record.state == "CANCELED" and record.cause in (REJECTED, RETIRED):
            vertex.rejected += len(record.subtasks) if record.cause == REJECTED else 0
            vertex.mirrors.difference_update(zip(record.subtasks, record.attempts, strict=True))

    def _measured(self, record: MetricsSnapshot) -> None:
        self.metrics = record.job
        for number, metrics in record.vertices.items():
            vertex = self.vertex(number)
            vertex.metrics = metrics
            vertex.parallelism = int(metrics["parallelism"])


def is_parallelism(decision: Decision) -> bool:
    return decision.what in ("parallelism", "source parallelism")


def parallelism_of(decision: Decision) -> int | None:
    """The parallelism that was decided; None: the decision is about something else."""
    if not is_parallelism(decision):
        return None
    found = decision.result.get("parallelism") if isinstance(decision.result, dict) else decision.result
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _parallelism(result: Any) -> int:
    """A decision's result is the number, or a table that has it."""
    return int(result["parallelism"] if isinstance(result, dict) else result)


def _created(vertex: VertexHistory, record: StateChange) -> None:
    """Executions that join those of their subtasks, or take the place of all of them."""
    for place, (subtask, attempt) in enumerate(zip(record.subtasks, record.attempts, strict=True)):
        if not record.beside:
            vertex.opened[subtask] = attempt
            vertex.concurrent.pop(subtask, None)
            continue
        alone = {vertex.attempts.get(subtask, 1) - 1: vertex.states.get(subtask, "CREATED")}
        vertex.concurrent.setdefault(subtask, alone)
        if record.mirrors and record.mirrors[place]:
            vertex.mirrors.add((subtask, attempt))


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


MOST_POINTS = 500
"""Batches, and levels of parallelism, that a stream's charts have."""
MOST_RESCALES = 1000
MOST_STORY = 1000


class JobFold(JobHistory):
    """A job, with all of its executions and decisions."""

    def __init__(self, records: Iterable[JournalRecord] = (), *, runs: bool = False) -> None:
        self.executions: defaultdict[int, Executions] = defaultdict(Executions)
        self.all_decisions: list[Decision] = []
        """All decisions in order, also those about vertices and nodes."""
        self.kept: list[JournalRecord] = []
        """The records that decisions can be made from again: the plan, changes of it, decisions."""
        self.statuses: list[JobStatusRecord] = []
        self.waiting: dict[str, list[tuple[float, int]]] = {}
        """Of groups with resources: (time, executions that wait for a slot from then on). Its length goes with the logarithm of the job's time."""
        self._reads: dict[int, list[int]] = {}
        super().__init__(records, runs=runs)

    def reads(self, vertex: int) -> list[int]:
        """Data sets that the vertex reads; empty: none, or the journal does not tell."""
        return self._reads.get(vertex, [])

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case StateChange():
                self.executions[record.vertex].apply(record)
            case OutputGone():
                if record.reason != RELEASED:
                    self.executions[record.vertex].lost(record)
            case Decision():
                self.all_decisions.append(record)
                self.kept.append(record)
            case JobPlanned():
                self.kept.append(record)
                self._reads |= {number: each.get("datasets") or [] for number, each in self.described.items()}
            case GraphChanged():
                self.kept.append(record)
                self._reads[record.into] = record.vertex.get("datasets") or []
            case JobStatusRecord():
                self.statuses.append(record)
            case SlotUsage():
                self.waiting.setdefault(record.group, []).append((record.at, record.asked))
            case _:
                pass

    def most_at_once(self, vertices: Iterable[int]) -> int:
        """Returns the most executions of these vertices that ran at the same time; only those that finished count.

        Counting as records arrive would find fewer: launches are often recorded only when all is over.
        """
        columns = [self.executions[vertex] for vertex in vertices if vertex in self.executions]
        done = [(each, each.won() & ~np.isnan(each.began)) for each in columns]
        return BusySlots((each.began[rows], each.ended[rows]) for each, rows in done).most(-math.inf, math.inf)

    def lives(self, vertex: int | None = None, *, all_of_them: bool = False) -> Lives:
        """Of the subtasks (of one vertex, or of the job) that had several attempts; ``all_of_them``: of those with one too."""
        chosen = sorted(self.executions) if vertex is None else [vertex] if vertex in self.executions else []
        return {
            (number, subtask): lives
            for number in chosen
            for subtask, lives in self.executions[number].lives(all_of_them=all_of_them).items()
        }


@dataclass(slots=True)
class Batches:
    """Totals of the committed batches. Bytes and rows of state are those of the last one."""

    count: int = 0
    rows: int = 0
    seconds: float = 0.0
    """Spent in them."""
    last: StreamBatch | None = None

    def apply(self, record: StreamBatch) -> None:
        self.count += record.batches
        self.rows += record.rows
        self.seconds += record.duration
        self.last = record


class StreamFold(RecordFold):
    """A stream."""

    def __init__(self, records: Iterable[JournalRecord] = (), *, runs: bool = False, whole: bool = False) -> None:
        """``whole``: keeps every rescale, change and level of parallelism, not only the latest ones."""
        self.plan: StreamPlanned | None = None
        self.state, self.phase, self.cause = "Created", "", ""
        self.totals = Batches()
        self.batches: list[StreamBatch] = []
        """Thinned: of more than twice MOST_POINTS each two neighbours become one."""
        self.levels: deque[tuple[float, int]] = deque(maxlen=None if whole else MOST_POINTS)
        """(time, parallelism from then on)."""
        self.rescales: deque[RescaleRecord] = deque(maxlen=None if whole else MOST_RESCALES)
        self.num_rescales = 0
        self.story: deque[Decision | StreamStateChange | RescaleRecord] = deque(maxlen=None if whole else MOST_STORY)
        self.num_story = 0
        self.end: StreamEnded | None = None
        super().__init__(records, runs=runs)

    @property
    def id(self) -> str:
        return self.plan.stream_id if self.plan else ""

    @property
    def is_over(self) -> bool:
        return self.end is not None

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case StreamPlanned():
                self.plan = record
            case StreamBatch():
                self._committed(record)
            case StreamStateChange():
                self.state, self.phase, self.cause = record.state, record.phase, record.cause
                self._told(record)
            case RescaleRecord():
                self.rescales.append(record)
                self.num_rescales += 1
                self._told(record)
            case Decision():
                self._told(record)
            case StreamEnded():
                self.end = record
            case _:
                pass

    def _told(self, record: Decision | StreamStateChange | RescaleRecord) -> None:
        self.story.append(record)
        self.num_story += 1

    def _committed(self, record: StreamBatch) -> None:
        self.totals.apply(record)
        if not self.levels or self.levels[-1][1] != record.parallelism:
            self.levels.append((record.at, record.parallelism))
        self.batches.append(record)
        if len(self.batches) > 2 * MOST_POINTS:
            self.batches = thinned(self.batches)


def thinned(batches: list[StreamBatch]) -> list[StreamBatch]:
    """Half as many: each two neighbours together."""
    pairs = zip(batches[::2], batches[1::2], strict=False)
    odd = batches[len(batches) & ~1 :]
    return [*(_together(one, other) for one, other in pairs), *odd]


def _together(one: StreamBatch, other: StreamBatch) -> StreamBatch:
    """``other`` is the later one; what is no sum is its."""
    return replace(
        other,
        rows=one.rows + other.rows,
        duration=one.duration + other.duration,
        batches=one.batches + other.batches,
        input_rate=max(one.input_rate, other.input_rate),
    )


class ScriptFold(RecordFold):
    """An accelerated script."""

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        self.plan: ScriptPlanned | None = None
        self.queries: list[QueryRecord] = []
        self.end: ScriptEnded | None = None
        super().__init__(records)

    @property
    def id(self) -> str:
        return self.plan.script_id if self.plan else ""

    @property
    def is_over(self) -> bool:
        return self.end is not None

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case ScriptPlanned():
                self.plan = record
            case QueryRecord():
                self.queries.append(record)
            case ScriptEnded():
                self.end = record
            case _:
                pass


Fold = JobFold | StreamFold | ScriptFold


def fold_for(first: JournalRecord, *, runs: bool = False) -> Fold:
    """Returns an empty fold for the journal that begins with this record."""
    if isinstance(first, StreamPlanned):
        return StreamFold(runs=runs)
    return ScriptFold() if isinstance(first, ScriptPlanned) else JobFold(runs=runs)


def kind_of(records: Sequence[JournalRecord]) -> str:
    """Returns ``job``, ``stream`` or ``script``: the kind of the journal."""
    first = records[0] if records else None
    return "stream" if isinstance(first, StreamPlanned) else "script" if isinstance(first, ScriptPlanned) else "job"


def check_job(records: Sequence[JournalRecord], stream: str, hint: str) -> None:
    """Raises UsageError for the journal of a script or a stream. ``stream``, ``hint``: the sentence and hint for a stream."""
    if kind_of(records) == "script":
        raise UsageError("This is a script.", hint="'firesteel explain' names the jobs of its queries.")
    if kind_of(records) == "stream":
        raise UsageError(stream, hint=hint)


def committed_batch(record: JournalRecord) -> StreamBatch | None:
    """Returns the record if it is a committed batch, else None."""
    return record if isinstance(record, StreamBatch) else None


def how_it_ended(journal: str) -> StreamEnded | None:
    """Returns the record of the stream's end from the journal at this path; None: there is no such record."""
    record = last_record(journal) if journal else None
    return record if isinstance(record, StreamEnded) else None

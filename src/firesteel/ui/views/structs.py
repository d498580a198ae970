"""All that is shown, as frozen structs: what the REST answers, and what the pages are made of.

Units, unless a field says otherwise: ``at``, ``began`` of an attempt, and all other moments are seconds since the job began (0);
``JobSummary.began`` is seconds since 1970. Durations are seconds, sizes plain (uncompressed) bytes. None: not known, or not yet.
Subtasks and attempts are counted from 0, as in the records; people count attempts from 1 (``Attempt.label``).
Texts are the users' (names, causes, paths): whoever shows them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

import msgspec

from firesteel.errors import UsageError

T = TypeVar("T")
Item = TypeVar("Item")


class UnknownThing(UsageError):
    """There is no such job, vertex, subtask or page."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all of them: immutable, made by keyword."""

    @classmethod
    def of(cls, one: Any, **more: Any) -> Self:
        """Makes a view of ``more``, and of the attributes of ``one`` that have the names of other fields."""
        names = (name for name in cls.__struct_fields__ if name not in more and hasattr(one, name))
        return cls(**{name: getattr(one, name) for name in names}, **more)


class Page(View, Generic[Item], frozen=True):
    """Some of ``total`` items, from number ``offset`` on. ``limit`` is at most MOST_ITEMS."""

    items: list[Item]
    total: int
    offset: int
    limit: int

    @property
    def next_offset(self) -> int | None:
        """None: these are the last ones."""
        end = self.offset + len(self.items)
        return end if self.items and end < self.total else None

    @property
    def previous_offset(self) -> int | None:
        """None: these are the first ones."""
        return max(0, self.offset - self.limit) if self.offset else None

    @property
    def last_offset(self) -> int:
        """Of the last page."""
        return max(0, self.total - 1) // self.limit * self.limit


MOST_ITEMS = 1000
USUAL_ITEMS = 100
"""Items of a page where the request gives no limit."""


def page(items: Sequence[T], make: Callable[[T], Item], offset: int = 0, limit: int = MOST_ITEMS) -> Page[Item]:
    """At most ``limit`` items from ``offset`` on, and never more than MOST_ITEMS. ``make`` is called for these alone."""
    offset, limit = max(0, offset), min(max(1, limit), MOST_ITEMS)
    chosen = [make(each) for each in items[offset : offset + limit]]
    return Page(items=chosen, total=len(items), offset=offset, limit=limit)


class JobSummary(View, frozen=True):
    """One line of the list: a job, a stream, or an accelerated script."""

    id: str
    """Names it in URLs; unique on this server. The job's or stream's id, where that is fit for a URL and no other has it."""
    kind: str
    """``job``, ``stream`` or ``script``; of a damaged journal ``job``."""
    name: str
    status: str
    """``running``, ``finished``, ``failed``, ``cancelled``, ``broken off`` (its process is gone), ``unfinished`` (it cannot be known
    whether it still runs), or ``damaged`` (the journal cannot be read; ``cause`` says why)."""
    began: float
    """Seconds since 1970."""
    seconds: float | None = None
    """Until its end, or until now."""
    vertices: int | None = None
    subtasks: int | None = None
    """Of the vertices that are decided."""
    rows_in: int | None = None
    """Read by sources."""
    rows_out: int | None = None
    """Of the steps that no other step reads."""
    failures: int | None = None
    """Attempts that failed."""
    restarts: int | None = None
    cause: str = ""
    """The reason for which it failed, was cancelled, or is damaged; may have several lines."""
    place: str = ""
    """The folder or location of its journal, as given to the server; empty: this process."""
    journal: str = ""
    """Name of the journal's file in that place."""
    is_live: bool = False
    """It runs in this server's process, or its journal still grows: there are events to listen to."""


class VertexSummary(View, frozen=True):
    """A vertex in the job's graph and tables."""

    id: int
    name: str
    state: str
    """``waiting`` (for its inputs), ``queued``, ``running``, ``done``, ``restarting``, ``failed``, ``cancelled``, ``not begun``."""
    parallelism: int | None
    """None: still open. 0: absorbed."""
    bound: int | None = None
    """While it is open: the most subtasks it may get."""
    absorbed_by: int | None = None
    """The vertex in whose tasks its work is done."""
    rule: str = ""
    """By which the parallelism was decided."""
    reason: str = ""
    """The same in a sentence with numbers."""
    waiting: int = 0
    """Subtasks. waiting + running + finished = parallelism, where that is decided."""
    running: int = 0
    finished: int = 0
    failures: int = 0
    """Attempts that failed."""
    mirrors: int = 0
    """Copies of slow executions that were made ..."""
    mirrors_won: int = 0
    """... and those that were faster."""
    rows_in: int | None = None
    rows_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    """Produced for later vertices; what goes to a sink has rows only."""
    bytes_stored: int | None = None
    """The same, compressed."""
    skew: float | None = None
    """Bytes of the largest range as a multiple of the average one; 1: even."""
    began: float | None = None
    ended: float | None = None
    seconds: float | None = None
    seconds_left: float | None = None
    """Of a vertex that runs, as far as it can be known."""
    is_sink: bool = False
    slot_sharing_group: str = ""
    """Empty where no group of the job has resources."""

    @property
    def progress(self) -> float | None:
        """0 to 1; None: its parallelism is open."""
        if self.parallelism is None:
            return None
        return 1.0 if self.parallelism == 0 else min(1.0, self.finished / self.parallelism)


class Edge(View, frozen=True):
    """Data that goes from one vertex to another."""

    producer: int
    consumer: int
    ship: str = ""
    """``hash``, ``range``, ``broadcast``, ``forward``, ``rescale``, ``rebalance``, ``global``; empty: not known."""
    keys: list[str] = []
    rows: int | None = None
    bytes: int | None = None


class Option(View, frozen=True):
    """An option of the job that is not its default."""

    key: str
    value: str
    """As one would write it."""
    default: str = ""
    doc: str = ""
    """Empty: this version of Firesteel does not know the option."""
    origin: str = ""
    """``spark-defaults.conf``, ``FIRESTEEL_...``, ``options=``, ``-O``, ...; empty: the journal does not tell."""


class Decision(View, frozen=True):
    at: float
    what: str
    """``parallelism``, ``source parallelism``, ``ranges``, ``failover``, ``speculation``, ``blocklist``, ..."""
    reason: str
    """A sentence with numbers."""
    vertex: int | None = None
    """None: of the whole job."""
    name: str = ""
    """Of the vertex."""
    rule: str = ""
    bounds: list[str] = []
    """Bounds that were hit, in words."""
    parallelism: int | None = None
    """None: it is not about one."""
    inputs: dict[str, Any] = {}
    """The numbers it was decided from, as recorded; long lists of numbers are told by their length (``"1,024 numbers"``)."""
    result: Any = None


class Bar(View, frozen=True):
    """One bar of a histogram: ``low`` <= value < ``high`` (the last one with its end)."""

    low: float
    high: float
    count: int


class Histogram(View, frozen=True):
    """Of bytes (ranges) or seconds (durations). At most 40 bars of equal width; at least one value."""

    bars: list[Bar]
    count: int
    smallest: float
    median: float
    mean: float
    largest: float
    largest_at: int = 0
    """The subtask that has the largest."""
    text: str = ""
    """A sentence on it; may be empty."""


class Failure(View, frozen=True):
    """Attempts of a vertex that failed together."""

    at: float
    vertex: int
    name: str
    subtasks: list[int]
    attempts: list[int]
    """One for each of ``subtasks``, from 0."""
    nodes: list[str] = []
    """One for each of ``subtasks``; "": not known."""
    headline: str = ""
    """The first line of the cause."""
    text: str = ""
    """All of it: the user's frames, if it was the user's function."""


class Attempt(View, frozen=True):
    """One execution of a subtask."""

    number: int
    state: str
    """CREATED, SCHEDULED, DEPLOYING, RUNNING, FINISHED, CANCELING, CANCELED, FAILED."""
    label: str = ""
    """``attempt 2 (a mirror) on 10.0.0.3 finished after 1.2 s and won``."""
    node: str = ""
    is_mirror: bool = False
    won: bool = False
    is_void: bool = False
    """It won, and what it wrote was lost or thrown away since."""
    created: float | None = None
    began: float | None = None
    """Launched by Spark."""
    ended: float | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    """Most resident bytes of its worker."""
    cause: str = ""
    """The reason why it failed or was cancelled."""


class Subtask(View, frozen=True):
    """``state``, ``node`` and times are those of the attempt that stands for it: the winner, or the one that has come furthest."""

    index: int
    state: str
    node: str = ""
    attempts: int = 1
    """Executions so far, mirrors among them."""
    has_mirror: bool = False
    mirror_won: bool = False
    began: float | None = None
    ended: float | None = None
    seconds: float | None = None
    """Of one that runs: until now."""
    bytes: int | None = None
    """Of the range it reads."""
    peak_bytes: int | None = None
    slowness: float | None = None
    """Its duration as a multiple of the vertex' median."""


class NodeShare(View, frozen=True):
    """The part of a vertex' attempts that a node ran."""

    node: str
    attempts: int
    finished: int
    failed: int
    median_seconds: float | None = None
    """Of those that finished."""


class NodeUse(View, frozen=True):
    """All that a node ran of a job."""

    node: str
    attempts: int
    running: int
    finished: int
    failed: int
    mirrors: int
    seconds: float
    """Its attempts ran, together."""
    slowness: float | None = None
    """Median of how long its attempts took as a multiple of the median of their vertex; 1: as fast as others."""
    is_blocked: bool = False
    """It gets nothing new now."""


class Step(View, frozen=True):
    """A step of the user's inside a vertex, and what it counted: set-ups, calls, rows refused, ..., by the names in the journal."""

    name: str
    counts: dict[str, int]


class RowError(View, frozen=True):
    """A row that a step could not do, where that is no end."""

    step: str
    subtask: int
    row: str
    error: str


class Vertex(View, frozen=True):
    """A vertex' own page. Its subtasks come in pages beside it (``Page[Subtask]``)."""

    job: JobSummary
    summary: VertexSummary
    inputs: list[Edge]
    outputs: list[Edge]
    decisions: list[Decision]
    decisions_total: int
    ranges: Histogram | None = None
    """Bytes of the ranges that its subtasks read."""
    durations: Histogram | None = None
    """Seconds of the attempts that finished."""
    stragglers: list[Subtask] = []
    """At most 20: the slowest, where they took more than 1.5 times the median, and those that have mirrors."""
    nodes: list[NodeShare] = []
    """At most 50, those with most attempts."""
    failures: list[Failure] = []
    """At most 20, the latest first."""
    steps: list[Step] = []
    row_errors: list[RowError] = []
    slot: str = ""
    """``of gpu: 2 cores, 2 GiB heap``; empty: coarse."""
    memory: str = ""
    """``at most 312 MiB (subtask 7), median 240 MiB, of 768 MiB that a worker may hold (41 %)``."""
    slots_used: float | None = None
    """Of one that is done: the share of its slots' time, from its first launch to its last end, that its attempts used; from 0 to 1."""
    slots_text: str = ""
    """The same in words, with where the rest went."""
    not_mirrored: str = ""
    """Why its slow executions get no mirrors; empty: they may, or speculation is off."""
    spark_url: str = ""
    """Spark's own page; empty: there is none."""
    stage_url: str = ""
    """The one of the stage in which the vertex ran last; empty: there is none."""


class Mark(View, frozen=True):
    """A bar in a lane: one attempt, or several that are too short to be told apart (``count`` > 1)."""

    begin: float
    end: float
    """Of one that runs: the timeline's end."""
    vertex: int
    """Of several: the one that ran longest."""
    state: str
    """``running``, ``finished``, ``failed``, ``cancelled``; of several the worst of them, failed first."""
    count: int = 1
    failed: int = 0
    """Of several: how many failed."""
    busy: float = 1.0
    """Attempts that ran at once, on average (several only)."""
    subtask: int | None = None
    """None: several."""
    attempt: int | None = None
    is_mirror: bool = False
    """Of several: any of them."""
    won: bool = False
    """It finished, and raced with others. Of several: any of them."""
    label: str = ""
    """A sentence about it; of several ``12 attempts of [3] join: 11 finished, 1 failed``."""


class Lane(View, frozen=True):
    """Attempts that did not overlap: one slot of a node. Where there are too many slots, all of a node's in one lane (``slot`` None)."""

    node: str
    """Empty: not known."""
    slot: int | None
    marks: list[Mark]


class Span(View, frozen=True):
    """A time in which a node was blocked."""

    node: str
    begin: float
    end: float
    is_over: bool
    cause: str


class Moment(View, frozen=True):
    """An event of the whole job, drawn as a line across all lanes."""

    at: float
    kind: str
    """``restart``, ``driver restart``, ``failure``, ``status``."""
    text: str


class Timeline(View, frozen=True):
    """Attempts per node and slot. However many subtasks there are: at most 64 nodes, 192 lanes, 1,600 marks and 100 moments."""

    begin: float
    end: float
    """The window, which a reader may choose; by default all of the job."""
    job_seconds: float
    lanes: list[Lane]
    blocked: list[Span]
    moments: list[Moment]
    attempts: int
    """All in the window."""
    mirrors: int
    vertices: dict[int, str]
    """Names of the vertices that occur."""
    is_aggregated: bool
    """Some marks stand for several attempts: zooming in tells them apart."""
    nodes_left_out: int = 0
    """Nodes beyond the lanes there is room for."""


class SlotGroup(View, frozen=True):
    """A slot sharing group."""

    name: str
    needs: str
    """``2 cores, 2 GiB heap, 1 gpu`` of a slot; ``coarse, slots as they are``."""
    vertices: list[int]
    asked: int
    """Executions that wait for a slot now."""
    held: int
    most_asked: int
    most_held: int
    waited: float
    """Seconds in which any execution waited."""
    core_seconds: float
    gib_seconds: float
    peak_bytes: int | None = None
    """Most resident bytes of a worker of the group."""
    limit_bytes: int | None = None
    """The most that a worker may hold."""


class Count(View, frozen=True):
    """A number from ``at`` on, until the next one."""

    at: float
    count: int


class SlotUse(View, frozen=True):
    """Slots of a group over time. Steps are few however many executions there are: of more moments each stands for the most in its stretch."""

    group: str
    """Empty: no group of the job has resources; these are all of its slots."""
    end: float
    """So long the job took, or runs by now."""
    running: list[Count]
    """Slots in use, from launch to end."""
    waiting: list[Count]
    """Executions that wait for a slot."""
    most_running: int
    most_waiting: int
    total: int | None = None
    """Slots of the cluster as the job began; None: not known, or the cluster has grown."""
    share: float | None = None
    """The part of ``total`` that was in use on average, from the job's begin to ``end``."""


class Job(View, frozen=True):
    """A job's own page."""

    summary: JobSummary
    status: str
    """CREATED, RUNNING, RESTARTING, CANCELLING, FAILING, CANCELED, FAILED, FINISHED: as last written down."""
    vertices: list[VertexSummary]
    edges: list[Edge]
    progress: float | None
    """0 to 1, of subtasks of the decided vertices; None: none is decided."""
    open_vertices: int
    """Vertices whose parallelism is not decided yet."""
    waits_for_slots: str
    """``12 of gpu, 3 of light``; empty: nothing waits for a slot, or it is not known."""
    decisions: list[Decision]
    """At most 100, the latest last, of the job and its vertices."""
    decisions_total: int
    failures: list[Failure]
    """At most 20, the latest first."""
    failures_total: int
    groups: list[SlotGroup]
    options: list[Option]
    blocked: list[Span]
    mirrors: int = 0
    mirrors_won: int = 0
    seconds_left: float | None = None
    """Known only when all vertices are decided and one runs: the longest of their times left, if nothing is still waiting."""
    spark_url: str = ""
    """Spark's own page; empty: there is none."""
    may_cancel: bool = False
    """It runs in this process, so that it can be cancelled here (with the token)."""


class Query(View, frozen=True):
    """One query of an accelerated script."""

    number: int
    action: str
    place: str
    """File and line of the script."""
    left: list[str]
    """The reasons why Spark computed it; none: Firesteel's tasks did."""
    job: str
    """Id of the job that computed it; empty: none."""
    seconds: float


class Script(View, frozen=True):
    summary: JobSummary
    is_dry_run: bool
    queries: list[Query]


class Batch(View, frozen=True):
    """A committed batch of a stream, or several that stand together in a chart (``count``)."""

    at: float
    batch: int
    parallelism: int
    rows: int
    seconds: float
    """Spent in them."""
    state_rows: int = 0
    state_bytes: int = 0
    backlog: int | None = None
    input_rate: float = 0.0
    """Rows a second."""
    count: int = 1


class Level(View, frozen=True):
    """A value from ``at`` on, until the next one."""

    at: float
    parallelism: int


class Phase(View, frozen=True):
    name: str
    """``wait``, ``commit barrier``, ``stop``, ``replay``, ``repartition``, ``start``, ``first batch``."""
    seconds: float


class Rescale(View, frozen=True):
    number: int
    at: float
    """Its end."""
    sentence: str
    """``2 -> 8 partitions at checkpoint 17 (the slots changed from 8 to 32): completed, down 1.9 s, no row twice``."""
    cause: str
    """In words."""
    action: str
    before: int
    requested: int
    granted: int
    end: str
    """``completed``, ``failed``, ``ignored``; empty: it is under way."""
    reason: str = ""
    """Of the end, where it is not completed."""
    trigger: str = ""
    phases: list[Phase] = []
    """In the order in which they happened."""
    predicted_downtime: float | None = None
    downtime: float | None = None
    replayed_rows: int = 0
    state_bytes: int = 0


class Event(View, frozen=True):
    """One line of a stream's story."""

    at: float
    kind: str
    """``state``, ``rescaled``, ``no rescale``, or what was decided."""
    text: str


class Stream(View, frozen=True):
    """A stream's own page. Times are seconds since it was started."""

    summary: JobSummary
    state: str
    """The scheduler's: ``Created``, ``Executing``, ``Restarting``, ... """
    phase: str
    """In ``Executing``; else empty."""
    parallelism: int | None
    lower: int | None
    """Bounds at its start."""
    upper: int | None
    checkpoint: str
    batches: list[Batch]
    """At most 500: of more, neighbours stand together."""
    batches_total: int
    rows: int
    mean_seconds: float | None
    """Of a batch."""
    levels: list[Level]
    """Parallelism over time; at most 500, the latest."""
    rescales: list[Rescale]
    """At most 100, the latest first."""
    rescales_total: int
    story: list[Event]
    """At most 200, the latest last."""
    story_total: int
    options: list[Option]
    waits_for: str = ""
    """A sentence; empty: for nothing, or it is not known."""
    wanted: int | None = None
    """Parallelism it should have now, where this server speaks with it."""
    slots: int | None = None
    slot_sharing_group: str = ""
    spark_url: str = ""
    may_change: bool = False
    """It runs in this process, or its control socket is on this machine: rescale, requirements, stop work (with the token)."""


class AttemptRow(View, frozen=True):
    """One execution in the table of all of a job's."""

    vertex: int
    name: str
    subtask: int
    attempt: int
    state: str
    node: str
    mirror: bool
    won: bool
    void: bool
    created: float | None
    began: float | None
    ended: float | None
    seconds: float | None
    peak_bytes: int | None
    cause: str


class SubtaskAttempts(View, frozen=True):
    """A subtask with all of its attempts, by number."""

    vertex: int
    subtask: Subtask
    attempts: list[Attempt]


class Requirements(View, frozen=True):
    """Bounds of a stream's parallelism; None: not known."""

    lower: int | None
    upper: int | None


class Pulse(View, frozen=True):
    """An event of ``/api/v1/jobs/:id/events``: how a live job or stream stands. Sent at most once a second, when it has changed."""

    version: int
    """Counts up; a page that was made of an older version is stale."""
    status: str
    """As in JobSummary."""
    seconds: float
    is_over: bool
    progress: float | None = None
    vertices: list[VertexSummary] = []
    """Of a job, at most 200."""
    parallelism: int | None = None
    """Of a stream."""
    state: str = ""
    """Of a stream."""
    batches: int | None = None


class Outcome(View, frozen=True):
    """One way to decide a vertex."""

    parallelism: int
    rule: str
    bounds: list[str]
    reason: str
    smallest: int | None = None
    """Bytes of a subtask."""
    median: int | None = None
    largest: int | None = None


class WhatIfVertex(View, frozen=True):
    vertex: int
    name: str
    was: Outcome
    would_be: Outcome | None
    why_not: str = ""
    """Why it cannot be told; only with ``would_be`` None."""


class WhatIfJoin(View, frozen=True):
    vertex: int
    """The vertex that it is told of ..."""
    join: int
    """... and that of the join."""
    was: str
    would_be: str
    was_reason: str
    would_be_reason: str


class WhatIf(View, frozen=True):
    """Decisions of a job again, from the bytes of that run, with some options changed."""

    job: JobSummary
    values: dict[str, str]
    """The options as given; empty: nothing was asked yet."""
    choices: list[Option]
    """Options that can be changed, with the value that the job had."""
    vertices: list[WhatIfVertex]
    joins: list[WhatIfJoin]


class ComparedVertex(View, frozen=True):
    """A vertex of two runs; of the same step where the journals tell steps, else of the same name."""

    name: str
    left: VertexSummary | None
    right: VertexSummary | None
    seconds_more: float | None = None
    """right - left."""


class ComparedOption(View, frozen=True):
    key: str
    left: str
    """Empty: its default there."""
    right: str


class Comparison(View, frozen=True):
    """Two jobs side by side: why was ``right`` slower than ``left``?"""

    left: JobSummary
    right: JobSummary
    notes: list[str]
    """Sentences, the most telling first; at most 10."""
    vertices: list[ComparedVertex]
    """In the order of the right one; those of the left one alone at the end."""
    options: list[ComparedOption]
    """The options that differ."""

"""Records: all that the control plane writes down. Plain data, one JSON record a line in the journal.

A :class:`Decision` is (what, inputs, rule, bounds hit, result, reason); nothing is decided without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

REJECTED = "rejected by a blocked node"
RETIRED = "rejected by a worker that had begun with other external resources"
"""Cause of a CANCELED execution that never began."""
RELEASED = "released"
"""The reason for which an output goes once no consumer needs it."""


class JournalRecord(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    at: float
    event: int = 0
    """Id of the event that caused it."""


class Decision(JournalRecord, frozen=True):
    what: str
    """"parallelism", "ranges", "source parallelism", "split assignment", "subpartitions", "failover", "restart", ..."""
    vertex: int | None = None
    name: str = ""
    inputs: dict[str, Any] = {}
    rule: str = ""
    bounds: list[str] = []
    """The bounds that were hit, in words; empty: none."""
    result: Any = None
    reason: str = ""
    """One sentence with numbers, for people."""


class StateChange(JournalRecord, frozen=True):
    """``subtasks`` of ``vertex`` went to ``state`` (ExecutionState name), attempts beside.

    Columns that are empty were not known. Times are in seconds on the job's clock.
    """

    vertex: int
    state: str
    subtasks: Sequence[int]
    attempts: Sequence[int]
    cause: str = ""
    hosts: list[str] = []
    """Names that ``nodes`` counts, from 0; -1 there: not known."""
    nodes: list[int] = []
    times: list[float] = []
    """When each of them entered the state, where that is not ``at``."""
    deployed: list[float] = []
    """FINISHED: when Spark launched each of them, and (``running``) when its program began."""
    running: list[float] = []
    tokens: list[int] = []
    """FINISHED: which object was admitted."""
    peaks: list[int] = []
    """FINISHED: most resident MiB of the worker while each ran, where that was watched."""
    beside: bool = False
    """CREATED: they join the current executions of their subtasks; else those are over."""
    mirrors: list[bool] = []
    """CREATED: which of them are copies of slow executions; empty: none."""


class MetricsSnapshot(JournalRecord, frozen=True):
    """Numbers by name, of the job and of those of its vertices that changed (``scheduler.metrics``)."""

    job: dict[str, int | float] = {}
    vertices: dict[int, dict[str, int | float]] = {}


class SlotUsage(JournalRecord, frozen=True):
    """Slots of a slot sharing group as they are from ``at`` on, and what they came to so far."""

    group: str
    asked: int
    """Executions that wait: for the pool, or with Spark for their start."""
    held: int
    """Executions that Spark has started and that are not over."""
    profile: dict[str, float] = {}
    """Of one slot: "cpu_cores", memory kinds in bytes, "external.NAME"; only where it has changed."""
    core_seconds: float = 0.0
    """Held up to ``at``, from launch to end."""
    gib_seconds: float = 0.0
    waited_seconds: float = 0.0
    """Up to ``at``, in which any execution waited: what was launched meanwhile counts to its launch, whenever that was told."""


class GraphChanged(JournalRecord, frozen=True):
    """The job graph has changed: ``into`` does the work of ``absorbed`` from here on, which never has subtasks of its own."""

    absorbed: int
    into: int
    vertex: dict[str, Any]
    """``into`` as it is now, in the form of :class:`JobPlanned`."""


class OutputGone(JournalRecord, frozen=True):
    """The output of these executions of ``vertex`` is deleted: of one data set, or (None) all of it."""

    vertex: int
    dataset: int | None
    subtasks: Sequence[int]
    attempts: Sequence[int]
    tokens: Sequence[int]
    reason: str
    """"released", or "discarded" with the reason why."""


class RowErrors(JournalRecord, frozen=True):
    """Rows that the function of a step could not do, where that is no end (``on_error``): some of them, with what was raised."""

    vertex: int
    step: str
    subtask: int
    rows: list[str]
    errors: list[str]


class JobStatusRecord(JournalRecord, frozen=True):
    status: str
    cause: str = ""


class JobPlanned(JournalRecord, frozen=True):
    """First line of a journal: the job graph as data, and the options that are not defaults."""

    job_id: str
    job_name: str
    vertices: list[dict[str, Any]]
    datasets: list[dict[str, Any]]
    options: dict[str, Any]
    slot_sharing_groups: dict[str, dict[str, float]] = {}
    """The resources that a slot of each group needs (``ResourceProfile.numbers``; empty: coarse), where any group says so. Then vertices
    have "slot_sharing_group"."""
    origins: dict[str, str] = {}
    """Of each of ``options``, where its value came from, in words."""
    inputs: list[dict[str, Any]] = []
    """Data sets outside of the job that its sources read: "vertex", "namespace", "name"; with lineage "columns" (names and types)."""
    outputs: list[dict[str, Any]] = []
    """Data sets that its sinks write ("counted": false where not every row that leaves the vertex is written); with lineage also "origins", by
    column, and "decided_by": each source vertex, column, and how."""
    after: str = ""
    """The id of the job from which this one keeps what it can, and whose clock goes on (``at``: where it stood); empty: there is none."""
    uses: list[str] = []
    """Ids of the jobs whose results it uses; its clock begins where theirs had ended (``at``)."""


AnyRecord = (
    Decision
    | StateChange
    | GraphChanged
    | MetricsSnapshot
    | SlotUsage
    | OutputGone
    | RowErrors
    | JobStatusRecord
    | JobPlanned
)

"""What happens to a job, as the control plane is told it. Frozen, in bulk, stamped by whoever saw it.

An event concerns one job vertex and an array of its subtasks. Events may arrive late or twice; the scheduler
compares ``attempts`` with its own and drops what is stale. ``at`` is in seconds on the job's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at: float
    id: int = 0
    """Given by the scheduler on arrival if 0; everything the event caused carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionsDeploying(Event):
    """Spark launched the tasks (``deploying``) or the user's code began (``running``)."""

    vertex: int
    subtasks: Ints
    attempts: Ints
    running: bool = False
    nodes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What one finished execution produced for one data set.

    ``bytes``: plain bytes per subpartition, int64; ``token`` makes the object's name unique.
    """

    dataset: int
    bytes: Ints
    rows: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """What a finished execution has to say; one for each subtask of :class:`ExecutionsFinished`."""

    token: int
    node: str = ""
    deployed_at: float = 0.0
    running_at: float = 0.0
    finished_at: float = 0.0
    partitions: tuple[PartitionReport, ...] = ()
    rows_in: int = 0
    bytes_in: int = 0
    rows_out: int = 0
    commits: tuple[bytes, ...] = ()
    """One pickled commit message per sink of the vertex, opaque to the scheduler."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """A column of names, each stored once: entry ``k`` is ``names[codes[k]]``; code -1: not known."""

    names: tuple[str, ...]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionReports:
    """What finished executions produced for one data set, as columns parallel to the event's subtasks.

    ``bytes``: plain bytes each wrote, exact. ``sizes``: packed plain bytes per subpartition (``firesteel.sizes``), one
    row per execution; None: not measured, there are too many.
    """

    dataset: int
    bytes: Ints
    rows: Ints
    stored_bytes: Ints
    sizes: Sequence[bytes] | None


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionReports:
    """What finished executions have to say, as columns parallel to the event's subtasks.

    Times are in seconds on the job's clock, 0: not known. ``partitions``: one entry per blocking data set of the
    vertex. ``commits``: per execution the pickled commit message of each sink, opaque to the scheduler; empty for a
    vertex without sinks.
    """

    tokens: Ints
    deployed_at: Floats
    running_at: Floats
    finished_at: Floats
    rows_in: Ints
    bytes_in: Ints
    rows_out: Ints
    nodes: Names | None = None
    partitions: tuple[PartitionReports, ...] = ()
    commits: Sequence[tuple[bytes, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionsFinished(Event):
    vertex: int
    subtasks: Ints
    attempts: Ints
    reports: Sequence[ExecutionReport]


class FailureKind(Enum):
    USER = "user function"
    PARTITION = "partition lost or damaged"
    WORKER = "worker lost"
    STORAGE = "storage"
    FATAL = "cannot succeed by trying again"


@dataclass(frozen=True, slots=True)
class FailureCause:
    kind: FailureKind
    message: str
    trace: str | None = None
    dataset: int = -1
    partition: int = -1
    attempt: int = -1
    token: int = -1
    """``dataset`` ... ``token`` name the bad partition for FailureKind.PARTITION."""
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionsFailed(Event):
    vertex: int
    subtasks: Ints
    attempts: Ints
    cause: FailureCause
    culpable: bool = True
    """False: an innocent sibling of a batch that Spark gave up; sent again without being charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionsCancelled(Event):
    vertex: int
    subtasks: Ints
    attempts: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsLost(Event):
    """The answer to VerifyPartitions, when some of them are gone; none is sent when all are there."""

    dataset: int
    partitions: Ints
    attempts: Ints
    tokens: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesLoaded(Event):
    """The answer to LoadSizes: the rows asked for, None for one that is not there any more."""

    dataset: int
    partitions: Ints
    attempts: Ints
    rows: Sequence[bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsMerged(Event):
    """The answer to MergePartitions, once: which of its groups were merged, into the object named by each token.

    Groups that are missing were not merged, for ``reason``; their partitions are read one by one.
    """

    dataset: int
    merge: int
    groups: Ints
    tokens: Ints
    stored_bytes: Ints
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Event):
    timer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorChanged(Event):
    executor: str
    host: str
    slots: int
    added: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinksCommitted(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SinksFailed(Event):
    cause: FailureCause


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Event):
    reason: str = field(default="cancelled by the user")

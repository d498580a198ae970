"""Events: all that happens to a job, as the control plane is told it. Frozen, in bulk, stamped by whoever saw it.

An event concerns one job vertex and an array of its subtasks. Events may arrive late or twice; the scheduler
compares ``attempts`` with its own and drops what is stale. ``at`` is in seconds on the job's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

import msgspec
import numpy as np

from firesteel.errors import Stop
from firesteel.model.arrays import Floats, Ints, Names, select
from firesteel.model.reports import StepReport
from firesteel.model.sizes import pack
from firesteel.scheduler.slots.resource_profile import ResourceProfile, WorkerResources


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at: float
    id: int = 0
    """Given by the scheduler on arrival if 0; everything the event caused carries it."""


class JobStarted(Event, frozen=True, kw_only=True):
    pass


class ExecutionsDeploying(Event, frozen=True, kw_only=True):
    """Spark launched the tasks (``deploying``) or the user's code began (``running``)."""

    vertex: int
    subtasks: Ints
    attempts: Ints
    running: bool = False
    nodes: Sequence[str] = ()
    times: Floats | None = None
    """When, parallel to the subtasks, in seconds on the job's clock; None: all of them at ``at``."""
    executors: Sequence[str] = ()
    """The workers, parallel to the subtasks, where they are known; empty: nobody told."""


_Packed = Sequence[bytes]
"""One for each execution. (The next class has a field ``bytes``.)"""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionReports:
    """The output of finished executions for one data set, as columns parallel to the event's subtasks.

    ``bytes``: plain bytes each wrote, exact. ``sizes``: packed plain bytes per subpartition (``firesteel.model.sizes``), one
    row per execution; None: not measured, there are too many. ``sketches``: of a RANGE data set, which has no
    subpartitions before its ranges are decided, a summary of keys and bytes in the place of sizes (``firesteel.model.sketches``).
    ``heavy_keys``: of a keyed data set (``firesteel.model.heavy_keys``); an empty entry has none, None: nobody has any.
    """

    dataset: int
    bytes: Ints
    rows: Ints
    stored_bytes: Ints
    sizes: _Packed | None
    sketches: _Packed | None = None
    heavy_keys: _Packed | None = None

    @classmethod
    def of(cls, dataset: int, sizes: Sequence[Ints], rows: int | Ints = 0, stored_bytes: int | Ints = 0) -> Self:
        """From plain bytes per subpartition, one array per execution; the others may be the same for all."""
        n = len(sizes)
        packed = [pack(row) for row in sizes]
        written = np.fromiter((row.sum() for row in sizes), np.int64, n)
        return cls(dataset, written, _column(rows, n), _column(stored_bytes, n), packed)

    def select(self, places: Ints) -> PartitionReports:
        packed = (
            None if told is None else select(told, places) for told in (self.sizes, self.sketches, self.heavy_keys)
        )
        return PartitionReports(self.dataset, self.bytes[places], self.rows[places], self.stored_bytes[places], *packed)


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionReports:
    """Reports of finished executions, as columns parallel to the event's subtasks.

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
    peak_memory: Ints | None = None
    """Most resident bytes of the worker while each ran; None: not watched."""
    steps: Sequence[tuple[StepReport, ...]] = ()
    """Per execution what its steps counted; empty where none counted anything."""

    @classmethod
    def of(
        cls,
        tokens: Ints,
        *,
        partitions: Sequence[PartitionReports] = (),
        nodes: Names | Sequence[str] | None = None,
        commits: Sequence[tuple[bytes, ...]] = (),
        times: tuple[float | Floats, float | Floats, float | Floats] = (0.0, 0.0, 0.0),
        rows_in: int | Ints = 0,
        bytes_in: int | Ints = 0,
        rows_out: int | Ints = 0,
        peak_memory: Ints | None = None,
        steps: Sequence[tuple[StepReport, ...]] = (),
    ) -> Self:
        """A number stands for a column of equal ones. ``times``: deployed, running, finished."""
        n = len(tokens)
        deployed, running, finished = (np.broadcast_to(np.asarray(t, np.float64), n) for t in times)
        return cls(
            np.asarray(tokens, np.int64),
            deployed,
            running,
            finished,
            _column(rows_in, n),
            _column(bytes_in, n),
            _column(rows_out, n),
            nodes if nodes is None or isinstance(nodes, Names) else Names.of(nodes),
            tuple(partitions),
            commits,
            peak_memory,
            steps,
        )

    def select(self, places: Ints) -> ExecutionReports:
        """Returns the entries at these places, in this order."""
        return ExecutionReports(
            self.tokens[places],
            self.deployed_at[places],
            self.running_at[places],
            self.finished_at[places],
            self.rows_in[places],
            self.bytes_in[places],
            self.rows_out[places],
            None if self.nodes is None else self.nodes.select(places),
            tuple(partition.select(places) for partition in self.partitions),
            select(self.commits, places) if len(self.commits) else (),
            None if self.peak_memory is None else self.peak_memory[places],
            select(self.steps, places) if len(self.steps) else (),
        )

    def peaks(self) -> list[int]:
        """``peak_memory`` in MiB, rounded up; empty where memory was not watched."""
        return [] if self.peak_memory is None else (-(-self.peak_memory // (1 << 20))).tolist()

    def __len__(self) -> int:
        return len(self.tokens)


def _column(values: int | Ints, n: int) -> Ints:
    return np.broadcast_to(np.asarray(values, np.int64), n)


class ExecutionsFinished(Event, frozen=True, kw_only=True):
    vertex: int
    subtasks: Ints
    attempts: Ints
    reports: ExecutionReports


class FailureKind(Enum):
    USER = "user function"
    SET_UP = "set-up of a user function"
    """It found its node, or its own code, not to be as it wants it: it fails there again."""
    PARTITION = "partition lost or damaged"
    WORKER = "worker lost"
    LOST = "executor or worker lost"
    """Spark started the task again because its executor or Python worker is gone; the second run ended at once."""
    STORAGE = "storage"
    DRIVER = "driver lost"
    """It belonged to a driver that is gone; another one goes on with the job."""
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
    stop: Stop | None = None
    """Of the embedded engine, if that is what failed."""


class ExecutionsFailed(Event, frozen=True, kw_only=True):
    vertex: int
    subtasks: Ints
    attempts: Ints
    cause: FailureCause
    counted: bool = True
    """False: they did not fail, but ended with a batch that Spark gave up; CANCELED, and sent again without being counted."""


class ExecutionsCancelled(Event, frozen=True, kw_only=True):
    vertex: int
    subtasks: Ints
    attempts: Ints


class ExecutionsRejected(Event, frozen=True, kw_only=True):
    """Executions that found themselves in the wrong place are rejected before their programs begin."""

    vertex: int
    subtasks: Ints
    attempts: Ints
    nodes: Sequence[str] = ()
    retired: bool = False
    """True: in a Python worker that had begun with other external resources, and is gone now; else on a blocked node."""


class PartitionsLost(Event, frozen=True, kw_only=True):
    """The answer to VerifyPartitions, when some of them are gone; none is sent when all are there. Also what a new driver of the job
    does not find. ``excused``: they were not there when they were admitted, for an earlier job had removed them; no restart strategy is asked."""

    dataset: int
    partitions: Ints
    attempts: Ints
    tokens: Ints
    excused: bool = False


class OutputsLost(Event, frozen=True, kw_only=True):
    """All that these admitted executions of ``vertex`` have made is void: it is to be made again. A new driver says so of what was staged
    for a sink and is not there, and of executions whose shares of the rows nobody can repeat."""

    vertex: int
    subtasks: Ints
    attempts: Ints
    tokens: Ints


class SizesLoaded(Event, frozen=True, kw_only=True):
    """The answer to LoadSizes: the rows asked for, None for one that is not there any more."""

    dataset: int
    partitions: Ints
    attempts: Ints
    rows: Sequence[bytes | None]


class SourceNarrowed(Event, frozen=True, kw_only=True):
    """The answer to NarrowSource, once. ``split_bytes``: plain bytes of each split that is left, None: all are, as they were.

    ``found``: a sentence on what was found. Rows of these splits may be dropped as they are read, too.
    """

    vertex: int
    split_bytes: Ints | None
    found: str


class PartitionsMerged(Event, frozen=True, kw_only=True):
    """The answer to MergePartitions, once: which of its groups were merged, into the object named by each token.

    Groups that are missing were not merged, for ``reason``; their partitions are read one by one.
    """

    dataset: int
    merge: int
    groups: Ints
    tokens: Ints
    stored_bytes: Ints
    reason: str = ""


class TimerFired(Event, frozen=True, kw_only=True):
    timer: str


class ExecutorChanged(Event, frozen=True, kw_only=True):
    executor: str
    host: str
    slots: int
    added: bool
    node: str = ""
    """As other events name it: what can be slow, be blocked or die as one; empty: the host."""
    resources: WorkerResources | None = None
    """The resources it can give to slots; None: nobody told, it has ``slots`` slots."""
    profile: ResourceProfile | None = None
    """The only need it was made for (executors of a Spark resource profile); None: it serves any."""


class ExecutorsChanged(Event, frozen=True, kw_only=True):
    """Several come and go in one moment, in this order: a new driver has other executors than the one before it, under the same names. Nothing
    is decided or deployed in between."""

    changes: tuple[ExecutorChanged, ...]


class WorkersOccupied(Event, frozen=True, kw_only=True):
    """Spark's own count of running tasks: cores of each worker that are taken by what is not ours to run now (other jobs, or
    executions that were killed and are not gone yet). Those not named have none."""

    executors: Sequence[str]
    cores: Floats


class SlotsFreed(Event, frozen=True, kw_only=True):
    """Other jobs of the session left something that this one waits for: it may ask again."""


class NodeBlocked(Event, frozen=True, kw_only=True):
    """Another job of the session, ``job``, has blocked a node. ``end``: until when, on this job's clock."""

    node: str
    cause: str
    end: float
    job: str


class SinksCommitted(Event, frozen=True, kw_only=True):
    pass


class SinksFailed(Event, frozen=True, kw_only=True):
    cause: FailureCause


class CancelRequested(Event, frozen=True, kw_only=True):
    reason: str = "cancelled by the user"

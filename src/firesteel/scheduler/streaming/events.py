"""Events of a stream, as told to its scheduler. Times are seconds on the stream's clock.

``run`` counts the starts of the query from 1; an event of another run than the current one is stale and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from firesteel.scheduler.kernel.events import Event, TimerFired


class StreamEvent(Event, frozen=True, kw_only=True):
    """An event of a stream alone; ``TimerFired`` is one of the kernel."""


class StreamSubmitted(StreamEvent, frozen=True, kw_only=True):
    """The first one."""


@dataclass(frozen=True, slots=True)
class ExecutorOffer:
    """The resources that each of ``count`` executors that are alike has for the tasks of this stream."""

    count: int
    cores: int
    heap: int = 0
    """Bytes of its JVM's heap."""
    beside_heap: int = 0
    """Bytes."""
    external: tuple[tuple[str, float], ...] = ()
    """(name, pieces)."""


class ClusterChanged(StreamEvent, frozen=True, kw_only=True):
    """The cores that tasks of this stream can use now."""

    cores: int
    executors: int
    excluded: int = 0
    """Cores on blocked nodes: counted in none of the others."""
    complete: bool = False
    """No more can come by themselves: a local master."""
    dynamic: bool = False
    """Spark's own dynamic allocation makes and removes executors for this very query: then ``cores`` is the most it may
    come to (its current number where that is without limit), and their coming and going is not a signal."""
    limited: bool = False
    """With ``dynamic``: ``cores`` is a limit, and another one is a signal. 0: it is not known before the first executor."""
    offers: tuple[ExecutorOffer, ...] = ()
    """The resources of the executors, those that ``dynamic`` may add among them; told where the stream's slots need more than cores."""
    what: str = ""
    """The change, half a sentence: "executor 3 on 127.0.0.4 was lost"."""


class RequirementsChanged(StreamEvent, frozen=True, kw_only=True):
    lower: int
    upper: int


class RescaleRequested(StreamEvent, frozen=True, kw_only=True):
    """The user's word. ``parallelism`` None: go ahead with what is wanted, whatever the downtime."""

    parallelism: int | None = None


class StopRequested(StreamEvent, frozen=True, kw_only=True):
    """Finish the running batch, stop, keep the checkpoint."""


class CancelRequested(StreamEvent, frozen=True, kw_only=True):
    """Stop now; the running batch is replayed by whoever starts next."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan of the started query, as the data plane found it."""

    stateful: tuple[str, ...] = ()
    """Names of the stateful operators, in the plan's order."""
    parallelism: int = 0
    """State partitions as pinned in the checkpoint; of a stateless query ``spark.sql.shuffle.partitions``; 0: not known yet."""
    refusal: str = ""
    """Why this query cannot be rescaled, a sentence with what would help; empty: it can."""
    trigger_interval: float | None = None
    """Of a processing-time trigger with a gap, seconds; None: batches follow each other."""
    continuous: bool = True
    """False: AvailableNow or Once, the query ends by itself."""
    has_commit_barrier: bool = True
    """False: this Spark offers no way to stop a query at its commit; a rescale replays the batch that had begun."""
    reads: tuple[tuple[str, str], ...] = ()
    """Namespaces and names of what it reads, as far as the plan tells."""
    writes: tuple[tuple[str, str], ...] = ()


class QueryStarted(StreamEvent, frozen=True, kw_only=True):
    run: int
    plan: StreamPlan
    batch: int
    """Id of the last committed batch; -1: none."""
    recovered: str = ""
    """Work that was finished or rolled back in the checkpoint before this start, a sentence."""
    replayed_rows: int = 0
    """Rows that had been read before and were read again to bring the checkpoint into order."""


class BatchStarted(StreamEvent, frozen=True, kw_only=True):
    run: int
    batch: int


class BatchCommitted(StreamEvent, frozen=True, kw_only=True):
    """A micro-batch was committed: a checkpoint completed. Numbers come from the batch's own progress."""

    run: int
    batch: int
    rows: int = 0
    duration: float = 0.0
    """Seconds from trigger to commit."""
    state_rows: int = 0
    state_bytes: int = 0
    backlog: int | None = None
    """Rows (or whatever the source counts) known to wait; None: the source does not say."""
    input_rate: float = 0.0
    processed_rate: float = 0.0
    at_barrier: bool = False
    """The query does nothing further until :class:`~firesteel.scheduler.streaming.commands.Continue`, Rescale or StopQuery."""


class QueryIdle(StreamEvent, frozen=True, kw_only=True):
    """No batch runs and none is to be made: all that was read is in the last checkpoint."""

    run: int
    batch: int
    at_barrier: bool = False


class QueryFailed(StreamEvent, frozen=True, kw_only=True):
    run: int
    cause: str
    """The text for the user: the sentence, with the frames of their own code."""
    batch: int | None = None
    """The batch that failed with it: a checkpoint that failed. None: no batch ran."""
    final: bool = False
    """No restart can help (a wrong option, an incompatible checkpoint): restart strategies are not asked."""
    counted: bool = True
    """False: not the stream's fault (an executor was lost); restarted without being counted."""


class QueryStopped(StreamEvent, frozen=True, kw_only=True):
    """The answer to StopQuery: the query is gone. ``committed``: no batch is left half done."""

    run: int
    batch: int
    committed: bool = True


class QueryFinished(StreamEvent, frozen=True, kw_only=True):
    """It ended by itself."""

    run: int
    batch: int


class RescaleStep(Enum):
    """Steps of the data plane's protocol, in order; each is told when it begins."""

    COMMIT_BARRIER = "commit barrier"
    STOP = "stop"
    REPLAY = "replay"
    """Only where a batch was left half done."""
    REPARTITION = "repartition"
    BUILD = "build"
    """Only where the query is not built when all before is done: it is built beside."""
    START = "start"


class RescaleStepped(StreamEvent, frozen=True, kw_only=True):
    rescale: int
    step: RescaleStep
    batch: int = -1
    """STOP and later: the last committed batch, the checkpoint that is used."""


class RescaleFailed(StreamEvent, frozen=True, kw_only=True):
    """The protocol did not come to its end. The checkpoint is in order again, with ``parallelism`` partitions, unless ``final``."""

    rescale: int
    cause: str
    parallelism: int
    final: bool = False


AnyStreamEvent = (
    StreamSubmitted
    | ClusterChanged
    | RequirementsChanged
    | RescaleRequested
    | StopRequested
    | CancelRequested
    | QueryStarted
    | BatchStarted
    | BatchCommitted
    | QueryIdle
    | QueryFailed
    | QueryStopped
    | QueryFinished
    | RescaleStepped
    | RescaleFailed
    | TimerFired
)

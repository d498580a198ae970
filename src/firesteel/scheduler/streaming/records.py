"""Records that a stream's scheduler writes, beside :class:`firesteel.scheduler.kernel.records.Decision`."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import msgspec

from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.scheduler.streaming.waits import StreamWait


class TriggerCause(Enum):
    """The reason why the scheduler thought of a rescale (Flink: TriggerCause)."""

    INITIAL_SCHEDULE = "the stream was started"
    UPDATE_REQUIREMENT = "the requirements were changed"
    NEW_RESOURCE_AVAILABLE = "the slots changed"
    RECOVERABLE_FAILOVER = "it was restarted after a failure"
    LOAD = "the load changed"
    USER = "a user asked for it"


class TriggerKind(Enum):
    CHECKPOINT = "checkpoint {}"
    IDLE = "idle, nothing read yet"
    FAILED_CHECKPOINTS = "failed checkpoints: {}"
    MAX_DELAY = "max delay"
    RESTART = "a restart after a failure"


class Trigger(NamedTuple):
    """The event that begins a rescale. ``number``: of the checkpoint; of checkpoints that failed."""

    kind: TriggerKind
    number: int = 0

    def __str__(self) -> str:
        return self.kind.value.format(self.number)


class EndState(Enum):
    COMPLETED = "completed"
    FAILED = "failed"
    """Tried, and the old parallelism is back."""
    IGNORED = "ignored"
    """Wanted, but superseded, refused, or not worth it before anything was touched."""


class StreamPlanned(JournalRecord, frozen=True):
    """First line of a stream's journal."""

    stream_id: str
    name: str
    checkpoint: str
    lower: int
    upper: int
    options: dict[str, Any]
    slot_sharing_group: str = ""
    """Name and resources; empty: nothing was said of its slots."""
    origins: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Of each of ``options``, where its value came from, in words."""


class StreamStateChange(JournalRecord, frozen=True):
    state: str
    """SchedulerState's value."""
    phase: str = ""
    """Phase's value, in Executing."""
    cause: str = ""


class StreamDatasets(JournalRecord, frozen=True):
    """The data sets outside of the stream that its query reads and writes, as far as its plan tells: "namespace", "name". Written when it starts."""

    inputs: list[dict[str, str]] = msgspec.field(default_factory=list[dict[str, str]])
    outputs: list[dict[str, str]] = msgspec.field(default_factory=list[dict[str, str]])


class StreamBatch(JournalRecord, frozen=True):
    """A committed batch, or several of one second: then ``rows`` and ``duration`` are their sums, the rest is the last's."""

    run: int
    batch: int
    parallelism: int
    rows: int
    duration: float
    state_rows: int = 0
    state_bytes: int = 0
    backlog: int | None = None
    input_rate: float = 0.0
    batches: int = 1


class RescaleRecord(JournalRecord, frozen=True):
    """A rescale from the first change that asked for it to its end; written when it ends. ``at``: its end."""

    rescale: int
    cause: str
    """TriggerCause's name."""
    what: str
    """The cause in words, with numbers."""
    action: str
    """Action's value."""
    before: int
    requested: int
    """Parallelism that was wanted."""
    granted: int
    """Parallelism that was come to."""
    sufficient: bool
    desired: bool
    trigger: str = ""
    """The event that set it off, in words: "checkpoint 17", "failed checkpoints: 2", "max delay"."""
    checkpoint: int | None = None
    """Batch whose state was used."""
    first_change: float = 0.0
    triggered: float = 0.0
    steps: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """Seconds of each step of the protocol (RescaleStep's value); "wait": from first change to trigger; "first batch": from the
    start of the query to its first commit."""
    replayed_rows: int = 0
    predicted_downtime: float | None = None
    downtime: float | None = None
    """From the commit (or the stop) to the moment the new query takes its first batch."""
    state_bytes: int = 0
    end: str = ""
    """EndState's value."""
    reason: str = ""
    """Of the end, where it is not completed."""
    trigger_kind: str = ""
    """TriggerKind's name."""


class StreamEnded(JournalRecord, frozen=True):
    status: str
    """FINISHED, CANCELED or FAILED."""
    cause: str = ""


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The live view of a stream, as ``AdaptiveStream.status()`` and ``firesteel stream status`` give it."""

    name: str
    checkpoint: str
    state: str
    phase: str
    parallelism: int
    wanted: int
    lower: int
    upper: int
    cores: int
    executors: int
    run: int
    batches: int
    """Committed since this stream was started."""
    batch: int
    input_rate: float
    processed_rate: float
    state_rows: int
    state_bytes: int
    backlog: int | None
    rescales: int
    last_rescale: RescaleRecord | None
    waits_for: str = ""
    """A sentence; empty: for nothing."""
    cause: str = ""
    """Of its end."""
    slots: int = 0
    """There are now."""
    slot_sharing_group: str = ""
    """Name and resources of a slot; empty: nothing was said of them."""
    waits: StreamWait | None = None
    """``waits_for`` as facts."""


AnyStreamRecord = StreamPlanned | StreamStateChange | StreamDatasets | StreamBatch | RescaleRecord | StreamEnded

"""What decisions were made from, as facts: their ``inputs``. ``report.decisions`` has the words."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec

from firesteel.model import build_memory


class Facts(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class MetRetiredWorker(Facts, frozen=True):
    """Executions met a Python worker that had begun with other external resources."""

    subtasks: list[int]
    attempts: list[int]


class Outcome(Enum):
    RESTART = "restart"
    JOB_FAILS = "the job fails"
    ANOTHER_RUNS = "another attempt can still finish"


class Failed(Facts, frozen=True):
    subtasks: list[int]
    attempts: list[int]
    kind: str
    cause: str
    counted: bool
    """False: it is sent again, whatever the restart strategy says."""
    invalidated: dict[str, int]
    """By vertex: consumers that had finished and run again."""
    outcome: Outcome
    verdict: str
    """Of the restart strategy, half a sentence."""
    dataset: int = -1
    """Of which ``partition`` could not be read; -1: that was not the failure."""
    partition: int = -1


class Slow(Facts, frozen=True):
    subtasks: list[int]
    attempts: list[int]
    nodes: list[str]
    elapsed: list[float]
    baseline: list[float]
    limit: int
    place: int
    """Of the one that is named, which has taken ``taken`` seconds."""
    taken: float
    why: str
    """What was usual; where no mirror is made, why not. Half a sentence."""


class Won(Facts, frozen=True):
    """``attempts``, ``nodes`` and ``mirrors``: the winner's first. ``taken``: by each loser, seconds; None: it was queued."""

    subtask: int
    attempts: list[int]
    nodes: list[str]
    mirror: bool
    mirrors: list[bool]
    taken: list[float | None]


class RejectedOften(Facts, frozen=True):
    subtasks: list[int]
    rejections: int


class BlockedUse(Enum):
    REJECTED_OFTEN = "rejected too often"
    BEGAN_BEFORE = "began before it could know"
    NO_OTHER = "no other node is known"


class OnBlockedNode(Facts, frozen=True):
    subtasks: list[int]
    attempts: list[int]
    nodes: list[str]
    why: BlockedUse


class KeptSubtasks(Facts, frozen=True):
    """So many of the ``subtasks`` are kept from ``jobs``, the first of which is ``job``."""

    job: str
    jobs: list[str]
    kept: int
    subtasks: int


class GoesOn(Facts, frozen=True):
    """A request for slots of ``group``, after so many ``seconds``."""

    group: str
    seconds: float
    others: bool
    """It waited for slots of other jobs; else for a worker."""


class BlockedFor(Facts, frozen=True):
    """A node that was reported ``times`` times is blocked from ``start`` to ``end``."""

    node: str
    cause: str
    start: float
    end: float
    times: int


class BlockedAlone(Facts, frozen=True):
    """Blocked nodes are used while there are 0 ``others``, and left alone while there are more."""

    blocked: list[str]
    others: int


class RoomKept(Facts, frozen=True):
    """``workers`` keep room until one is large enough for a slot that waits. Others got ``passed`` slots meanwhile."""

    group: str
    workers: list[str]
    passed: int


class AdmittedBecause(Enum):
    CORES_RUN_OUT = "cores run out before memory"
    MEMORY_MAY = "memory may run out before cores"
    OTHER_JOB = "another job's memory may run out before cores"
    IN_TURN = "the session serves what came first"


class Admission(Facts, frozen=True):
    """Who lets executions begin, the slot pool or Spark."""

    asked_bytes_per_core: dict[str, float]
    """By group."""
    least_bytes_per_core: float
    why: AdmittedBecause


class NetworkShare(Enum):
    NOTHING_STORED = "nothing is stored"
    SLOTS_STAY = "the slots stay as they are"
    WHOLE = "whole"
    AS_FITS = "as much as costs no slot"


class NetworkNeed(Facts, frozen=True):
    """Bytes that readers and writers of a group's vertices hold in a slot; ``far``: of results on an object store."""

    group: str
    vertices: list[int]
    needed: int
    far: bool
    share: NetworkShare


class Merge(Facts, frozen=True):
    """What merging the objects of ``partitions`` would save and cost."""

    dataset: int
    partitions: int
    slices: int
    requests: int
    stored_bytes: int
    mean_slice: float
    request_seconds: float
    slots: int
    threshold: int
    saved_s: float
    cost_s: float


class Merged(Facts, frozen=True):
    """How a merge of so many ``groups`` ended, after ``seconds``. ``stale``: groups of partitions that were made again meanwhile."""

    dataset: int
    groups: int
    seconds: float
    in_time: bool = True
    bytes: int = 0
    stale: int = 0
    failed: int = 0
    failure: str = ""


class PipelinedRegions(Facts, frozen=True):
    vertices: list[int]
    subtasks: int


class Offload(Facts, frozen=True):
    """A descriptor of so many ``partitions`` that so many ``consumers`` get."""

    dataset: int
    partitions: int
    bytes: int
    consumers: int
    threshold: int


class NotStored(Facts, frozen=True):
    """A descriptor that could not be stored as a blob."""

    blob: str
    error: str


class CancelPutOff(Facts, frozen=True):
    """Sinks are being published."""

    reason: str


class ReadLess(Facts, frozen=True):
    """What runtime filters left of a source of so many ``bytes`` and ``splits``."""

    filters: list[dict[str, Any]]
    bytes: int
    splits: int
    found: str
    """By the data plane, half a sentence."""


class DeferredFor(Facts, frozen=True):
    """A vertex that waits for a side of ``join``. Of both sides the bytes are estimated, from so many bytes read and earlier runs."""

    join: int
    build: str
    """The side that it waits for."""
    build_bytes: int
    probe_bytes: int
    build_read: int = 0
    probe_read: int = 0
    build_runs: int = 0
    probe_runs: int = 0
    likely: bool = True
    """The side is likely the smaller one; else it may be."""
    budget: float | None = None
    """Seconds in which slots may be idle; None: it waits as long as it takes."""


class BegunWithout(Facts, frozen=True):
    """A vertex that waits no more for a side of ``join``, which has ``written`` bytes. ``idle``: seconds in which slots were idle."""

    join: int
    side: str
    idle: float
    budget: float | None
    written: int = 0
    limit: int = 0
    """Bytes that a task can hold."""


class JoinSizes(Facts, frozen=True):
    """All that is known of a join when its build side has finished. Sizes are plain bytes."""

    how: str
    build: str
    """The side, "left" or "right", that would be given whole to every task."""
    build_bytes: int
    build_rows: int
    probe_bytes: int
    """Estimated: what the probe side's producer will read; 0: not known."""
    readers: int
    """Tasks that would run at once, as far as can be said now: all of them wait until the build side is read, those that follow do not."""
    memory: int
    """Of one task, for its data."""
    held: tuple[int, ...] = ()
    """Memory of the build sides that the same tasks hold already."""
    hint: bool = False
    """The user wants it broadcast."""
    read_bytes: int = 0
    """Estimated: what the tasks that would join read of the probe side."""
    slots: int = 0
    """For these tasks; 0: not known."""
    exchanged_again: bool = False
    """A step by the same key follows, which reads all that comes out: it would need an exchange of that, in place of the probe side's."""

    @property
    def build_memory(self) -> int:
        return build_memory.held_bytes(self.build_bytes, self.build_rows)

    @property
    def limit(self) -> int:
        """Most bytes of memory that the build side can take."""
        return max(build_memory.limit(self.memory) - sum(self.held), 0)

    def with_volume(self, volume: int) -> JoinSizes:
        """The same, with ``readers`` for so many bytes per task."""
        tasks = max(-(-self.read_bytes // volume), 1)
        return msgspec.structs.replace(self, readers=min(tasks, self.slots or tasks))

    @property
    def held_with_it(self) -> tuple[int, ...]:
        """``held`` once it is broadcast: one that cannot be held, but was asked for, is joined through local disk."""
        return (*self.held, self.build_memory) if self.build_memory <= self.limit else self.held


class HashJoin(Facts, frozen=True):
    """A join that no sizes decided. ``obstacle``: why ``side`` cannot be broadcast, as was asked for."""

    side: str = ""
    obstacle: str = ""


class StepsBecause(Enum):
    FEW_ROWS = "no key has so many rows that it would pay to divide them"
    FEW_VALUES = "no key has so many values that it would pay to divide them"
    SMALL = "one subtask is enough"
    EXCHANGE = "the exchange that would follow costs more"
    JOINED = "heavy keys are divided, and what comes out is exchanged"
    COUNTED = "parts of the values are counted"
    COUNTED_HEAVY = "values are counted, those of heavy keys by parts"


class TwoOrOne(Facts, frozen=True):
    """Whether a vertex is one with its ``first`` step, which would have this ``parallelism``. ``saved``: bytes, of the largest subtask if it
    is divided; ``exchanged``: those of each slot in the exchange that would follow."""

    first: int
    bytes: list[int]
    parallelism: int
    why: StepsBecause
    saved: int = 0
    exchanged: int = 0


class WholeBecause(Enum):
    AS_MUCH = "another subtask would have as much to read"
    SLICES = "max-slices-per-subtask leaves no subtasks for it"
    COSTS = "that would cost more than it saves"


class Undivided(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Heavy subpartitions that are read whole: this one, of so many ``bytes``, and so many ``others``; -1: all. ``obstacle``: what forbids it."""

    why: WholeBecause
    subpartition: int = -1
    bytes: int = 0
    others: int = 0
    obstacle: str = ""


class Sized(Facts, frozen=True, omit_defaults=True):
    """All that a parallelism was decided from; lists have an entry for each input (docs/journal.md)."""

    datasets: list[int]
    bytes: list[int]
    partitions: list[int]
    subpartitions: list[int]
    ship: list[str]
    non_broadcast: int
    broadcast: int
    data_volume: int
    limit: int
    """The volume, less what is broadcast."""
    cut: Literal["by-bytes", "by-count"]
    co_partitioned: list[bool]
    allowed: dict[str, Any]
    """The bounds."""
    divisible: list[bool] = []
    indivisible: list[str] = []
    by_value: list[bool] = []
    sizes: list[list[int]] | None = None
    packed_sizes: list[str] | None = None
    needed: int = 0
    """Subtasks that the volume asks for, where there are others; ``rounded``: as a power of two."""
    rounded: int = 0
    hashed: int = 0
    """Bytes of build sides that each subtask hashes again, where that is much of its work."""
    divided: int = 0
    """Subpartitions that are."""
    undivided: Undivided | None = None
    before: str = ""
    """The rule that it was decided by, where it is as before the resume."""


class SourceSized(Facts, frozen=True, omit_defaults=True):
    """All that the parallelism of a source was decided from; others as in :class:`Sized`."""

    splits: int
    bytes: int
    largest_split: int
    data_volume: int
    inferred: int | None
    """By the source itself."""
    default_source_parallelism: int | None
    slots: int
    cost: dict[str, Any] = {}
    target_seconds: float = 0.0
    rebuilt: int = 0
    hashed: int = 0
    before: str = ""


class SplitShares(Facts, frozen=True):
    """Of so many ``splits`` each of ``parallelism`` subtasks has ``fewest`` to ``most``."""

    splits: int
    bytes: int
    largest_split: int
    data_volume: int
    parallelism: int
    fewest: int
    most: int


class KnownBeforehand(Facts, frozen=True):
    """The inputs of a vertex whose parallelism was known before they were there."""

    datasets: list[int]
    partitions: list[int]


class Unmeasured(Facts, frozen=True):
    """Data sets of so many producers and subpartitions that sizes are not reported by subpartition."""

    datasets: list[int]


class Unreadable(Facts, frozen=True):
    """``rows`` of sizes that could not be read back."""

    dataset: int
    rows: int


class Subpartitions(Facts, frozen=True, omit_defaults=True):
    """``consumers``: what each asks for; ``asks``: the one that asks for most, by its ``maximum``; 0: by its parallelism."""

    dataset: int
    ship: str
    producers: int
    consumers: dict[str, int]
    factor: int
    co_partitioned_with: list[int] = []
    asks: int = -1
    maximum: int = 0
    multiple: int = 0
    """The number was made a multiple of this; 0: it was not."""


class ManySubpartitions(Facts, frozen=True):
    dataset: int
    most: int


class Sketched(Facts, frozen=True):
    """What key ranges were made of. ``columns``: name, and whether ascending; ``split_equal``: equal keys may be parted."""

    dataset: int
    columns: list[tuple[str, bool]]
    split_equal: bool
    sketches: int
    bytes: int


class HeavyKeys(Facts, frozen=True):
    """Of the ``bytes`` that a ``producer`` made."""

    dataset: int
    columns: list[str]
    bytes: int
    producer: str


class Told(Facts, frozen=True):
    """Up to format 2.6: the sentence, ``before`` and ``after`` the name of the step."""

    before: str
    after: str

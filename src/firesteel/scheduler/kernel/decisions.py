"""What decisions were made from, as facts: their ``inputs``. ``report.decisions`` has the words."""

from __future__ import annotations

from enum import Enum

import msgspec

from firesteel.scheduler.kernel.waits import ForRoom, ForWorker


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


class Told(Facts, frozen=True):
    """Up to format 2.6: the sentence, ``before`` and ``after`` the name of the step."""

    before: str
    after: str


AnyFacts = (
    MetRetiredWorker
    | Failed
    | Slow
    | Won
    | RejectedOften
    | OnBlockedNode
    | KeptSubtasks
    | GoesOn
    | ForWorker
    | ForRoom
    | Told
)

"""What a job waits for, as facts. ``report.waits`` has the words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from firesteel.model.arrays import Ints

MOST_NAMED = 5
"""Subtasks, and attempts, that a wait names."""


class Subtasks(msgspec.Struct, frozen=True):
    first: tuple[int, ...]
    count: int

    @classmethod
    def of(cls, subtasks: Ints) -> Subtasks:
        return cls(tuple(subtasks[:MOST_NAMED].tolist()), len(subtasks))

    @classmethod
    def named(cls, subtasks: Sequence[int]) -> Subtasks:
        return cls(tuple(subtasks[:MOST_NAMED]), len(subtasks))

    def __str__(self) -> str:
        more = self.count - len(self.first)
        named = ", ".join(map(str, self.first))
        return f"subtask{'s' if self.count > 1 else ''} {named}{f' and {more} more' if more else ''}"


class Running(msgspec.Struct, frozen=True):
    """Subtasks that run, or are queued, the ``oldest`` of them for ``seconds``."""

    subtasks: Subtasks
    seconds: float
    oldest: int
    node: str


class Wait(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    pass


class ForStart(Wait, frozen=True):
    pass


class ForSinks(Wait, frozen=True):
    """To be published."""


class ForNothing(Wait, frozen=True):
    """A fault: the job would never end."""

    status: str


class ForRestart(Wait, frozen=True):
    """The delay of a restart."""

    subtasks: int


class ForBlockedNode(Wait, frozen=True):
    node: str
    seconds: float
    """Until it is used again."""
    cause: str
    is_used: bool
    """All the same: no other node is known."""


class ForMerging(Wait, frozen=True):
    dataset: int
    seconds: float


class ForRequest(Wait, frozen=True):
    """Slots of a group's own resources."""

    group: str
    text: str


class VertexWait(Wait, frozen=True):
    vertex: int


class PutOff(VertexWait, frozen=True):
    """Until a side of ``join`` is there."""

    side: str
    join: int


class Narrowing(VertexWait, frozen=True):
    """Keys are read, of these sides (and joins)."""

    sides: tuple[tuple[str, int], ...]


class ForExecutions(VertexWait, frozen=True):
    running: Running
    queued: bool = False
    no_executor: bool = False


class ForCancelled(VertexWait, frozen=True):
    subtasks: Subtasks
    earlier: bool = False


class ForSlot(VertexWait, frozen=True):
    subtasks: Subtasks
    joined: bool = False
    """Further attempts, beside others."""


class Attempt(msgspec.Struct, frozen=True):
    number: int
    node: str
    seconds: float | None
    """Since its launch; None: it is queued."""
    is_mirror: bool


class Race(VertexWait, frozen=True):
    """Several attempts of one subtask."""

    subtask: int
    attempts: tuple[Attempt, ...]


class InputWait(VertexWait, frozen=True):
    """``subtasks``: of an initialised vertex, those that wait; None: its parallelism is not decided yet."""

    subtasks: Subtasks | None
    producer: int


class ForDecision(InputWait, frozen=True):
    """The producer has not started."""


class ForNeighbour(InputWait, frozen=True):
    """It runs at the same time as the producer."""


class ForProducers(InputWait, frozen=True):
    dataset: int
    missing: int
    producers: int
    running: Running | None


class ForSizes(InputWait, frozen=True):
    """Sizes that so many producers reported are being read back."""

    dataset: int
    producers: int

"""What a job waits for, as facts. ``report.waits`` has the words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from firesteel.humanize import format_bytes, plural
from firesteel.model.arrays import Ints
from firesteel.options import FRAMEWORK_MEMORY
from firesteel.scheduler.slots.resource_profile import ResourceProfile, WorkerResources

MOST_NAMED = 5
"""Subtasks, attempts, and steps, that a wait names."""


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
    """Slots of a group's own resources. ``who``, ``asked`` and ``there`` are parts of sentences."""

    group: str
    steps: tuple[str, ...]
    """The first of ``num_steps``."""
    num_steps: int
    needs: tuple[tuple[ResourceProfile, int], ...]
    """How many slots of each are needed at once."""

    @property
    def who(self) -> str:
        named = ", ".join(f"'{step}'" for step in self.steps)
        more = self.num_steps - len(self.steps)
        steps = f"step{'s' if self.num_steps > 1 else ''} {named}{f' and {more} more' if more else ''}"
        return f"group '{self.group}' ({steps})"

    @property
    def asked(self) -> str:
        each = [
            f"{f'{n} times ' if n > 1 else ''}{need if need.is_specified else 'any size'}" for need, n in self.needs
        ]
        return " and ".join(each) + (" at once" if self.is_region else "")

    @property
    def is_region(self) -> bool:
        return sum(count for _, count in self.needs) > 1


class ForWorker(ForRequest, frozen=True):
    """None that is there could hold them."""

    workers: int
    are_made: bool
    """Each worker is an executor that Spark made for one need."""
    largest: WorkerResources | None
    """The worker that lacks least."""
    framework: int
    """Bytes that each slot takes in addition to its need."""
    seconds: float
    """Until the job gives up."""

    @property
    def none(self) -> str:
        """To be followed by what is asked for."""
        if self.are_made:
            return "no executor for"
        return "no room, even if nothing ran, for" if self.is_region else "no worker that could hold"

    @property
    def there(self) -> str:
        if self.are_made and self.workers:
            return f"there {'is' if self.workers == 1 else 'are'} {plural(self.workers, 'executor')}, of other profiles"
        if self.are_made or self.largest is None:
            return "none is there" if self.are_made else "no worker is there"
        lacks = "".join(f" and no {name}" for name in self.lacks)
        each = format_bytes(self.framework)
        framework = f", and each slot takes {each} more for its Python worker ({FRAMEWORK_MEMORY.key})"
        return f"the largest worker has {self.largest}{lacks}{framework if self.framework else ''}"

    @property
    def lacks(self) -> list[str]:
        """External resources of which the largest worker has none at all."""
        external = dict.fromkeys(name for need, _ in self.needs for name, _ in need.external)
        return [name for name in external if self.largest is not None and not self.largest.external.get(name)]


class ForRoom(ForRequest, frozen=True):
    """``able`` workers could hold some of them if they were empty. ``blocked`` of these are on blocked nodes."""

    missing: int
    """Slots, or regions of several slots."""
    able: int
    blocked: int
    held: tuple[tuple[str, WorkerResources], ...]
    """Of these workers, by each other job that holds something."""


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

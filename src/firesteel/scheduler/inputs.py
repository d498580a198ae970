"""All that a scheduler knows beside its graph, its options and its events: as the driver found it, or asked inside of ``handle``.

Its decisions follow from answers of the user's functions, and from numbers that are known late, as from events. So they are written
beside the event, and a replay is given them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from firesteel.errors import FiresteelError
from firesteel.model.costs import NO_COSTS, StepCosts
from firesteel.option_functions import OptionFunctionError
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.slots.resource_profile import SlotMode

T = TypeVar("T")
_SAID, _RAISED, _NUMBER = "said", "raised", "number"
"""The kind of an answer: what a function answered, or raised; a number that has changed."""


@dataclass(frozen=True)
class Inputs:
    """As the driver found it when the job began. Plain data, so that the next driver makes its scheduler with the same."""

    slots: int = 1
    """Tasks that can run at once on the cluster, as far as known."""
    in_order: bool = False
    """The cluster serves what came first, so a mirror would wait for all that was deployed before it: nothing is deployed that has no slot."""
    slot_mode: SlotMode | None = None
    """Who keeps slots of their own resources apart, where a slot sharing group has any; None: the pool alone."""
    cold_start: float = 0.0
    """Seconds that the cluster's first workers may take to start."""
    costs: StepCosts = NO_COSTS
    """Of steps, as earlier runs measured them."""
    request_seconds: float | None = None
    """What asking the storage for one slice takes, where the options do not say; None: not known, and nothing is merged."""
    task_memory: float | None = None
    """Bytes that a task may use for its data; None: not known."""
    pinned: dict[int, int] = field(default_factory=dict[int, int])
    """Vertex to the parallelism it had before the job was resumed with another program."""
    size_buffer_bytes: int = BUFFER_BYTES
    """Of each result's packed rows of sizes, what is kept in memory."""


class DirectInputs:
    """Side inputs that nobody writes down."""

    def __init__(self) -> None:
        self._measured: dict[str, float | None] = {}

    def measured(self, name: str, number: float | None) -> None:
        """A number of :class:`Inputs` that is known now."""
        self._measured[name] = number

    def ask(self, call: Callable[[], T]) -> T:
        """Returns what ``call`` answers: plain data (numbers, text, None, lists of these). What it raises passes."""
        return call()

    def number(self, name: str, at_first: float | None) -> float | None:
        """Returns the number of this name as the scheduler is to see it; ``at_first``: before it was measured."""
        return self._measured.get(name, at_first)


class SideInputs(DirectInputs):
    """Side inputs of one scheduler, written down event by event, or played again."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[list[Any]] = []
        self._numbers: dict[str, float | None] = {}
        self._looked: set[str] = set()
        """Numbers that were looked at during this event: they do not change before the next one."""
        self._played: deque[Sequence[Any]] | None = None

    def ask(self, call: Callable[[], T]) -> T:
        if self._played is not None:
            return self._again(self._played)
        try:
            answer = call()
        except FiresteelError as error:
            self._answers.append([_RAISED, error.message, error.hint, error.cause_trace])
            raise
        self._answers.append([_SAID, answer])
        return answer

    def number(self, name: str, at_first: float | None) -> float | None:
        if name not in self._looked:
            self._looked.add(name)
            if self._played is None:
                self._measure(name, super().number(name, at_first))
            elif self._played and tuple(self._played[0][:2]) == (_NUMBER, name):
                self._numbers[name] = self._played.popleft()[2]
        return self._numbers.get(name)

    def take(self) -> tuple[Any, ...]:
        """Returns the answers since the last call: those of the event that was handled."""
        answers, self._answers = tuple(self._answers), []
        self._looked.clear()
        return answers

    @contextmanager
    def play(self, answers: Sequence[Any]) -> Generator[None, None, None]:
        """Inside, the answers of an event are given again. Raises ValueError where other ones are asked for."""
        self._played = deque(answers)
        try:
            yield
            if self._played:
                raise ValueError("answers of the user's functions were not asked for")
        finally:
            self._played = None
            self._looked.clear()

    def _again(self, played: deque[Sequence[Any]]) -> Any:
        kind, *answer = played.popleft() if played else ("nothing",)
        if kind == _RAISED:
            message, hint, trace = answer
            raise OptionFunctionError(message, hint=hint, cause_trace=trace)
        if kind != _SAID:
            raise ValueError("a function of the user's is asked that was not asked then")
        return answer[0]

    def _measure(self, name: str, number: float | None) -> None:
        if number != self._numbers.get(name):
            self._numbers[name] = number
            self._answers.append([_NUMBER, name, number])

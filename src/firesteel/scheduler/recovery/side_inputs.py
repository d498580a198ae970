"""Side inputs of a scheduler: what it learns inside of ``handle`` and not by an event. Answers of the user's functions, and numbers that
are known late.

Its decisions follow from them as from events. So they are written beside the event, and a replay is given them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from firesteel.errors import FiresteelError
from firesteel.option_functions import OptionFunctionError

T = TypeVar("T")
Number = Callable[[], float | None]
_SAID, _RAISED, _NUMBER = "said", "raised", "number"
"""The kind of an answer: what a function answered, or raised; a number that has changed."""


class DirectInputs:
    """Side inputs that nobody writes down."""

    def ask(self, call: Callable[[], T]) -> T:
        """Returns what ``call`` answers: plain data (numbers, text, None, lists of these). What it raises passes."""
        return call()

    def number(self, name: str, measured: Number) -> Number:
        """Returns what gives the number of this name as the scheduler is to see it."""
        return measured


DIRECT = DirectInputs()


class SideInputs(DirectInputs):
    """Side inputs of one scheduler, written down event by event, or played again."""

    def __init__(self) -> None:
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

    def number(self, name: str, measured: Number) -> Number:
        return lambda: self._number(name, measured)

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

    def _number(self, name: str, measured: Number) -> float | None:
        if name not in self._looked:
            self._looked.add(name)
            if self._played is None:
                self._measure(name, measured)
            elif self._played and tuple(self._played[0][:2]) == (_NUMBER, name):
                self._numbers[name] = self._played.popleft()[2]
        return self._numbers.get(name)

    def _measure(self, name: str, measured: Number) -> None:
        number = measured()
        if number != self._numbers.get(name):
            self._numbers[name] = number
            self._answers.append([_NUMBER, name, number])

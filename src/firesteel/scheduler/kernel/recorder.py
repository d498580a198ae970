"""Collects what one event causes: commands for the data plane, records for the journal, lines for the story."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, is_ascending, numbers_of
from firesteel.scheduler.kernel.commands import Command, DiscardExecutions, Record
from firesteel.scheduler.kernel.events import Event
from firesteel.scheduler.kernel.records import Decision, JournalRecord, OutputGone, StateChange
from firesteel.scheduler.kernel.states import ExecutionState

STORY_LENGTH = 20_000
STORY_NUMBERS = 1 << 21
"""Entries kept in memory, and numbers in them: one may speak of many subtasks. The journal keeps all."""


_FEW = 16
"""Subtasks from which on it pays to keep a run of them as its ends, and others in few bytes."""
_Numbers = NDArray[np.signedinteger[Any]]


class _Entry(msgspec.Struct):
    at: float
    event: int
    vertex: int | None
    subtasks: _Numbers | range | None
    attempts: _Numbers | int | None
    """One number: all have it."""
    text: str

    @property
    def numbers(self) -> int:
        """Returns the count of numbers that are kept of its columns."""
        if not isinstance(self.subtasks, np.ndarray):
            return 0
        return self.subtasks.size * (2 if isinstance(self.attempts, np.ndarray) else 1)

    def line(self, subtask: int | None) -> str:
        who = ""
        if self.subtasks is not None and self.attempts is not None:
            if subtask is not None:
                who = f"attempt {self._attempt(subtask)} "
            else:
                who = f"{len(self.subtasks)} subtasks " if len(self.subtasks) > 1 else f"subtask {self.subtasks[0]} "
        return f"{self.at:.3f} s, event {self.event}: {who}{self.text}"

    def speaks_of(self, subtask: int) -> bool:
        if isinstance(self.subtasks, np.ndarray):
            return bool(np.any(self.subtasks == subtask))
        return self.subtasks is None or subtask in self.subtasks

    def _attempt(self, subtask: int) -> int:
        if isinstance(self.attempts, np.ndarray):
            return int(self.attempts[np.asarray(self.subtasks) == subtask][0])
        return self.attempts or 0


class Recorder:
    """Commands, records and a story of what the events of a job, or of a stream, caused."""

    def __init__(self, story_length: int = STORY_LENGTH) -> None:
        self.at = 0.0
        self.event = 0
        self._commands: list[Command] = []
        self._story: deque[_Entry] = deque(maxlen=story_length)
        self._numbers = 0

    def begin(self, event: Event) -> None:
        """Everything from here on was caused by ``event``. One without an id gets the next number.

        Late events do not turn time back: what they cause happens now.
        """
        self.event = event.id or self.event + 1
        self.at = max(self.at, event.at)

    def take(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def emit(self, command: Command) -> None:
        self._commands.append(command)

    def record(self, record: JournalRecord) -> None:
        self._commands.append(Record(record))

    def decision(self, what: str, *, vertex: int | None = None, name: str = "", **fields: Any) -> None:
        """``fields``: inputs, rule, bounds, result, reason, as in :class:`records.Decision`. Inputs that are facts give the reason (``report.decisions``)."""
        if isinstance(fields.get("inputs"), msgspec.Struct):
            fields["inputs"] = msgspec.to_builtins(fields["inputs"])
        self.record(Decision(at=self.at, event=self.event, what=what, vertex=vertex, name=name, **fields))
        self.tell(f"{what}: {fields.get('reason', fields.get('result'))}", vertex)

    def states(
        self, vertex: int, state: ExecutionState, subtasks: Ints, attempts: Ints, cause: str = "", **columns: Any
    ) -> None:
        """``columns``: the others of :class:`records.StateChange`."""
        if not len(subtasks):
            return
        self.record(
            StateChange(
                at=self.at,
                event=self.event,
                vertex=vertex,
                state=state.name,
                subtasks=numbers_of(subtasks),
                attempts=numbers_of(attempts),
                cause=cause,
                **columns,
            )
        )
        hosts, nodes = columns.get("hosts", ()), columns.get("nodes", ())
        on = f" on {hosts[0]}" if len(hosts) == 1 and -1 not in nodes else ""
        self.tell(f"-> {state.name}{on}{f' ({cause})' if cause else ''}", vertex, subtasks, attempts)

    def discard(self, vertex: int, subtasks: Ints, attempts: Ints, tokens: Ints, reason: str) -> None:
        """All that these executions wrote is to go."""
        if not len(subtasks):
            return
        self.emit(DiscardExecutions(vertex, subtasks, attempts, tokens))
        self.output_gone(vertex, None, (subtasks, attempts, tokens), f"discarded: {reason}")
        self.tell(f"discarded: {reason}", vertex, subtasks, attempts)

    def output_gone(self, vertex: int, dataset: int | None, columns: tuple[Ints, Ints, Ints], reason: str) -> None:
        subtasks, attempts, tokens = map(numbers_of, columns)
        self.record(
            OutputGone(
                at=self.at,
                event=self.event,
                vertex=vertex,
                dataset=dataset,
                subtasks=subtasks,
                attempts=attempts,
                tokens=tokens,
                reason=reason,
            )
        )

    def tell(
        self, text: str, vertex: int | None = None, subtasks: Ints | None = None, attempts: Ints | None = None
    ) -> None:
        """One more line of the story, of a vertex or of the whole."""
        whose = (subtasks, attempts) if subtasks is None or len(subtasks) < _FEW else _folded(subtasks, attempts)
        entry = _Entry(self.at, self.event, vertex, *whose, text)
        if len(self._story) == self._story.maxlen:
            self._numbers -= self._story.popleft().numbers
        self._story.append(entry)
        if isinstance(entry.subtasks, np.ndarray):
            self._numbers += entry.numbers
        while self._numbers > STORY_NUMBERS:
            self._numbers -= self._story.popleft().numbers

    def story(self, vertex: int | None = None, subtask: int | None = None) -> list[str]:
        """The lines of a vertex (None: of all), or of one of its subtasks, with the event that caused each; oldest first."""
        lines: list[str] = []
        for entry in self._story:
            if vertex is not None and entry.vertex not in (vertex, None):
                continue
            if subtask is not None and not entry.speaks_of(subtask):
                continue
            lines.append(entry.line(subtask))
        return lines


def _folded(subtasks: Ints, attempts: Ints | None) -> tuple[_Numbers | range, _Numbers | int | None]:
    """A run of subtasks as its ends, equal attempts as one number: a story should not outweigh the job."""
    first, last = int(subtasks[0]), int(subtasks[-1])
    whole = last - first == len(subtasks) - 1 and is_ascending(subtasks)
    numbers = range(first, last + 1) if whole else subtasks.astype(np.int32)
    if attempts is None:
        return numbers, None
    return numbers, attempts.astype(np.int32) if (attempts != attempts[0]).any() else int(attempts[0])

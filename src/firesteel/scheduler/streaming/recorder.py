"""Collects what one event of a stream causes: commands, records, lines of its story; and keeps its timers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from firesteel.scheduler.records import Decision, JournalRecord
from firesteel.scheduler.streaming.commands import CancelTimer, SetTimer, StreamCommand, WriteRecord
from firesteel.scheduler.streaming.events import StreamEvent

STORY_LENGTH = 200


class StreamRecorder:
    def __init__(self) -> None:
        self.at = 0.0
        self.event = 0
        self._commands: list[StreamCommand] = []
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    def begin(self, event: StreamEvent) -> None:
        """Everything from here on was caused by ``event``. A late one does not turn time back."""
        self.event = event.id or self.event + 1
        self.at = max(self.at, event.at)

    def take(self) -> list[StreamCommand]:
        commands, self._commands = self._commands, []
        return commands

    def emit(self, command: StreamCommand) -> None:
        self._commands.append(command)

    def record(self, record: JournalRecord) -> None:
        self.emit(WriteRecord(record=record))

    def decision(self, what: str, **fields: Any) -> None:
        """``fields``: inputs, rule, bounds, result, reason, as in :class:`firesteel.scheduler.records.Decision`."""
        self.record(Decision(at=self.at, event=self.event, what=what, **fields))
        self.tell(f"{what}: {fields.get('reason', fields.get('result'))}")

    def tell(self, text: str) -> None:
        self._story.append(f"{self.at:.3f} s, event {self.event}: {text}")

    def story(self) -> list[str]:
        """Oldest first."""
        return list(self._story)


class Timers:
    """Timers by name. One that was cancelled, or set anew, does not fire; one that fires early is asked for again.

    Those due fire before the event that brings the time is looked at, whether the data plane has told them or not.
    """

    def __init__(self, recorder: StreamRecorder) -> None:
        self._recorder = recorder
        self._due: dict[str, tuple[float, Callable[[], None]]] = {}

    def set(self, name: str, when: float, then: Callable[[], None]) -> None:
        known = self._due.get(name)
        self._due[name] = (when, then)
        if known is None or known[0] != when:
            self._recorder.emit(SetTimer(timer=name, when=when))

    def cancel(self, name: str) -> None:
        if self._due.pop(name, None) is not None:
            self._recorder.emit(CancelTimer(timer=name))

    def when(self, name: str) -> float | None:
        return self._due[name][0] if name in self._due else None

    def fired(self, name: str) -> None:
        """The data plane told it. What is due has fired by now: one still here was told too early."""
        if name in self._due:
            self._recorder.emit(SetTimer(timer=name, when=self._due[name][0]))

    def fire_due(self) -> None:
        while True:
            due = [(when, name) for name, (when, _) in self._due.items() if when <= self._recorder.at]
            if not due:
                return
            _, then = self._due.pop(min(due)[1])
            then()

"""The state of a stream's scheduler, and the moves it may make."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum
from typing import TypeVar

from firesteel.scheduler.streaming.recorder import StreamRecorder
from firesteel.scheduler.streaming.records import StreamStateChange
from firesteel.scheduler.streaming.states import STATE_MOVES, Phase, SchedulerState

E = TypeVar("E", bound=Enum)
_LEGAL = {(move.source, move.target) for move in STATE_MOVES}


def check_move(who: str, move: tuple[E, E], legal: Set[tuple[E, E]], why: str, recorder: StreamRecorder) -> None:
    """Raises ValueError, with the story, for a move that is not in its table."""
    if move not in legal:
        source, target = move
        story = "\n".join(recorder.story())
        raise ValueError(f"{who} cannot go from {source.value} to {target.value} ({why}).\n{story}")


class StateMachine:
    def __init__(self, name: str, recorder: StreamRecorder) -> None:
        self._name = name
        self._recorder = recorder
        self.state = SchedulerState.CREATED

    def go(self, state: SchedulerState, cause: str, phase: str = "") -> None:
        """Raises ValueError, with the story, for a move that is not in the table."""
        check_move(f"The scheduler of '{self._name}'", (self.state, state), _LEGAL, cause, self._recorder)
        self.state = state
        self._record(phase, cause)
        self._recorder.tell(f"{state.value} ({cause})")

    def phase_changed(self, phase: Phase, cause: str) -> None:
        if self.state is SchedulerState.EXECUTING:
            self._record(phase.value, cause)

    def _record(self, phase: str, cause: str) -> None:
        at, event = self._recorder.at, self._recorder.event
        self._recorder.record(StreamStateChange(at=at, event=event, state=self.state.value, phase=phase, cause=cause))

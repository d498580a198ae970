"""The state of a stream's scheduler, and the moves it may make."""

from __future__ import annotations

from firesteel.scheduler.streaming.recorder import StreamRecorder
from firesteel.scheduler.streaming.records import StreamStateChange
from firesteel.scheduler.streaming.states import STATE_MOVES, Phase, SchedulerState

_LEGAL = {(move.source, move.target) for move in STATE_MOVES}


class StateMachine:
    def __init__(self, name: str, recorder: StreamRecorder) -> None:
        self._name = name
        self._recorder = recorder
        self.state = SchedulerState.CREATED

    def go(self, state: SchedulerState, cause: str, phase: str = "") -> None:
        """Raises ValueError, with the story, for a move that is not in the table."""
        if (self.state, state) not in _LEGAL:
            story = "\n".join(self._recorder.story())
            raise ValueError(
                f"The scheduler of '{self._name}' cannot go from {self.state.value} to {state.value} ({cause}).\n{story}"
            )
        self.state = state
        self._record(phase, cause)
        self._recorder.tell(f"{state.value} ({cause})")

    def phase_changed(self, phase: Phase, cause: str) -> None:
        if self.state is SchedulerState.EXECUTING:
            self._record(phase.value, cause)

    def _record(self, phase: str, cause: str) -> None:
        at, event = self._recorder.at, self._recorder.event
        self._recorder.record(StreamStateChange(at=at, event=event, state=self.state.value, phase=phase, cause=cause))

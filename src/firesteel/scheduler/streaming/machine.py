"""The state of a stream's scheduler, and the moves it may make."""

from __future__ import annotations

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.streaming.records import StreamStateChange
from firesteel.scheduler.streaming.states import SCHEDULER_STATES, Phase, SchedulerState


class StateMachine:
    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name = name
        self._recorder = recorder
        self.state = SchedulerState.CREATED

    def go(self, state: SchedulerState, cause: str, phase: str = "") -> None:
        """Raises ValueError, with the story, for a move that is not in the table."""
        who = f"The scheduler of '{self._name}'"
        SCHEDULER_STATES.check(self.state, state, who, cause, self._recorder.story())
        self.state = state
        self._record(phase, cause)
        self._recorder.tell(f"{state.value} ({cause})")

    def phase_changed(self, phase: Phase, cause: str) -> None:
        if self.state is SchedulerState.EXECUTING:
            self._record(phase.value, cause)

    def _record(self, phase: str, cause: str) -> None:
        at, event = self._recorder.at, self._recorder.event
        self._recorder.record(StreamStateChange(at=at, event=event, state=self.state.value, phase=phase, cause=cause))

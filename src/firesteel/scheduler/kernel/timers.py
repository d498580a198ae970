"""Timers by name, each with the callback of whoever set it."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.scheduler.kernel.commands import CancelTimer, SetTimer
from firesteel.scheduler.kernel.recorder import Recorder


class Timers:
    """A timer that was cancelled, or set anew, does not fire; one that is told too early is set again.

    A scheduler either fires what is due as time comes with any event (``fire_due``), or waits until the data plane tells
    (``fired``).
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._due: dict[str, tuple[float, Callable[[], None]]] = {}

    def set(self, name: str, at: float, then: Callable[[], None]) -> None:
        """Calls ``then`` at ``at``, seconds on the clock of the events."""
        known = self._due.get(name)
        self._due[name] = (at, then)
        if known is None or known[0] != at:
            self._recorder.emit(SetTimer(name, at))

    def cancel(self, name: str) -> None:
        if self._due.pop(name, None) is not None:
            self._recorder.emit(CancelTimer(name))

    def when(self, name: str) -> float | None:
        """The time for which a timer is set; None: it is not set."""
        return self._due[name][0] if name in self._due else None

    def fired(self, name: str) -> None:
        """The data plane has told of this timer. One that is not set, or fired before, changes nothing."""
        at, then = self._due.get(name, (0.0, _nothing))
        if at > self._recorder.at:
            self._recorder.emit(SetTimer(name, at))
            return
        self._due.pop(name, None)
        then()

    def fire_due(self) -> None:
        """Fires all whose time has come, the earliest first."""
        while True:
            due = [(at, name) for name, (at, _) in self._due.items() if at <= self._recorder.at]
            if not due:
                return
            _, then = self._due.pop(min(due)[1])
            then()


def _nothing() -> None: ...

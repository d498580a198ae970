"""Waiting for resources before the query is started: the rescale manager's machine, without a query to keep from its work."""

from __future__ import annotations

import math
from collections.abc import Callable

from firesteel.humanize import format_seconds
from firesteel.options import RESOURCE_WAIT_TIMEOUT
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming.manager import Delays, Direction, RescaleManager
from firesteel.scheduler.streaming.records import Trigger
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.slots import Resources
from firesteel.scheduler.streaming.wish import Wanted

_WAIT = "resource wait"


class Submission:
    """Starts when the desired slots are there; when sufficient ones are, and no more came within the stabilisation timeout;
    or, after the wait timeout, with what is there. Its environment is itself."""

    def __init__(
        self,
        wanted: Wanted,
        settings: StreamSettings,
        recorder: Recorder,
        timers: Timers,
        *,
        start: Callable[[str], None],
        give_up: Callable[[str], None],
    ) -> None:
        """``start``, ``give_up``: with the reason."""
        self._wanted = wanted
        self._settings = settings
        self._recorder = recorder
        self._timers = timers
        self._start = start
        self._give_up = give_up
        self._manager: RescaleManager | None = None
        self._resources = Resources()
        self._started_with = 0
        """Slots."""

    def begin(self, resources: Resources) -> None:
        self._resources = resources
        if not math.isinf(self._settings.resource_wait):
            self._timers.set(_WAIT, self._recorder.at + self._settings.resource_wait, self._wait_is_over)
        delays = Delays(0.0, 0.0, self._settings.submission_stabilization, lambda: 0.0)
        since = self._recorder.at
        self._manager = RescaleManager(
            self, delays, self._recorder, self._timers, cooldown_since=since, name="submission"
        )
        self._manager.on_change()

    def changed(self, resources: Resources) -> None:
        """The slots, or the requirements."""
        self._resources = resources
        if self._manager is not None:
            self._manager.on_change()

    def close(self) -> None:
        self._timers.cancel(_WAIT)
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def is_sufficient(self, resources: Resources) -> bool:
        return resources.known and self._wanted.at_start(resources).sufficient

    def starts(self, resources: Resources) -> None:
        """The query is, with these."""
        self._started_with = self._wanted.slots(resources)

    def is_enough_again(self, resources: Resources) -> bool:
        """At a restart: also as many slots as it ran with."""
        there = self._wanted.slots(resources)
        return self.is_sufficient(resources) or there >= self._started_with > 0

    @property
    def until(self) -> float | None:
        """When it no longer waits for what it waits for."""
        if self._manager is not None and self.has_sufficient():
            return self._manager.stabilized_at
        return self._timers.when(_WAIT)

    def direction(self) -> Direction | None:
        return Direction.UP

    def has_sufficient(self) -> bool:
        return self.is_sufficient(self._resources)

    def has_desired(self) -> bool:
        return self.has_sufficient() and self._wanted.at_start(self._resources).desired

    def rescale(self, trigger: Trigger) -> None:
        """There is something to start with."""
        self._start("the slots are there" if self.has_desired() else "sufficient slots, and no more came")

    def _wait_is_over(self) -> None:
        waited = f"after {format_seconds(self._settings.resource_wait)} ({RESOURCE_WAIT_TIMEOUT.key})"
        if self._wanted.slots(self._resources) > 0:
            self._start(f"{waited} with what is there")
        else:
            there, larger, what = "", "", "core"
            if self._resources.cores:
                there, larger, what = f": {self._wanted.of_executors.told(self._resources)}", "larger ", "slot"
            self._give_up(
                f"No {what} was there to run the stream {waited}{there}. Start {larger}workers, or make "
                f"{RESOURCE_WAIT_TIMEOUT.key} larger."
            )

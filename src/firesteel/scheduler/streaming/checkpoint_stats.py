"""Checkpoints of a stream, which are its micro-batches: completed, failed, how far apart (FLIP-461)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming.load import LoadSignal
from firesteel.scheduler.streaming.manager import Delays, FirstChanges
from firesteel.scheduler.streaming.wish import Assessment, Assessor

_BATCHES = 10
_LEAST_INTERVAL = 1.0


class CheckpointStatsTracker:
    """A checkpoint completes when its batch is committed. It fails with its batch, and each time that ``timeout`` seconds
    have passed without its commit."""

    def __init__(
        self,
        recorder: Recorder,
        timers: Timers,
        timeout: float,
        completes: Callable[[], None],
        fails: Callable[[], None],
    ) -> None:
        self._completes, self._fails = completes, fails
        self._recorder = recorder
        self._timers = timers
        self._timeout = timeout
        self._durations: deque[float] = deque(maxlen=_BATCHES)
        self._began: float | None = None
        self._trigger_interval: float | None = None
        """Gap of the query's trigger, seconds."""
        self.completed = 0
        self.failed = 0

    def batch_started(self) -> None:
        self._began = self._recorder.at
        self._timers.set("checkpoint timeout", self._recorder.at + self._timeout, self._timed_out)

    def batch_committed(self, duration: float) -> None:
        """``duration``: seconds from trigger to commit; 0: as we saw it."""
        seen = 0.0 if self._began is None else self._recorder.at - self._began
        self._durations.append(duration or seen)
        self.no_batch()
        self.completed += 1
        self._completes()

    def idle(self) -> None:
        """There is nothing newer than the last checkpoint, and the query waits."""
        self.no_batch()
        self._completes()

    def batch_failed(self) -> None:
        self.no_batch()
        self._fail()

    def query_started(self, trigger_interval: float | None) -> None:
        """``trigger_interval``: gap of its trigger, seconds."""
        self._trigger_interval = trigger_interval
        self.no_batch()

    def no_batch(self) -> None:
        """None runs any more."""
        self._began = None
        self._timers.cancel("checkpoint timeout")

    @property
    def running_since(self) -> float | None:
        """When the running batch began; None: none runs."""
        return self._began

    @property
    def again(self) -> float:
        """Seconds that the running batch, or one like the last ones, would take to be done again."""
        age = 0.0 if self._began is None else self._recorder.at - self._began
        return max(age, median(self._durations) if self._durations else 0.0)

    @property
    def interval(self) -> float:
        """Seconds: the trigger's gap, or the median duration of the last batches where that is longer; at least 1.

        Before the first commit the age of the running batch stands for a duration.
        """
        durations = list(self._durations)
        if not durations and self._began is not None:
            durations = [self._recorder.at - self._began]
        return max(_LEAST_INTERVAL, self._trigger_interval or 0.0, median(durations) if durations else 0.0)

    def _timed_out(self) -> None:
        self._timers.set("checkpoint timeout", self._recorder.at + self._timeout, self._timed_out)
        self._fail()

    def _fail(self) -> None:
        self.failed += 1
        self._fails()


class FailedCheckpoints:
    """Counts failed checkpoints in a row from the first change on; any trigger clears the count."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def failed(self, *, changed: bool) -> bool:
        """One more failed. Returns whether that is a trigger. ``changed``: a change waits to be followed."""
        if not changed:
            self.count = 0
            return False
        self.count += 1
        return self.count >= self._limit

    @property
    def is_trigger(self) -> bool:
        """So many failed, while no query ran that could be rescaled."""
        return self.count >= self._limit

    def clear(self) -> None:
        self.count = 0


def max_delay(configured: float | None, interval: float, failed_checkpoints: int) -> float:
    """Returns the seconds that a wanted rescale waits for a trigger (FLIP-461): unless configured, so long that
    ``failed_checkpoints`` can fail before. Its 0 for jobs without checkpoints does not exist: each batch is one."""
    return interval * (failed_checkpoints + 1) if configured is None else configured


@dataclass(frozen=True, slots=True)
class Patience:
    replay: bool = False
    """Stop the running batch at once, and replay it."""
    within: float | None = None
    """Else: wait for it so many seconds; None: as long as it takes."""
    again: float = 0.0
    """Seconds that a replay is expected to take."""


def patience(stats: CheckpointStatsTracker, assessor: Assessor, delays: Delays, at: float, *, stuck: bool) -> Patience:
    """Of a query that offers a commit barrier, and is not at it. ``stuck``: its checkpoints fail.

    A replay takes as long as the whole batch again, so that only one that has run for max delay is stopped.
    """
    again, began = stats.again, stats.running_since
    if not assessor.may_replay(again):
        return Patience()
    left = (at if began is None else began) + delays.max_delay() - at
    return Patience(True, None, again) if stuck or left <= 0 else Patience(within=left)


def may_tell(assessment: Assessment | None, load: LoadSignal, stats: CheckpointStatsTracker, at: float) -> bool:
    """Returns whether a rescale may be waiting only for what the next batch tells.

    To follow it at that very checkpoint, the query must wait at its commit barrier; without, the next batch has begun when the commit is told.
    """
    until = at + 2 * stats.interval  # a batch may take twice as long as they do
    return assessment is not None and (assessment.awaits_batch or load.is_due(until))


def may_begin_at_restart(
    assessment: Assessment,
    delays: Delays,
    at: float,
    *,
    cools_since: float,
    since: FirstChanges,
    failed: bool,
) -> bool:
    """A query that failed is down, and its batch is replayed anyway: the next checkpoint is not waited for. All else that a
    rescale waits for is. ``failed``: so many checkpoints did that this is a trigger."""
    direction = assessment.direction
    if direction is None or not assessment.wish.sufficient:
        return False
    if at < cools_since + delays.cooldown(direction):
        return False
    first = at if since.sufficient is None else since.sufficient
    if at < first + delays.stabilization:
        if not assessment.wish.desired:
            return False
        first = at if since.desired is None else since.desired
    return failed or at >= first + delays.max_delay()

"""Decides what is done about the running batch when a rescale begins, whether a commit barrier is set, and whether a rescale may begin while the
query is down."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.scheduler.streaming.rescaling.checkpoint_stats import CheckpointStatsTracker
from firesteel.scheduler.streaming.rescaling.manager import Delays, FirstChanges
from firesteel.scheduler.streaming.wanted.assessment import Assessment, Assessor
from firesteel.scheduler.streaming.wanted.load import LoadSignal


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

"""What is done about the running batch when a rescale begins, and whether one may begin while the query is down."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.scheduler.streaming.assessment import Assessment, Assessor
from firesteel.scheduler.streaming.checkpoint_stats import CheckpointStatsTracker
from firesteel.scheduler.streaming.rescale_manager import Delays


@dataclass(frozen=True, slots=True)
class Patience:
    replay: bool = False
    """Stop the running batch at once, and replay it."""
    within: float | None = None
    """Else: wait for it so many seconds; None: as long as it takes."""
    again: float = 0.0
    """Seconds that a replay is expected to take."""


def patience(stats: CheckpointStatsTracker, assessor: Assessor, delays: Delays, at: float, *, stuck: bool) -> Patience:
    """Of a query that can be held, and is not. ``stuck``: its checkpoints fail.

    A replay takes as long as the whole batch again, so that only one that has run for max delay is stopped.
    """
    again, began = stats.again, stats.running_since
    if not assessor.may_replay(again):
        return Patience()
    left = (at if began is None else began) + delays.max_delay() - at
    return Patience(True, None, again) if stuck or left <= 0 else Patience(within=left)


def may_begin_at_restart(
    assessment: Assessment,
    delays: Delays,
    at: float,
    *,
    cools_since: float,
    first_change: float | None,
    failed: bool,
) -> bool:
    """A query that failed is down, and its batch is replayed anyway: the next checkpoint is not waited for. All else that a
    rescale waits for is. ``failed``: so many checkpoints did that this is a trigger."""
    direction = assessment.direction
    if direction is None or not assessment.wish.sufficient:
        return False
    if at < cools_since + delays.cooldown(direction):
        return False
    first = at if first_change is None else first_change
    if not assessment.wish.desired and at < first + delays.stabilization:
        return False
    return failed or at >= first + delays.max_delay()

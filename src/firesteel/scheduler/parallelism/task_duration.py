"""A step's parallelism by the time that its subtasks will take, where earlier runs have measured what a byte costs.

Data volume per task stays the rule; this moves its answer within bounds. A costly step is spread over slots that would stand
idle, and over no more than those: each subtask may load a model before it begins, so that more waves of them could take
longer than one. A cheap step gets fewer waves, and never leaves a slot idle for it.
"""

from __future__ import annotations

from collections.abc import Callable

from firesteel.humanize import format_bytes, format_seconds, plural
from firesteel.scheduler.parallelism.model import Bounds
from firesteel.scheduler.parallelism.waves import whole_waves

TASK_DURATION = "task duration"
"""The rule where the time that subtasks take has decided."""
MOST_VOLUMES = 4
"""Times the data volume per task that a subtask of a cheap step may get: what it holds in memory may grow with it."""


def by_duration(
    bounds: Bounds, volume: int, *, least: int, today: int, fewest: Callable[[], int], seconds_beside: float = 0.0
) -> int:
    """Returns the number of subtasks for ``volume`` bytes; ``today`` where the step's cost is not known, or changes nothing.

    ``least``: subtasks that the volume per task asks for. ``today``: with those that fill idle slots. ``fewest``: gives the fewest
    that stay within MOST_VOLUMES times the volume per task, and all other bounds. ``seconds_beside``: what one more subtask costs to
    read, for which it must have as much to do. The result grows with the cost, and is not bounded from above. A subtask
    has MOST_VOLUMES times as many bytes of its own as it hashes again (``bounds.rebuilt``), unless a slot would stand idle.
    """
    if _builds(bounds) and bounds.target_seconds:
        few = whole_waves(max(volume // (MOST_VOLUMES * bounds.rebuilt), fewest(), 1), bounds.slots)
        if few < today:
            return few
    if bounds.cost is None or not bounds.target_seconds:
        return today
    seconds = bounds.cost.seconds_per_byte * volume
    worth = int(seconds / max(bounds.target_seconds, seconds_beside))
    if worth > today:
        return max(today, min(worth, whole_waves(least, bounds.slots)))
    enough = -int(-seconds // bounds.target_seconds)
    if enough < least:
        return min(today, whole_waves(max(enough, fewest(), 1), bounds.slots))
    return today


def _builds(bounds: Bounds) -> bool:
    """Return whether hashing the build sides again is much of a subtask's work."""
    return MOST_VOLUMES * bounds.rebuilt > bounds.data_volume


def duration_in_words(bounds: Bounds, volume: int, subtasks: int) -> str:
    """``8 MiB at 190 KiB/s measured in 2 earlier runs, 4 s each``; ``3.2 GiB, 410 MiB each, because each hashes 110 MiB of build sides``."""
    cost = bounds.cost
    if _builds(bounds):
        each, rebuilt = format_bytes(volume // subtasks), format_bytes(bounds.rebuilt)
        return f"{format_bytes(volume)}, {each} each, because each hashes {rebuilt} of build sides"
    assert cost is not None
    where = f"measured in {plural(cost.runs, 'earlier run')}" if cost.runs else "as DuckDB computes"
    return (
        f"{format_bytes(volume)} at {format_bytes(1 / cost.seconds_per_byte)}/s {where}, "
        f"{format_seconds(cost.seconds_per_byte * volume / subtasks)} each"
    )

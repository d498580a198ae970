"""Rates of faults in the simulated cluster of tests."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.simulation import dice


@dataclass(frozen=True, slots=True)
class Faults(dice.Faults):
    """Chances are per event or execution, times are virtual seconds between two of a kind; 0: never."""

    max_failures: int = 1 << 40
    """After so many, functions do not raise any more: jobs of tests are to end."""
    node_death_every: float = 0.0
    node_back_after: float = 5.0
    max_node_deaths: int = 3
    node_local: bool = False
    """Objects are lost with their node."""
    late_nodes: int = 0
    """The last nodes of the cluster, which join only after ``late_after`` seconds."""
    late_after: float = 5.0
    lose_every: float = 0.0
    """Single objects vanish."""
    max_losses: int = 5
    damage: float = 0.0
    """Of the objects that would vanish: they stay, and cannot be read."""
    uncounted: float = 0.0
    """Node deaths that are told as nobody's fault."""
    lost: float = 0.0
    """Node deaths after which the tasks are started again elsewhere, where they end at once and say that they were lost."""
    slow_every: float = 0.0
    """A node becomes slow: 0.05 to 0.5 of its speed, for ``slow_for`` seconds."""
    slow_for: float = 5.0
    max_slow: int = 5
    freeze_every: float = 0.0
    """A node stands still for ``freeze_for`` seconds; inf: for good."""
    freeze_for: float = 5.0
    max_freezes: int = 3
    zombie: float = 0.0
    """Executions that were given up, on nodes that stood still or were called dead, go on and finish late."""
    tie: float = 0.0
    """A mirror finishes in the very moment in which another attempt of its subtask does."""
    launch_late: float = 0.0
    """It is told late that executions were launched, and it is not told that their programs began."""
    nameless: float = 0.0
    """Nobody says on which nodes executions were launched."""
    duplicate: float = 0.0
    """An event is told twice, the second time late."""
    late: float = 0.0
    """An event is told late."""
    other_token: float = 0.0
    """A finished execution was run once more by Spark: it reports again, under another token."""
    race: float = 0.0
    """A cancelled execution finishes before it is gone."""
    lose_sizes: float = 0.0
    """A stored row of sizes cannot be read."""
    merge_fails: float = 0.0
    """A group cannot be merged."""
    untold: float = 0.0
    """Nobody is told that executions were launched."""
    retire: float = 0.0
    """An execution with external resources finds itself in a Python worker that began with others, and is rejected."""
    foreign_every: float = 0.0
    """Another job takes some of the free cores of a worker that has resources, for ``foreign_for`` seconds."""
    foreign_for: float = 2.0
    max_foreign: int = 5
    sinks_fail: float = 0.0
    driver_dies: float = 0.0
    """The driver dies while it handles an event: before that is written to its log, after, or between two commands."""
    max_driver_deaths: int = 5
    driver_dies_at: int = 0
    """The first driver dies while it handles this event of the job; 0: not for its number."""
    log_seconds: float = 0.0
    """From an event to its being written: its commands wait so long, with those of the events meanwhile."""
    cancel_after: float = 0.0
    """The user cancels the job after so many virtual seconds."""

"""What can go wrong in a simulated cluster, and the dice that decide when. All dice come from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.scheduler.events import Floats
from firesteel.simulation.storage import Mask


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances are per event or execution, times are virtual seconds between two of a kind; 0: never."""

    fail_rate: float = 0.0
    """Executions whose user function raises."""
    max_failures: int = 1 << 40
    """After so many, functions do not raise any more: jobs of tests are to end."""
    node_death_every: float = 0.0
    node_back_after: float = 5.0
    max_node_deaths: int = 3
    lose_every: float = 0.0
    """Single objects vanish."""
    max_losses: int = 5
    innocent: float = 0.0
    """Node deaths that are told as nobody's fault."""
    duplicate: float = 0.0
    """An event is told twice, the second time late."""
    late: float = 0.0
    """An event is told late."""
    late_by: float = 1.0
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
    sinks_fail: float = 0.0
    cancel_after: float = 0.0
    """The user cancels the job after so many virtual seconds."""


class Dice:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def which(self, chance: float, count: int) -> Mask:
        """To which of ``count`` it happens."""
        return self.rng.random(count) < chance if chance > 0 else np.zeros(count, np.bool_)

    def until_next(self, every: float) -> float:
        return float(self.rng.exponential(every))

    def between(self, least: float, most: float, count: int) -> Floats:
        return self.rng.uniform(least, most, count)

    def one_of(self, count: int) -> int:
        return int(self.rng.integers(count))

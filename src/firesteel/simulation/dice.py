"""What goes wrong in a simulated cluster, and the dice that decide when. All dice come from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Floats, Ints

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances are per execution, times are virtual seconds."""

    fail_rate: float = 0.0
    """Executions whose user function raises."""
    frozen_nodes: int = 0
    """So many stand still for good, ``frozen_after`` the job's start."""
    frozen_after: float = 0.1
    heartbeat_timeout: float = 120.0
    """A node that has stood still so long is told as gone (Spark: ``spark.network.timeout``). Its tasks are started again elsewhere, where
    they end at once and say that they were lost."""
    late_by: float = 1.0
    """Until that is told."""


class Dice:
    def __init__(self, seed: int, of: str = "") -> None:
        """``of``: what they are thrown for, where that has dice of its own."""
        self.rng = np.random.default_rng([seed, *of.encode()] if of else seed)

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def which(self, chance: float, count: int) -> Mask:
        """To which of ``count`` it happens."""
        return self.rng.random(count) < chance if chance > 0 else np.zeros(count, np.bool_)

    def until_next(self, every: float) -> float:
        return float(self.rng.exponential(every))

    def between(self, least: float, most: float, count: int) -> Floats:
        return self.rng.uniform(least, most, count)

    def order_of(self, count: int) -> Ints:
        """The numbers below ``count``, shuffled."""
        return self.rng.permutation(count)

    def one_of(self, count: int) -> int:
        return int(self.rng.integers(count))

    def some_of(self, count: int, times: int) -> Ints:
        """As :meth:`one_of` so many times."""
        return self.rng.integers(count, size=times)

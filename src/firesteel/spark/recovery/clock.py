"""The job's clock, which goes on under another driver."""

from __future__ import annotations

import time

import numpy as np

from firesteel.model.arrays import Floats


class Clock:
    """Seconds since the job began, without those in which it had no driver, monotonic; ``of_wall`` places an executor's time of day on it."""

    def __init__(self, at: float = 0.0) -> None:
        """``at``: what it shows now."""
        self._monotonic = time.monotonic() - at
        self._wall = time.time() - at

    def now(self) -> float:
        return time.monotonic() - self._monotonic

    def of_wall(self, seconds: float) -> float:
        return max(0.0, seconds - self._wall)

    def of_walls(self, seconds: Floats) -> Floats:
        return np.maximum(seconds - self._wall, 0.0)

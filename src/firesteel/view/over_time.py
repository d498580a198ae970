"""Pictures of what happens over time: where the lines of an axis are, and how many ran at once, in a bounded number of points."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

MOST_LINES = 8
"""Lines of an axis."""


def round_step(length: float, most: int = MOST_LINES) -> float:
    """Seconds between the lines of an axis that is ``length`` seconds long: a number of which people think in."""
    return next(
        unit * factor
        for unit in (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 360_000.0, 3.6e6, 3.6e9)
        for factor in (1, 2, 5)
        if length / (unit * factor) <= most
    )


def running(starts: Any, ends: Any, most: int) -> list[tuple[float, int]]:
    """(time, those that run from then on), ascending. ``starts`` and ``ends``: of each, in the same order. Of more than ``most``
    moments each stands for the most in its stretch."""
    if not len(starts):
        return []
    begun, over = np.sort(np.asarray(starts)), np.sort(np.maximum(starts, ends))
    times = np.unique(np.concatenate([begun, over]))
    counts = np.searchsorted(begun, times, "right") - np.searchsorted(over, times, "right")
    if len(times) > most:
        edges = np.linspace(times[0], times[-1], most + 1)
        places = np.searchsorted(times, edges)
        # what ran as a stretch began counts to it too
        peaks = [int(counts[max(low - 1, 0) : high].max()) for low, high in pairwise(places)]
        times, counts = edges, np.array([*peaks, counts[-1]])
    return list(zip(times.tolist(), counts.tolist(), strict=True))

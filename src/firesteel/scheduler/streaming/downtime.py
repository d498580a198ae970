"""How long a rescale will keep a stream from its work, from the bytes of its state and from rescales that were."""

from __future__ import annotations

from collections import deque
from statistics import median

from firesteel.scheduler.streaming.commands import Action

_STOP_AND_START = 1.5
_REPARTITION = 1.5
_PER_BYTE = 30.0 / (1 << 30)
"""Seconds, as measured on two cores; wrong by some factor elsewhere, which the first rescales show."""
_RESCALES = 5


class DowntimePrediction:
    def __init__(self) -> None:
        self._factors: deque[float] = deque(maxlen=_RESCALES)

    def predict(self, action: Action, state_bytes: int) -> float:
        """Seconds from the last commit before to the first batch after."""
        factor = median(self._factors) if self._factors else 1.0
        return factor * self._plain(action, state_bytes)

    def learn(self, action: Action, state_bytes: int, downtime: float) -> None:
        plain = self._plain(action, state_bytes)
        if plain > 0 and downtime > 0:
            self._factors.append(downtime / plain)

    @property
    def known(self) -> int:
        """Rescales it has learnt from."""
        return len(self._factors)

    def _plain(self, action: Action, state_bytes: int) -> float:
        if action is Action.NOTHING:
            return 0.0
        return _STOP_AND_START + (_REPARTITION + _PER_BYTE * state_bytes if action is Action.REPARTITION else 0.0)

"""Estimates the time that a rescale will keep a stream from its work, from the bytes of its state and from rescales that were."""

from __future__ import annotations

from collections import deque
from statistics import median

from firesteel.scheduler.streaming.commands import Action

_RESTART = 1.5
_REWRITE = 1.5
_PER_BYTE = 30.0 / (1 << 30)
_PER_PARTITION = 0.03
"""Seconds, as measured on two cores; wrong by some factor elsewhere, which the first rescales show."""
_RESCALES = 5


class DowntimePrediction:
    """Stop and start, what rewriting costs whatever the state, and what it costs per byte are learnt one by one."""

    def __init__(self) -> None:
        self._restarts: deque[float] = deque(maxlen=_RESCALES)
        self._rewrites: deque[float] = deque(maxlen=_RESCALES)
        self._per_byte: deque[float] = deque(maxlen=_RESCALES)

    def predict(self, action: Action, state_bytes: int, partitions: int = 0) -> float:
        """Seconds from the last commit before to the first batch after, without a replay. ``partitions``: read and written."""
        if action is Action.NOTHING:
            return 0.0
        restart = _median(self._restarts, _RESTART)
        if action is Action.RESTART:
            return restart
        rewrite = _median(self._rewrites, _REWRITE) + _PER_PARTITION * partitions
        return restart + rewrite + _median(self._per_byte, _PER_BYTE) * state_bytes

    def learn(self, state_bytes: int, restart: float, repartition: float = 0.0, partitions: int = 0) -> None:
        """``restart``: seconds of the downtime without those of the ``repartition``; 0: there was none."""
        if restart > 0:
            self._restarts.append(restart)
        if repartition <= 0:
            return
        repartition = max(0.0, repartition - _PER_PARTITION * partitions)
        for_bytes = _median(self._per_byte, _PER_BYTE) * state_bytes
        constant = _median(self._rewrites, _REWRITE)
        if for_bytes <= constant:
            self._rewrites.append(max(0.0, repartition - for_bytes))
        else:
            self._per_byte.append(max(0.0, repartition - constant) / state_bytes)


def _median(samples: deque[float], before: float) -> float:
    return median(samples) if samples else before

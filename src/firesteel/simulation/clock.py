"""The virtual clock: seconds pass only from one due action to the next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Action = Callable[[], None]


def seen_at(when: float, heartbeat: float) -> float:
    """Returns the time at which something that happens at ``when`` is seen: with the next heartbeat. 0: at once."""
    if not heartbeat or math.isinf(when):
        return when
    # A beat that rounding puts just before its moment would see nothing and come again for ever.
    return max(when, math.ceil(when / heartbeat - 1e-9) * heartbeat)


class VirtualClock:
    """Actions in the order of their time, and of their coming where times are equal: the same run, always."""

    def __init__(self) -> None:
        self.now = 0.0
        self._actions: list[tuple[float, int, Action]] = []
        self._count = 0

    def at(self, when: float, action: Action) -> None:
        """Run ``action`` at ``when``, or now if that has passed."""
        heapq.heappush(self._actions, (max(when, self.now), self._count, action))
        self._count += 1

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    @property
    def next_at(self) -> float:
        """Returns the time at which the next action is due; inf: none is."""
        return self._actions[0][0] if self._actions else math.inf

    def advance(self, to: float) -> None:
        """Time does not go back."""
        self.now = max(self.now, to)

    def take(self) -> Action | None:
        """The next action that is due now; None: there is none."""
        if self._actions and self._actions[0][0] <= self.now:
            return heapq.heappop(self._actions)[2]
        return None

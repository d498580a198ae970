"""The timers of a stream: names and times, kept by whoever owns the clock."""

from __future__ import annotations


class Timers:
    """Times are seconds on the stream's clock."""

    def __init__(self) -> None:
        self._when: dict[str, float] = {}

    def set(self, timer: str, when: float) -> None:
        """One of that name that was set before is forgotten."""
        self._when[timer] = when

    def cancel(self, timer: str) -> None:
        self._when.pop(timer, None)

    def take_due(self, now: float) -> str | None:
        """The earliest that is due; it is set no more. None: none is."""
        first = min(self._when.items(), key=lambda item: item[1], default=None)
        if first is None or first[1] > now:
            return None
        del self._when[first[0]]
        return first[0]

    def pause(self, now: float) -> float | None:
        """Seconds until the next one is due; None: there is none."""
        return max(0.0, min(self._when.values()) - now) if self._when else None

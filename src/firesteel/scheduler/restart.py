"""Restart strategies (``restart-strategy.*``): whether a failure may be followed by another try, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from firesteel.humanize import format_count, format_seconds
from firesteel.options import RESTART_ATTEMPTS, RESTART_DELAY, RESTART_STRATEGY, Options

UNLIMITED = (1 << 31) - 1
"""As many attempts as nobody counts (Flink: Integer.MAX_VALUE)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``delay``: seconds until the restart, None when there is none. ``reason``: half a sentence."""

    delay: float | None
    reason: str


class RestartStrategy(Protocol):
    name: str

    def charge(self) -> Verdict:
        """One more failure; may it be followed by a restart?"""
        ...

    def uncharged(self, why: str) -> Verdict:
        """A failure that does not count, but still is followed by a restart, if there are any."""
        ...


class NoRestart:
    name = "none"

    def charge(self) -> Verdict:
        return Verdict(None, f"{RESTART_STRATEGY.key} is none")

    def uncharged(self, why: str) -> Verdict:
        return self.charge()


class FixedDelayRestart:
    """``attempts`` restarts in the whole job, each ``delay`` seconds after the failure.

    As in Flink, each failure of a user's function counts, also when several subtasks meet the same one at once.
    """

    name = "fixed-delay"

    def __init__(self, attempts: int, delay: float) -> None:
        self._attempts = attempts
        self._delay = delay
        self._used = 0

    def charge(self) -> Verdict:
        if self._used >= self._attempts:
            return Verdict(None, self._used_up())
        self._used += 1
        of = "without limit" if self._attempts >= UNLIMITED else f"of {format_count(self._attempts)}"
        done = f"restart {format_count(self._used)} {of}"
        return Verdict(self._delay, f"{done}, after {format_seconds(self._delay)}")

    def uncharged(self, why: str) -> Verdict:
        return Verdict(self._delay, f"not charged, {why}; after {format_seconds(self._delay)}")

    def _used_up(self) -> str:
        if self._attempts == 0:
            return f"{RESTART_ATTEMPTS.key} allows none"
        if self._attempts == 1:
            return f"the only restart of {RESTART_ATTEMPTS.key} is used up"
        return f"all {format_count(self._attempts)} restarts of {RESTART_ATTEMPTS.key} are used up"


def restart_strategy(options: Options) -> RestartStrategy:
    if options[RESTART_STRATEGY] == "none":
        return NoRestart()
    return FixedDelayRestart(options[RESTART_ATTEMPTS], options[RESTART_DELAY])

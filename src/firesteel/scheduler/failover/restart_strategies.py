"""Restart strategies (``restart-strategy.*``): whether a failure may be followed by another try, and when."""

from __future__ import annotations

import math
import zlib
from collections import deque
from dataclasses import dataclass

from firesteel.errors import UsageError
from firesteel.humanize import format_count, format_seconds, plural
from firesteel.options import (
    ATTEMPTS_BEFORE_RESET_BACKOFF,
    BACKOFF_MULTIPLIER,
    FAILURE_RATE_DELAY,
    FAILURE_RATE_INTERVAL,
    INITIAL_BACKOFF,
    JITTER_FACTOR,
    MAX_BACKOFF,
    MAX_FAILURES_PER_INTERVAL,
    RESET_BACKOFF_THRESHOLD,
    RESTART_ATTEMPTS,
    RESTART_DELAY,
    RESTART_STRATEGY,
    Options,
)

UNLIMITED = (1 << 31) - 1
"""As many attempts as nobody counts (Flink: Integer.MAX_VALUE)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``delay``: seconds until the restart, None when there is none. ``reason``: half a sentence. ``is_restart``: False for
    what did not fail itself, and is only sent again."""

    delay: float | None
    reason: str
    is_restart: bool = True


class RestartStrategy:
    name: str
    pause: float = 0.0
    """Seconds after a failure that does not count."""

    def count_failure(self, at: float) -> Verdict:
        """One more failure, at this time (seconds on the job's clock); may it be followed by a restart?"""
        raise NotImplementedError

    def uncounted(self, why: str) -> Verdict:
        """A failure that does not count, but still is followed by a restart, if there are any."""
        return Verdict(self.pause, f"after {format_seconds(self.pause)}, not counted by the restart strategy: {why}")


class NoRestart(RestartStrategy):
    name = "none"

    def count_failure(self, at: float) -> Verdict:
        return Verdict(None, f"{RESTART_STRATEGY.key} is none")

    def uncounted(self, why: str) -> Verdict:
        return Verdict(None, f"{RESTART_STRATEGY.key} is none")


class FixedDelayRestart(RestartStrategy):
    """``attempts`` restarts in the whole job, each ``delay`` seconds after the failure.

    As in Flink, each failure of a user's function counts, also when several subtasks meet the same one at once.
    """

    name = "fixed-delay"

    def __init__(self, attempts: int, delay: float) -> None:
        self._attempts = attempts
        self.pause = delay
        self._used = 0

    def count_failure(self, at: float) -> Verdict:
        if self._used >= self._attempts:
            return Verdict(None, self._used_up())
        self._used += 1
        of = "without limit" if self._attempts >= UNLIMITED else f"of {format_count(self._attempts)}"
        done = f"restart {format_count(self._used)} {of}"
        return Verdict(self.pause, f"{done}, after {format_seconds(self.pause)}")

    def _used_up(self) -> str:
        if self._attempts == 0:
            return f"{RESTART_ATTEMPTS.key} allows none"
        if self._attempts == 1:
            return f"the only restart of {RESTART_ATTEMPTS.key} is used up"
        return f"all {format_count(self._attempts)} restarts of {RESTART_ATTEMPTS.key} are used up"


class FailureRateRestart(RestartStrategy):
    """A restart after each failure, unless more than ``most`` failures fall into ``interval`` seconds."""

    name = "failure-rate"

    def __init__(self, most: int, interval: float, delay: float) -> None:
        self._most = most
        self._interval = interval
        self.pause = delay
        self._times: deque[float] = deque()

    def count_failure(self, at: float) -> Verdict:
        self._times.append(at)
        while at - self._times[0] > self._interval:
            self._times.popleft()
        count, within = len(self._times), f"within {format_seconds(self._interval)}"
        if count > self._most:
            allowed = f"{MAX_FAILURES_PER_INTERVAL.key} allows {format_count(self._most)}"
            return Verdict(None, f"{plural(count, 'failure')} {within}, and {allowed}")
        done = f"failure {format_count(count)} of {format_count(self._most)} {within}"
        return Verdict(self.pause, f"{done}, after {format_seconds(self.pause)}")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds, but for ``multiplier`` and ``jitter``, a part of the pause it is added to or taken from."""

    initial: float
    longest: float
    multiplier: float
    reset_after: float
    jitter: float

    def pause(self, restart: int, salt: str) -> float:
        """Before the ``restart``-th one in a row. The same for the same ``salt``: the control plane rolls no dice."""
        # A power that is too large for a float is as good as the longest pause.
        growth = min((restart - 1) * math.log(self.multiplier), math.log(self.longest / self.initial))
        plain = self.initial * math.exp(growth)
        dice = zlib.crc32(f"{salt} {restart}".encode()) / 0xFFFFFFFF
        return min(plain * (1 + self.jitter * (2 * dice - 1)), self.longest)


class ExponentialDelayRestart(RestartStrategy):
    """Restarts after pauses that grow, without limit or up to ``attempts`` in a row.

    As in today's Flink, failures before a restart has begun are followed by that one: they are not counted, and wait
    for what is left of its pause. When nothing has failed for long enough after a restart, it all begins anew.
    """

    name = "exponential-delay"

    def __init__(self, backoff: Backoff, attempts: int | None, salt: str) -> None:
        self._backoff, self.pause = backoff, backoff.initial
        self._attempts = attempts
        self._salt = salt
        self._used = 0
        self._restarts_at = -math.inf

    def count_failure(self, at: float) -> Verdict:
        if at <= self._restarts_at:
            left = self._restarts_at - at
            return Verdict(left, f"with restart {format_count(self._used)}, in {format_seconds(left)}")
        if at - self._restarts_at >= self._backoff.reset_after:
            self._used = 0
        if self._attempts is not None and self._used >= self._attempts:
            used_up = f"all {plural(self._attempts, 'restart')} of {ATTEMPTS_BEFORE_RESET_BACKOFF.key} are used up"
            return Verdict(None, used_up)
        self._used += 1
        pause = self._backoff.pause(self._used, self._salt)
        self._restarts_at = at + pause
        of = "without limit" if self._attempts is None else f"of {format_count(self._attempts)}"
        return Verdict(pause, f"restart {format_count(self._used)} {of}, after {format_seconds(pause)}")


def restart_strategy(options: Options, job: str = "") -> RestartStrategy:
    """Returns the strategy that ``restart-strategy.type`` names, for the job of this name. Raises UsageError for values that conflict."""
    name = options[RESTART_STRATEGY]
    if name == "none":
        return NoRestart()
    if name == "failure-rate":
        most, interval = options[MAX_FAILURES_PER_INTERVAL], options[FAILURE_RATE_INTERVAL]
        return FailureRateRestart(most, interval, options[FAILURE_RATE_DELAY])
    if name == "exponential-delay":
        return ExponentialDelayRestart(_backoff(options), options[ATTEMPTS_BEFORE_RESET_BACKOFF], job)
    return FixedDelayRestart(options[RESTART_ATTEMPTS], options[RESTART_DELAY])


def _backoff(options: Options) -> Backoff:
    initial, longest = options[INITIAL_BACKOFF], options[MAX_BACKOFF]
    if initial > longest:
        raise UsageError(
            f"{INITIAL_BACKOFF.key} ({format_seconds(initial)}) is longer than {MAX_BACKOFF.key} "
            f"({format_seconds(longest)}).",
            hint="Make the one shorter or the other longer.",
        )
    return Backoff(
        initial, longest, options[BACKOFF_MULTIPLIER], options[RESET_BACKOFF_THRESHOLD], options[JITTER_FACTOR]
    )

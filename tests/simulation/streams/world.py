"""World of a simulated stream: its query, its cluster, its load, its user, and all that can go wrong. Plain data."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFaults:
    """Shares are probabilities from 0 to 1; ``..._every`` mean seconds between two, 0: never."""

    batch: float = 0.0
    """Batches that fail half way."""
    uncounted: float = 0.0
    """Failures that are not the stream's fault."""
    final: float = 0.0
    """Failures that no restart can help."""
    hang: float = 0.0
    """Batches that take ``hang_for`` seconds longer."""
    hang_for: float = 1000.0
    start: float = 0.0
    step: float = 0.0
    """Steps of a rescale that fail."""
    unfinishable: float = 0.0
    """Failed steps that leave a checkpoint which cannot be brought into order."""
    executor_every: float = 0.0
    """An executor goes, comes, or its node is blocked or used again."""
    late: float = 0.0
    """Probability that an event is told ``late_by`` seconds late, after younger ones; never one that somebody waits for."""
    late_by: float = 3.0
    twice: float = 0.0
    stale: float = 0.0
    """Probability that an event is told again when the next run of the query has started."""
    jump_every: float = 0.0
    """The machine sleeps: all clocks are ``jump_by`` seconds further at once."""
    jump_by: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedUser:
    """The user's actions. Times are mean seconds between two, 0: never."""

    lower: int = 1
    upper: int = 128
    requirements_every: float = 0.0
    most: int = 64
    """Bounds are drawn up to this."""
    regrets: float = 0.0
    """Changed bounds that are taken back a moment later."""
    rescale_every: float = 0.0
    consent_every: float = 0.0
    """Goes ahead with what is wanted, whatever the downtime."""
    end_at: float = 3600.0
    end: str = "stop"
    """"stop", "cancel", or "stop, cancel": impatient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWorld:
    seed: int = 0
    executors: int = 2
    most_executors: int = 8
    cores_each: int = 2
    slot_cores: float = 0.0
    """Of a slot; 0: no slot sharing group has resources. Never more than ``cores_each``."""
    complete: bool = False
    dynamic: bool = False
    stateful: bool = True
    born: int = 0
    """Partitions pinned in the checkpoint by an earlier life; 0: a new checkpoint."""
    pending: int = 0
    """Rows of a batch that the earlier life left half done."""
    has_commit_barrier: bool = True
    refusal: str = ""
    trigger_interval: float | None = None
    rows_to_end: float = math.inf
    """The source ends by itself after so many."""
    rates: tuple[float, ...] = (1000.0,)
    """Rows a second that come, one after another for ``rate_for`` seconds each, then again."""
    rate_for: float = 300.0
    rows_per_core_second: float = 1000.0
    most_rows: int = 1_000_000
    """Of one batch."""
    overhead: float = 0.2
    """Seconds of a batch without rows, and a thousandth of that for each partition."""
    tells_backlog: bool = True
    starting: float = 1.0
    repartitioning: float = 2.0
    stopping: float = 0.1
    idle_every: float = 10.0
    """A query without new rows says so after so many seconds, and again."""
    latency: float = 0.001
    faults: StreamFaults = field(default_factory=StreamFaults)
    user: SimulatedUser = field(default_factory=SimulatedUser)

    @property
    def slots_each(self) -> int:
        """Of an executor, where the slots are cut from it."""
        return int(self.cores_each / self.slot_cores)


class Load:
    """Rows that have come to the source. Asked with times that never go back."""

    def __init__(self, world: StreamWorld) -> None:
        self._rates, self._period, self._most = world.rates, world.rate_for, world.rows_to_end
        self._at = 0.0
        self._rows = 0.0

    def until(self, now: float) -> int:
        """Rows since the beginning."""
        while self._at < now:
            period = int(self._at // self._period)
            end = min(now, (period + 1) * self._period)
            if end <= self._at:  # rounding put a border a hair before itself
                end = min(now, (period + 2) * self._period)
            self._rows += self._rates[period % len(self._rates)] * (end - self._at)
            self._at = end
        return int(min(self._rows, self._most))

    def next_after(self, now: float) -> float:
        """A moment not later than the next row's; at most some periods away."""
        rate = self._rates[int(now // self._period) % len(self._rates)]
        border = (now // self._period + 1) * self._period
        return min(border, now + max(1.0 / rate, 0.001)) if rate else max(border, now + 0.001)

    @property
    def ended(self) -> bool:
        return self._rows >= self._most


class Dice:
    """One source of chance for everything, so that a seed is a story."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def hits(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def wait(self, mean: float) -> float:
        return self.rng.expovariate(1.0 / mean)

    def about(self, seconds: float) -> float:
        """Half to one and a half of it."""
        return seconds * (0.5 + self.rng.random())

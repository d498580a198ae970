"""Slots that standing tasks may fill: what a local master was told, or what a cluster's executors have now."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from firesteel.spark.placement.status_store import SparkStatus

LOOK_SECONDS = 1.0


class Slots(Protocol):
    """``count``: tasks that Spark ran at once at the last look; at least 1."""

    @property
    def count(self) -> int: ...

    def look(self) -> None: ...


@dataclass(frozen=True)
class FixedSlots:
    count: int

    def look(self) -> None:
        """Nothing to see."""


class ExecutorsSlots:
    """Of Spark's default profile. A look within a second of the last one sees nothing new."""

    def __init__(self, context: Any) -> None:
        self._status = SparkStatus(context)
        self._looked = -math.inf
        self.count = 1

    def look(self) -> None:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        with suppress(Exception):  # Spark is stopping
            executors = self._status.executors().values()
            self.count = max(1, sum(executor.slots for executor in executors if not executor.profile_id))

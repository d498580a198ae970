"""Where a query runs: as one statement in the driver's process, or in stages on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of the runner. ``inputs``: all that it was made of."""

    runner: Literal["in process", "stages", "Spark"]
    rule: str
    reason: str
    inputs: Mapping[str, Any]

"""Counts of a step while it runs, beside rows and bytes: calls of a service, set-ups of its function, rows that it could not do.

Filled by the task, sent to the driver with the finished execution, of which it is a part: counts of admitted attempts alone are added up.
Stdlib only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from firesteel.humanize import plural

ERRORS = "numErrors"
"""Rows, or groups, that failed for good and were left out, nulled or routed."""
GROUP_ROWS = "numRowsOfErrors"
"""The rows of these groups; not there where rows fail one by one."""
CLOSE_ERRORS = "numCloseErrors"
"""Functions whose ``close()`` raised as the worker let go of them; in samples ``CLOSED`` stands for the row."""
CLOSED = "close()"
CALLS, RETRIES = "numCalls", "numRetries"
CALL_MS, WAITED_MS = "callTimeMs", "waitedTimeMs"
"""Milliseconds of all calls together, and those in which the task had nothing to do but wait for them."""
SET_UPS, SET_UP_MS, SET_UP_BYTES = "numSetUps", "setUpTimeMs", "setUpBytes"
"""Functions that had to be set up first, the milliseconds that took, and the bytes of those that it used, set up for it or earlier."""
FUNCTION_MS, HELD_MS = "functionTimeMs", "heldTimeMs"
"""Of executions that hold external resources: milliseconds that the function ran, and those in which they were held."""
MOST_OF_ONE = frozenset({SET_UP_BYTES})
"""Of these the largest of one execution counts; all others are added up."""
SAMPLED, SAMPLED_FILE = "sampledBytes", "sampledFileBytes"
"""Plain bytes of rows that were looked at, and what they are in a file."""
MOST_SAMPLES = 5
"""Of one step in one subtask."""


class Opening(NamedTuple):
    """``what`` a ``function`` opened while it ran (``firesteel.task.executor.openings``)."""

    what: str
    function: str

    def __str__(self) -> str:
        return f"{self.what} in {self.function} while it ran"


@dataclass(slots=True)
class StepReport:
    """Of one step in one execution. ``max_errors``: the most that the whole job may have; None: any number. ``samples``: (row, error)
    as text."""

    step: str
    counts: dict[str, int] = field(default_factory=dict[str, int])
    max_errors: int | None = None
    samples: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    opened: Opening | None = None

    def add(self, counter: str, by: int = 1) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + by


def failed(errors: int, counts: Mapping[str, int]) -> str:
    """So many errors of a step with these counts, in words: ``3 rows``, ``1 group``."""
    return plural(errors, "group" if GROUP_ROWS in counts else "row")


def encode(reports: Iterable[StepReport]) -> bytes:
    """Empty: there are none."""
    found = [[one.step, one.counts, one.max_errors, one.samples, *(one.opened or ())] for one in reports]
    return json.dumps(found).encode() if found else b""


def decode(data: bytes) -> tuple[StepReport, ...]:
    return tuple(
        StepReport(step, counts, most, [(row, error) for row, error in samples], Opening(*opened) if opened else None)
        for step, counts, most, samples, *opened in (json.loads(data) if data else ())
    )


def summed(reports: Iterable[StepReport]) -> Mapping[str, dict[str, int]]:
    """The counts of each step, added up."""
    found: dict[str, dict[str, int]] = {}
    for report in reports:
        own = found.setdefault(report.step, {})
        for counter, count in report.counts.items():
            own[counter] = own.get(counter, 0) + count
    return found

"""How much is tried of what could be tried without end: examples of a property, seeds of a simulation.

``FIRESTEEL_EXAMPLES=1 ./dev test`` tries all that the tests name, 10 ten times as much; by default it is 3 %, and with ``--all``
a fifth, for each run of the properties looks at other examples. Where a test names no number of examples, 100 are meant.
"""

from __future__ import annotations

import os

_given = os.environ.get("FIRESTEEL_EXAMPLES")
_effort = [float(_given or "0.03")]


def with_all() -> None:
    """The run is of all tests. Called before they are collected."""
    _effort[0] = float(_given or "0.2")


def longer() -> float:
    """How many times longer a test may take than with ``--all``: 1, unless more is tried."""
    return max(1.0, _effort[0] / 0.2)


def examples(number: int) -> int:
    """``number`` at full effort, and at least three."""
    return max(3, round(number * _effort[0]))

"""How much is tried of what could be tried without end: examples of a property, seeds of a simulation.

``FIRESTEEL_EXAMPLES=1 ./dev test`` tries all that the tests name, 10 ten times as much; by default it is a fifth, for each run
of the properties looks at other examples.
"""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("FIRESTEEL_EXAMPLES", "0.2"))


def examples(number: int) -> int:
    """``number`` at full effort, and at least three."""
    return max(3, round(number * EFFORT))

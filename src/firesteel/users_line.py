"""The line of the user's that a warning is about: the nearest one outside this package."""

from __future__ import annotations

import contextlib
import sys

from firesteel.errors import OURS

NOT_THE_USERS = (OURS, contextlib.__file__)
"""Files whose frames lie between a user's line and ours."""


def caller_level() -> int:
    """The ``stacklevel`` at which a warning given by the function that calls this is that of the user's line."""
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THE_USERS):
        frame, level = frame.f_back, level + 1
    return level

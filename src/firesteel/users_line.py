"""The line of the user's that made a step, or that a warning is about: the nearest one outside this package."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from firesteel.errors import OURS

NOT_THE_USERS = (OURS, contextlib.__file__)
"""Files whose frames lie between a user's line and ours."""


def caller_level() -> int:
    """The ``stacklevel`` at which a warning given by the function that calls this is that of the user's line."""
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THE_USERS):
        frame, level = frame.f_back, level + 1
    return level


def caller_place(*beyond: str) -> str:
    """``"wordcount.py:12"``, in a notebook ``"In[3]:12"``, of the nearest frame outside this package, and outside the folders
    ``beyond``; empty when there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith((*NOT_THE_USERS, *beyond)):
        frame = frame.f_back
    if frame is None or str(frame.f_globals.get("__name__")).startswith(
        "typer"
    ):  # our own command: no line of the user's
        return ""
    name = frame.f_code.co_filename
    shown = _cell(name) or (name if name.startswith("<") else Path(name).name)
    return f"{shown}:{frame.f_lineno}"


def _cell(name: str) -> str:
    """``In[3]`` of code that was typed into IPython, as its tracebacks call it; empty for files."""
    module = sys.modules.get("IPython")
    if module is None:
        return ""
    with contextlib.suppress(Exception):  # no shell runs, or it is of a kind that knows no names for cells
        _, cell = module.get_ipython().compile.format_code_name(name)
        return str(cell)
    return ""


def function_name(function: object) -> str:
    """The name of a user's function in step names and messages."""
    name = getattr(function, "__name__", None) or getattr(getattr(function, "func", None), "__name__", None)
    return str(name) if name else type(function).__name__

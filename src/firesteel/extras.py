"""Extras of this package (``firesteel[NAME]``): their libraries loaded where something asks for them, and the sentence where one is missing."""

from __future__ import annotations

import importlib
from typing import Any

from firesteel.errors import UsageError


def command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'firesteel[{extra}]'"


def load(module: str, extra: str, who: str) -> Any:
    """The module of a library that an extra brings. ``who``: what needs it, the beginning of a sentence. Raises UsageError where the library is
    not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(error, extra, who, module.partition(".")[0]) from None


def missing(error: ImportError, extra: str, who: str, *packages: str) -> UsageError:
    """The error to raise in the place of ``error`` where one of the extra's ``packages`` is not installed. Any other error is raised as it is."""
    package = (error.name or "").partition(".")[0]
    if package not in packages:
        raise error
    return UsageError(f"{who} needs the package {package}, which is not installed here.", hint=f"Run {command(extra)}.")

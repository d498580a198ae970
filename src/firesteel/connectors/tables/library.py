"""The Python libraries of table formats: loaded where they are needed, and what they raise as sentences."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.paths import first_line
from firesteel.errors import FiresteelError, UsageError


def load(module: str, extra: str, step: str) -> Any:
    """Raises UsageError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise UsageError(
            f"{step} needs the package {module}, which is not installed here, on the driver.",
            hint=f"Run pip install 'firesteel[{extra}]'.",
        ) from None


@contextmanager
def as_usage(label: str) -> Generator[None]:
    """Turns whatever a library raises while it looks at the table ``label`` into a UsageError."""
    try:
        yield
    except FiresteelError:
        raise
    except Exception as error:
        raise UsageError(f"The table {label} cannot be looked at: {words(error)}.") from error


def words(error: BaseException) -> str:
    """The first line of what was said."""
    return first_line(error).rstrip(". ") if isinstance(error, OSError | pa.ArrowException) else _first(str(error))


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), "no reason was given").rstrip(". ")

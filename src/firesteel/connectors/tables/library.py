"""Errors of the Python libraries of table formats, as sentences."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pyarrow as pa

from firesteel.connectors.files.paths import first_line
from firesteel.errors import FiresteelError, UsageError


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

"""Columns that take no memory before somebody writes to them."""

from __future__ import annotations

import numpy as np

from firesteel.scheduler.events import Ints


def unwritten(*shape: int) -> Ints:
    """Zeros that take no memory, and cannot be written."""
    return np.broadcast_to(np.zeros((), np.int64), shape)


def writable(column: Ints) -> Ints:
    """The column itself, or the zeros in its place that can be written."""
    return column if column.flags.writeable else np.zeros(column.shape, np.int64)

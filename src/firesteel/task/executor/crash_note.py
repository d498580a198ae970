"""Crash notes: small objects in the job's store in which a worker that must end at once says why.

The note is read by the task that Spark starts in the worker's place, or by the driver when Spark gives the batch up.
"""

from __future__ import annotations

import json
from typing import Any


def name_of(vertex: int, subtask: int, attempt: int) -> str:
    return f"stopped-v{vertex}-s{subtask}-a{attempt}.json"


def leave(store: Any, execution: tuple[int, int, int], message: str, hint: str | None) -> None:
    """``execution``: vertex, subtask, attempt. Raises StorageError."""
    store.replace(name_of(*execution), json.dumps([message, hint]).encode())


def find(store: Any, execution: tuple[int, int, int]) -> tuple[str, str | None] | None:
    """Message and hint; None: it left nothing, or that cannot be read."""
    try:
        source = store.open_input(name_of(*execution))
        try:
            message, hint = json.loads(bytes(source.read_at(0, source.size)))
        finally:
            source.close()
    except (OSError, ValueError):
        return None
    return message, hint

"""What is left of a job when it has ended."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.scheduler.commands import GateDescriptor, JobStatus
from firesteel.scheduler.records import Decision

_kept: list[Any] = []
"""Outcomes whose results stay until the process ends."""


@dataclass(eq=False)
class JobOutcome:
    """``persistent``: data set id to where its partitions lie in ``store``; they go with this object, or at exit.

    ``duration``: seconds from submission to the terminal status.
    """

    job_id: str
    job_name: str
    status: JobStatus
    duration: float
    decisions: list[Decision]
    journal: Path | None
    store: Any
    persistent: dict[int, GateDescriptor] = field(default_factory=dict)
    error: FiresteelError | None = None

    def remove_with(self, action: Callable[[], Any]) -> None:
        """``action`` removes the storage; it runs once: on :meth:`close`, when nobody holds this any more, or at exit."""
        self._finalizer = weakref.finalize(self, action)

    def close(self) -> None:
        """Removes the persistent results now."""
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None:
            finalizer()

    def keep(self) -> None:
        """Lets the persistent results stay until the process ends (a lazy Spark DataFrame reads them)."""
        _kept.append(self)

"""The outcome of a job: all that is left when it has ended."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.results.storage.store import object_name
from firesteel.scheduler.kernel.commands import GateDescriptor, JobStatus
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.storage.cleaning import quietly

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
    kept: set[int] = field(default_factory=set)
    """Data sets that later jobs may read, each until its :meth:`release`."""
    open: set[int] = field(default_factory=set)
    """Data sets that the driver may read until :meth:`close`; one may be kept, too."""
    error: FiresteelError | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._forever = self._stays = False

    def remove_with(self, action: Callable[[], Any], *, stays: bool = False) -> None:
        """``action`` removes the storage, or, where that ``stays`` for other jobs, tells that it is not read any more; it runs once: when the last data
        set is given up, when nobody holds this any more, or at exit."""
        self._stays = stays
        self._finalizer = weakref.finalize(self, action)

    def close(self) -> None:
        """Removes the persistent results now, but for those that are kept."""
        with self._lock:
            gone, self.open = self.open - self.kept, set()
        self._remove(gone)

    def release(self, dataset: int) -> None:
        """Gives up a data set that was kept. May be called twice."""
        with self._lock:
            self.kept -= {dataset}
            gone = {dataset} - self.open
        self._remove(gone)

    def keep(self) -> None:
        """Lets the persistent results stay until the process ends (a lazy Spark DataFrame reads them)."""
        self._forever = True
        _kept.append(self)

    def _remove(self, gone: set[int]) -> None:
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is None or self._forever:
            return
        if not (self.kept or self.open):
            finalizer()
        elif not self._stays:
            names = [name for dataset in gone for name in object_names(self.persistent[dataset])]
            quietly(lambda: self.store.delete(names))


def object_names(gate: GateDescriptor) -> list[str]:
    """The objects of a data set, one per partition."""
    pairs = zip(gate.attempts.tolist(), gate.tokens.tolist(), strict=True)
    return [object_name(gate.dataset, p, attempt, token) for p, (attempt, token) in enumerate(pairs)]

"""Joins and their sources, decided while the job runs: what is put off, and what ends that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from firesteel.options import ADAPTIVE_JOINS, RUNTIME_FILTER
from firesteel.scheduler.job import Job
from firesteel.scheduler.joins.adaptive import AdaptiveJoins
from firesteel.scheduler.joins.deferrals import Deferrals
from firesteel.scheduler.joins.estimates import Estimates
from firesteel.scheduler.joins.runtime_filters import RuntimeFilters
from firesteel.scheduler.kernel.events import Event, SourceNarrowed
from firesteel.scheduler.kernel.waits import Wait
from firesteel.scheduler.parallelism.model import SlotBound
from firesteel.scheduler.policy import Policy


class Joins(Policy):
    answers: ClassVar[Mapping[type[Event], str]] = {SourceNarrowed: "narrowed"}

    def __init__(self, job: Job, bound: Callable[[int], SlotBound | None]) -> None:
        """``bound``: the slots that a vertex can get."""
        estimates = Estimates(job.graph, job.inputs.costs)
        self._deferrals = Deferrals(job, bound)
        self._adaptive = AdaptiveJoins(job, self._deferrals, estimates) if job.options[ADAPTIVE_JOINS] else None
        self._filters = RuntimeFilters(job, self._deferrals, estimates) if job.options[RUNTIME_FILTER] else None

    @property
    def is_open(self) -> bool:
        """Something is put off: every event may end that."""
        return self._deferrals.is_open

    def consider(self) -> None:
        """Decides the joins that can be decided now, before vertices are initialised."""
        self._deferrals.count_idle()
        if self._adaptive is not None:
            self._adaptive.consider()

    def puts_off(self, vertex: int) -> bool:
        """Returns whether a vertex is to wait that could be initialised, or could but for inputs that are not there yet."""
        adaptive, filters = self._adaptive, self._filters
        if filters is not None and filters.is_asked(vertex):
            return True
        if adaptive is not None and adaptive.puts_off(vertex):
            return True
        return filters is not None and filters.puts_off(vertex)

    def narrowed(self, event: SourceNarrowed) -> None:
        if self._filters is not None:
            self._filters.narrowed(event)

    def act(self) -> None:
        self._deferrals.event_handled(fills_soon=self._filters is not None and self._filters.is_asking)

    def waiting_for(self) -> list[Wait]:
        return [*self._deferrals.waiting_for(), *(self._filters.waiting_for() if self._filters is not None else ())]

"""Vertices that are put off until another result is there, and what that may cost: slots that are idle meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from firesteel.model.absorbing import worker_of
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.decisions import BegunWithout
from firesteel.scheduler.kernel.waits import PutOff
from firesteel.scheduler.parallelism.model import SlotBound
from firesteel.scheduler.slots.pool import SlotPool

EXCHANGE_BYTES_PER_SECOND = 100 << 20
"""Plain bytes that one slot writes to an exchange and reads again in a second (docs/benchmarks.md)."""
WAIT_SHARE = 0.25
"""Of what an exchange takes, the part that slots may stand idle for while it may yet be saved."""


def budget_for(saved: int) -> float:
    """Slot-seconds that may be idle while an exchange of so many plain bytes may be saved."""
    return WAIT_SHARE * saved / EXCHANGE_BYTES_PER_SECOND


@dataclass(slots=True)
class Deferral:
    """Of a vertex that is put off. ``side``: what for, such as "left"; ``dataset``: the same as a data set; ``join``: the
    vertex that will read it. Times are slot-seconds; a budget may be infinite."""

    join: int
    side: str
    dataset: int
    budget: float
    build: int | None = None
    """The join's input that is awaited, where it is to be decided how the join is done; None: only its keys are."""
    spent: float = 0.0
    is_over: bool = False
    """It was too long: the vertex begins."""


class Deferrals:
    """Seconds in which a slot stands idle cost nothing while the first workers are being started (``Inputs.cold_start``), as long as nothing
    has finished: tasks of what is put off would wait for theirs."""

    def __init__(self, job: Job, bound: Callable[[int], SlotBound | None]) -> None:
        """``bound``: the slots that a vertex can get."""
        self._job = job
        self._graph = job.graph
        self._recorder = job.recorder
        self._timers = job.timers
        self._bound = bound
        self._cold_until = job.inputs.cold_start
        self._deferrals: dict[int, Deferral] = {}
        """By the vertex that is put off."""
        self._idle = 0
        """Slots that have nothing to do since ``_then``."""
        self._then = 0.0

    @property
    def is_open(self) -> bool:
        return any(not deferral.is_over for deferral in self._deferrals.values())

    def slots_of(self, vertex: int) -> int | None:
        """Tasks of the vertex that can run at once; None: nobody could tell that slots are idle."""
        bound = None if isinstance(self._job.slots, SlotPool) else self._bound(vertex)
        return None if bound is None else bound.count

    def of(self, vertex: int) -> Deferral | None:
        return self._deferrals.get(vertex)

    def begin(self, vertex: int, deferral: Deferral) -> None:
        """Vertices that wait for keys only, and so for this one, wait no more."""
        self._deferrals[vertex] = deferral
        for other, theirs in self._deferrals.items():
            if theirs.build is None and self.is_circular(other, theirs.dataset):
                theirs.budget = 0.0

    def is_circular(self, vertex: int, dataset: int) -> bool:
        """Returns whether the data set cannot be made before the vertex has begun, as things are put off now."""
        graph, seen, ask = self._graph, set[int](), [dataset]
        while ask:
            number = ask.pop()
            result = graph.results[number]
            if number in seen or (result is not None and result.is_available):
                continue
            seen.add(number)
            producer = worker_of(graph.job_graph, graph.job_graph.datasets[number].producer)
            if producer == vertex:
                return True
            ask += [edge.dataset for edge in graph.vertices[producer].job.inputs]
            deferral = self._deferrals.get(producer)
            if deferral is not None and not deferral.is_over:
                ask.append(deferral.dataset)
        return False

    def stop(self, vertex: int) -> float:
        """Ends the wait of a vertex, if it has one; returns what it has spent."""
        deferral = self._deferrals.pop(vertex, None)
        if deferral is None:
            return 0.0
        self._timers.cancel(_timer(vertex))
        return deferral.spent

    def close(self, vertex: int) -> None:
        """The vertex waits no more, whatever comes."""
        deferral = self._deferrals.get(vertex)
        if deferral is not None:
            deferral.is_over = True
            self._timers.cancel(_timer(vertex))

    def absorbed(self, join: int, by: int) -> None:
        """Vertices that wait for a side of ``join`` wait for a side of the vertex that has absorbed it."""
        for deferral in self._deferrals.values():
            deferral.join = by if deferral.join == join else deferral.join

    def count_idle(self) -> None:
        """Charges the time since the last event to all that wait, in equal shares: any of them would fill the slots."""
        passed = max(0.0, self._recorder.at - self._then) * self._idle
        self._then = self._recorder.at
        deferrals = {vertex: deferral for vertex, deferral in self._deferrals.items() if not deferral.is_over}
        for vertex, deferral in deferrals.items():
            deferral.spent += passed / len(deferrals)
            if deferral.spent >= deferral.budget:
                self._end_idle(vertex, deferral)

    def event_handled(self, *, fills_soon: bool) -> None:
        """All that can run is deployed, so slots are idle from here on because of what is put off. ``fills_soon``: a source is being narrowed and fills them in a
        moment; this time is not charged."""
        deferrals = {vertex: deferral for vertex, deferral in self._deferrals.items() if not deferral.is_over}
        slots = [self.slots_of(vertex) or 0 for vertex in deferrals]
        self._idle = 0 if fills_soon else max(0, max(slots, default=0) - self._job.executions.num_pending)
        is_cold = deferrals and not any(vertex.num_finished for vertex in self._graph.vertices)
        self._then = max(self._recorder.at, self._cold_until if is_cold else 0.0)
        for vertex, deferral in deferrals.items():
            if self._idle and deferral.budget < math.inf:
                left = max(0.0, deferral.budget - deferral.spent) * len(deferrals) / self._idle
                self._timers.set(
                    _timer(vertex), self._then + left, lambda over=deferral, who=vertex: self._end_idle(who, over)
                )
            else:
                self._timers.cancel(_timer(vertex))

    def waiting_for(self) -> list[PutOff]:
        return [
            PutOff(vertex, deferral.side, deferral.join)
            for vertex, deferral in self._deferrals.items()
            if not deferral.is_over
        ]

    def end(self, vertex: int, deferral: Deferral, rule: str, written: int = 0, limit: int = 0) -> None:
        """The vertex begins without what it waited for. ``written``: bytes of that, ``limit``: those that a task can hold."""
        if deferral.is_over:
            return
        self.close(vertex)
        self._recorder.decision(
            "join order",
            vertex=vertex,
            name=self._graph.vertices[vertex].job.name,
            inputs=BegunWithout(
                join=deferral.join,
                side=deferral.side,
                idle=round(deferral.spent, 3),
                budget=None if deferral.budget == math.inf else deferral.budget,
                written=written,
                limit=limit,
            ),
            rule=rule,
            result="begins",
        )

    def _end_idle(self, vertex: int, deferral: Deferral) -> None:
        """Slots have been idle for long enough."""
        self.end(vertex, deferral, "idle slots")


def _timer(vertex: int) -> str:
    return f"join-order-{vertex}"

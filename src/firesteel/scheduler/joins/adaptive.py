"""The graph adapts to what its joins really read (Flink: the adaptive stream graph and the adaptive broadcast join).

Of a join's inputs the one that is likely smaller is waited for: the producer of the other one is put off, as long as that
costs less than it can save. When it has finished, its real bytes decide (``broadcast``). Then the join either absorbs the
producer (``model.absorbing``), which never writes what would have been exchanged, or is left as it is.

What has begun stays: only a producer that is not initialised can be absorbed. A producer that is put off has one consumer, the
join; so nothing that the join's other side needs can depend on it, and the wait ends with that side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firesteel.humanize import format_bytes, format_seconds
from firesteel.model.absorbing import SIDES, Absorbing
from firesteel.model.job_graph import JobVertex
from firesteel.scheduler.joins.broadcast import HASH, UNKNOWN_MEMORY, JoinChoice, JoinSizes, decide_join
from firesteel.scheduler.kernel.commands import VertexAbsorbed
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import GraphChanged
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.planned import planned_vertex

EXCHANGE_BYTES_PER_SECOND = 100 << 20
"""Plain bytes that one slot writes to an exchange and reads again in a second (docs/benchmarks.md)."""
WAIT_SHARE = 0.25
"""Of what an exchange takes, the part that slots may stand idle for while it may yet be saved."""
LIKELY = 4
"""A build side is waited for if its estimate is at most so many times what a task can hold: filters may come before the join."""


class Joins(Protocol):
    """Answers that the scheduler needs of its joins."""

    @property
    def is_open(self) -> bool:
        """Something is put off: every event may end that."""
        ...

    def consider(self) -> None:
        """Decides the joins that can be decided now, before vertices are initialised."""
        ...

    def puts_off(self, vertex: int) -> bool:
        """Returns whether a vertex is to wait that could be initialised, or could but for inputs that are not there yet."""
        ...

    def event_handled(self) -> None:
        """All that can run is deployed: slots that are idle from here on are idle because of what is put off."""
        ...

    def waiting_for(self) -> list[str]: ...


class NoJoins:
    """Joins stay as they were compiled."""

    is_open = False

    def consider(self) -> None: ...

    def puts_off(self, vertex: int) -> bool:
        return False

    def event_handled(self) -> None: ...

    def waiting_for(self) -> list[str]:
        return []


@dataclass(slots=True)
class _Wait:
    """A producer that is put off. Times are slot-seconds."""

    join: int
    build: int
    budget: float
    spent: float = 0.0
    is_over: bool = False


class AdaptiveJoins:
    """``slots_of``: tasks of a vertex that can run at once, None where nobody knows; ``pending``: executions that Spark has or
    waits for; ``memory``: bytes that a task may use for its data, None where nobody knows; ``volume``: bytes per task."""

    def __init__(
        self,
        graph: DefaultExecutionGraph,
        recorder: Recorder,
        timers: Timers,
        *,
        slots_of: Callable[[int], int | None],
        pending: Callable[[], int],
        memory: Callable[[], float | None],
        volume: int,
    ) -> None:
        self._graph = graph
        self._recorder = recorder
        self._timers = timers
        self._slots_of = slots_of
        self._pending = pending
        self._memory = memory
        self._volume = volume
        self._open = [vertex.id for vertex in graph.vertices if _is_adaptive(vertex.job)]
        self._refused = [vertex.id for vertex in graph.vertices if _is_refused(vertex.job)]
        """Joins with a hint that cannot be followed, until that is recorded."""
        self._waits: dict[int, _Wait] = {}
        """By the producer that is put off."""
        self._idle = 0
        """Slots that have nothing to do since ``_then``."""
        self._then = 0.0
        self._held: dict[int, tuple[int, ...]] = {}
        """Vertex that has absorbed another: the bytes of its build sides."""

    @property
    def is_open(self) -> bool:
        return any(not wait.is_over for wait in self._waits.values())

    def consider(self) -> None:
        self._count_idle()
        while self._refused:
            self._record_refusal(self._graph.vertices[self._refused.pop(0)].job)
        for join in list(self._open):
            if join in self._open and self._decided(join):
                self._open.remove(join)

    def puts_off(self, vertex: int) -> bool:
        wait = self._waits.get(vertex)
        if wait is None and not self._graph.inputs_available(self._graph.vertices[vertex]):
            return self._join_of(vertex) is not None  # a source with side inputs: it could not run yet
        wait = wait or self._begun(vertex)
        return wait is not None and not wait.is_over

    def event_handled(self) -> None:
        waits = {vertex: wait for vertex, wait in self._waits.items() if not wait.is_over}
        slots = [self._slots_of(vertex) or 0 for vertex in waits]
        self._idle = max(0, max(slots, default=0) - self._pending())
        self._then = self._recorder.at
        for vertex, wait in waits.items():
            if self._idle and wait.budget < math.inf:
                left = max(0.0, wait.budget - wait.spent) / self._idle
                self._timers.set(_timer(vertex), self._then + left, lambda over=wait, who=vertex: self._end(who, over))
            else:
                self._timers.cancel(_timer(vertex))

    def waiting_for(self) -> list[str]:
        return [
            f"Vertex {vertex} '{self._graph.vertices[vertex].job.name}' is put off until the {SIDES[wait.build]} side of "
            f"vertex {wait.join} '{self._graph.vertices[wait.join].job.name}' is there."
            for vertex, wait in self._waits.items()
            if not wait.is_over
        ]

    # --- waiting ---------------------------------------------------------------------------------------------

    def _begun(self, vertex: int) -> _Wait | None:
        """The wait of a producer that could begin now; None: there is nothing to wait for."""
        change = self._join_of(vertex)
        if change is None:
            return None
        join, build = change.join, change.build
        job = self._graph.vertices[join].job
        probe, limit = self._probe_bytes(job, build), LIKELY * self._limit(join, vertex)
        built = self._bytes_of(job.inputs[build].dataset)
        hinted = job.join is not None and job.join.hint == build
        if not hinted and (self._slots_of(vertex) is None or built > min(limit, probe)):
            return None
        budget = math.inf if hinted else WAIT_SHARE * probe / EXCHANGE_BYTES_PER_SECOND
        allowed = (
            "which is to be broadcast, as was asked for"
            if hinted
            else f"estimated {format_bytes(built)}: slots may be idle for {format_seconds(budget)} in all meanwhile, a part of "
            f"what an exchange of {format_bytes(probe)} takes"
        )
        wait = self._waits[vertex] = _Wait(join, build, budget)
        self._recorder.decision(
            "join order",
            vertex=vertex,
            name=self._graph.vertices[vertex].job.name,
            inputs={"join": join, "build": SIDES[build], "build_bytes": built, "probe_bytes": probe},
            rule="hint" if hinted else "smaller side first",
            result="put off",
            reason=f"put off until the {SIDES[build]} side of [{join}] is there, {allowed}",
        )
        return wait

    def _join_of(self, vertex: int) -> Absorbing | None:
        """The change by which an open join may absorb the vertex; None: there is none."""
        for join in self._open:
            build = self._likely_build(self._graph.vertices[join].job)
            if build is not None and (change := Absorbing(join, build)).producer(self._graph.job_graph) == vertex:
                return change
        return None

    def _count_idle(self) -> None:
        passed = (self._recorder.at - self._then) * self._idle
        self._then = self._recorder.at
        for vertex, wait in self._waits.items():
            if not wait.is_over:
                wait.spent += passed
                if wait.spent >= wait.budget:
                    self._end(vertex, wait)

    def _end(self, vertex: int, wait: _Wait) -> None:
        """Slots have been idle for long enough."""
        if wait.is_over:
            return
        wait.is_over = True
        self._timers.cancel(_timer(vertex))
        self._recorder.decision(
            "join order",
            vertex=vertex,
            name=self._graph.vertices[vertex].job.name,
            inputs={"join": wait.join, "idle": round(wait.spent, 3)},
            rule="idle slots",
            result="begins",
            reason=f"begins without the {SIDES[wait.build]} side of [{wait.join}]: slots were idle for "
            f"{format_seconds(wait.budget)} in all",
        )

    def _stop_waiting(self, vertex: int) -> float:
        """Ends the wait of a producer, if it has one; returns what it has spent."""
        wait = self._waits.pop(vertex, None)
        if wait is None:
            return 0.0
        self._timers.cancel(_timer(vertex))
        return wait.spent

    # --- deciding --------------------------------------------------------------------------------------------

    def _decided(self, join: int) -> bool:
        """Decides the join if its build side has finished; True also where nothing is left to decide."""
        job = self._graph.vertices[join].job
        build = self._likely_build(job)
        if build is None:
            why = "hash: the producers of both sides had begun before either side was there"
            self._record(job, JoinChoice(HASH, "too late", why))
            return True
        result = self._graph.results[job.inputs[build].dataset]
        if result is None or not result.is_available:
            return False
        change = Absorbing(join, build)
        producer = change.producer(self._graph.job_graph)
        sizes = self._sizes(job, build, producer)
        choice = decide_join(sizes)
        spent = self._stop_waiting(producer)
        self._record(job, choice, sizes)
        if choice.is_broadcast:
            self._absorb(change, producer, (*sizes.held, sizes.build_bytes), spent)
        return True

    def _absorb(self, change: Absorbing, producer: int, held: tuple[int, ...], spent: float) -> None:
        self._graph.absorb(change)
        self._held[change.join] = held
        if producer in self._open:  # from here on it is decided as the join that has absorbed it
            self._open[self._open.index(producer)] = change.join
            for wait in self._waits.values():
                wait.join = change.join if wait.join == producer else wait.join
        self._recorder.emit(VertexAbsorbed(change.join, producer, change.build))
        vertex = planned_vertex(self._graph.job_graph, self._graph.job_graph.vertices[change.join])
        self._recorder.record(
            GraphChanged(
                at=self._recorder.at, event=self._recorder.event, absorbed=producer, into=change.join, vertex=vertex
            )
        )
        if self._graph.inputs_available(self._graph.vertices[change.join]):
            next_wait = self._begun(change.join)
            if next_wait is not None:
                next_wait.spent = spent

    def _sizes(self, job: JobVertex, build: int, producer: int) -> JoinSizes:
        probe = self._probe_bytes(job, build)
        readers = max(-(-probe // self._volume), 1)
        return JoinSizes(
            how=job.join.how if job.join is not None else "",
            build=build,
            build_bytes=self._graph.result(job.inputs[build].dataset).info.num_bytes_produced,
            probe_bytes=probe,
            readers=readers,
            memory=int(self._memory() or UNKNOWN_MEMORY),
            held=self._held_by(job.id, producer),
            is_hint=job.join is not None and job.join.hint == build,
        )

    def _record(self, job: JobVertex, choice: JoinChoice, sizes: JoinSizes | None = None) -> None:
        self._recorder.decision(
            "join",
            vertex=job.id,
            name=job.name,
            inputs={} if sizes is None else sizes.columns(),
            rule=choice.rule,
            result=choice.result,
            reason=choice.reason,
        )

    def _record_refusal(self, job: JobVertex) -> None:
        assert job.join is not None and job.join.hint is not None
        side, why = SIDES[job.join.hint], job.join.obstacles[job.join.hint]
        reason = f"hash: the {side} side cannot be broadcast, as was asked for, because {why}"
        self._record(job, JoinChoice(HASH, "hint", reason))

    # --- estimates -------------------------------------------------------------------------------------------

    def _likely_build(self, job: JobVertex) -> int | None:
        """The input that is likely the smaller one of those that can still be the build side."""
        info, graph = job.join, self._graph
        if info is None:
            return None
        able = [
            side
            for side in (0, 1)
            if info.can_build(side)
            and not graph.vertices[Absorbing(job.id, side).producer(graph.job_graph)].is_initialized
        ]
        return min(able, key=lambda side: self._bytes_of(job.inputs[side].dataset), default=None)

    def _probe_bytes(self, job: JobVertex, build: int) -> int:
        return self._bytes_of(job.inputs[1 - build].dataset)

    def _limit(self, join: int, producer: int) -> int:
        held = self._held_by(join, producer)
        return JoinSizes("", 0, 0, 0, 1, int(self._memory() or UNKNOWN_MEMORY), held).limit

    def _held_by(self, join: int, producer: int) -> tuple[int, ...]:
        """Bytes of the build sides that the tasks of both have already: they are the same tasks behind the change."""
        return (*self._held.get(producer, ()), *self._held.get(join, ()))

    def _bytes_of(self, dataset: int) -> int:
        """Plain bytes of a data set: what it has, or at most what its producer reads, as far as anybody knows."""
        total, seen, ask = 0, set[int](), [dataset]
        while ask:
            current = ask.pop()
            if current in seen:
                continue
            seen.add(current)
            result = self._graph.results[current]
            if result is not None and result.is_available:
                total += result.info.num_bytes_produced
                continue
            producer = self._graph.job_graph.vertices[self._graph.job_graph.datasets[current].producer]
            if producer.source is not None:
                total += int(producer.source.split_bytes.sum())
            ask += [edge.dataset for edge in producer.inputs if not edge.whole]
        return total


def _is_adaptive(job: JobVertex) -> bool:
    return job.join is not None and (job.join.can_build(0) or job.join.can_build(1))


def _is_refused(job: JobVertex) -> bool:
    return job.join is not None and job.join.hint in (0, 1) and bool(job.join.obstacles[job.join.hint])


def _timer(vertex: int) -> str:
    return f"join-order-{vertex}"

"""The graph adapts to what its joins really read (Flink: the adaptive stream graph and the adaptive broadcast join).

Of a join's inputs the one that is likely smaller is waited for: the producer of the other one is put off, as long as that
costs less than it can save. When it has finished, its real bytes decide (``broadcast``). Then the join either absorbs the
producer (``model.absorbing``), which never writes what would have been exchanged, or is left as it is.

What has begun stays: only a producer that is not initialised can be absorbed. A producer that is put off has one consumer, the
join; so nothing that the join's other side needs can depend on it, and the wait ends with that side.
"""

from __future__ import annotations

import math

from firesteel.model import build_memory
from firesteel.model.absorbing import SIDES, Absorbing
from firesteel.model.job_graph import JobVertex
from firesteel.options import DATA_VOLUME_PER_TASK
from firesteel.scheduler.job import Job
from firesteel.scheduler.joins.broadcast import HASH, UNKNOWN_MEMORY, decide_join
from firesteel.scheduler.joins.deferrals import Deferral, Deferrals, budget_for
from firesteel.scheduler.joins.estimates import Estimate, Estimates
from firesteel.scheduler.kernel.decisions import DeferredFor, HashJoin, JoinSizes

LIKELY = 4
"""A build side is waited for if it is estimated at no more than so many times what a task can hold, where that is not known from earlier
runs: filters may come before the join. A side may have so many times the bytes that the plan guesses."""
UNKNOWN_SHARE = 0.5
"""The part of a likely build side's idle time that an unknown one gets. No earlier run has measured an unknown side. Its estimate is too large for a
likely one, but at most ``LIKELY`` times the other side. An aggregate or a filter may leave little of it."""


class AdaptiveJoins:
    def __init__(self, job: Job, deferrals: Deferrals, estimates: Estimates) -> None:
        self._job = job
        graph = self._graph = job.graph
        self._recorder = job.recorder
        self._deferrals = deferrals
        self._volume = job.options[DATA_VOLUME_PER_TASK]
        self._estimates = estimates
        self._open = [vertex.id for vertex in graph.vertices if _is_adaptive(vertex.job)]
        self._refused = [vertex.id for vertex in graph.vertices if _is_refused(vertex.job)]
        """Joins with a hint that cannot be followed, until that is recorded."""
        self._held: dict[int, tuple[int, ...]] = {}
        """Vertex that has absorbed another: the memory of its build sides."""

    def consider(self) -> None:
        """Decides the joins that can be decided now, before vertices are initialised."""
        while self._refused:
            self._record_refusal(self._graph.vertices[self._refused.pop(0)].job)
        for join in list(self._open):
            if join in self._open and self._decided(join):
                self._open.remove(join)

    def puts_off(self, vertex: int) -> bool:
        """Returns whether a vertex that could be initialised, or could but for inputs that are not there yet, is to wait for the other side
        of its join."""
        deferral = self._deferrals.of(vertex)
        if deferral is None and not self._graph.inputs_available(self._graph.vertices[vertex]):
            return self._join_of(vertex) is not None  # a source with side inputs: it could not run yet
        deferral = deferral or self._begun(vertex)
        if deferral is None or deferral.is_over or deferral.build is None:
            return False
        self._end_if_in_vain(vertex, deferral, deferral.build)
        return not deferral.is_over

    # --- waiting ---------------------------------------------------------------------------------------------

    def _begun(self, vertex: int) -> Deferral | None:
        """The wait of a producer that could begin now; None: there is nothing to wait for."""
        change = self._join_of(vertex)
        if change is None or change.build is None:
            return None
        join, build = change.join, change.build
        job = self._graph.vertices[join].job
        built, probe = self._estimated(job, build), self._estimated(job, 1 - build)
        limit = self._limit(join, vertex) * (1 if built.is_known else LIKELY)
        hinted = job.join is not None and job.join.hint == build
        is_likely = self._likely_bytes(job, build) <= min(limit, probe.bytes)
        may_be = is_likely or (not built.is_known and built.bytes <= LIKELY * probe.bytes)
        if not hinted and (self._deferrals.slots_of(vertex) is None or not may_be):
            return None
        budget = math.inf if hinted else budget_for(probe.bytes) * (1 if is_likely else UNKNOWN_SHARE)
        deferral = Deferral(join, SIDES[build], job.inputs[build].dataset, budget, build)
        self._deferrals.begin(vertex, deferral)
        self._recorder.decision(
            "join order",
            vertex=vertex,
            name=self._graph.vertices[vertex].job.name,
            inputs=DeferredFor(
                join=join,
                build=SIDES[build],
                build_bytes=built.bytes,
                probe_bytes=probe.bytes,
                build_read=built.read,
                probe_read=probe.read,
                build_runs=built.runs,
                probe_runs=probe.runs,
                likely=is_likely,
                budget=None if hinted else budget,
            ),
            rule="hint" if hinted else "smaller side first",
            result="put off",
        )
        return deferral

    def _join_of(self, vertex: int) -> Absorbing | None:
        """The change by which an open join may absorb the vertex; None: there is none."""
        for join in self._open:
            build = self._likely_build(self._graph.vertices[join].job)
            if build is not None and (change := Absorbing(join, build)).producer(self._graph.job_graph) == vertex:
                return change
        return None

    def _end_if_in_vain(self, vertex: int, deferral: Deferral, build: int) -> None:
        """By what the first subtasks of the build side have written, and what is there by now of all that it is made of."""
        job = self._graph.vertices[deferral.join].job
        written, limit = self._estimates.written(job.inputs[build].dataset), self._limit(deferral.join, vertex)
        if self._likely_build(job) != build:
            self._deferrals.end(vertex, deferral, "smaller side first", written, limit)
        elif written > limit and deferral.budget < math.inf:
            self._deferrals.end(vertex, deferral, "memory", written, limit)

    # --- deciding --------------------------------------------------------------------------------------------

    def _decided(self, join: int) -> bool:
        """Decides the join if its build side has finished; True also where nothing is left to decide."""
        job = self._graph.vertices[join].job
        if job.join is None:
            self._record(job, "one step", HashJoin())
            return True
        build = self._likely_build(job)
        if build is None:
            self._record(job, "too late", HashJoin())
            return True
        result = self._graph.results[job.inputs[build].dataset]
        if result is None or not result.is_available:
            return False
        change = Absorbing(join, build)
        producer = change.producer(self._graph.job_graph)
        if self._graph.vertices[producer].job.first_step is not None:
            return False  # not known yet what it will do
        sizes = self._sizes(job, build, producer)
        result, rule = decide_join(sizes)
        spent = self._deferrals.stop(producer)
        self._record(job, rule, sizes, result)
        if result != HASH:
            follower = self._follower(join)
            if follower is not None:
                self._graph.keep_two_steps(follower.id)
            self._absorb(change, producer, sizes.held_with_it, spent)
        return True

    def _follower(self, join: int) -> JobVertex | None:
        """The vertex that is one step with the join where that is not broadcast."""
        return next((v for v in self._graph.job_graph.vertices if v.first_step == join), None)

    def _is_exchanged_again(self, join: int) -> bool:
        """Returns whether a join by the same key follows that is likely not broadcast. (Other steps combine rows before their exchange.)"""
        follower = self._follower(join)
        if follower is None or follower.join is None:
            return False
        return not follower.join.can_build(1) or self._estimated(follower, 1).bytes > self._limit(follower.id, join)

    def _absorb(self, change: Absorbing, producer: int, held: tuple[int, ...], spent: float) -> None:
        self._job.absorb(change)
        self._held[change.join] = held
        if producer in self._open:  # from here on it is decided as the join that has absorbed it
            self._open[self._open.index(producer)] = change.join
            self._deferrals.absorbed(producer, change.join)
        if self._graph.inputs_available(self._graph.vertices[change.join]):
            next_wait = self._begun(change.join)
            if next_wait is not None:
                next_wait.spent = spent

    def _sizes(self, job: JobVertex, build: int, producer: int) -> JoinSizes:
        built = self._graph.result(job.inputs[build].dataset).info
        return JoinSizes(
            how=job.join.how if job.join is not None else "",
            build=SIDES[build],
            build_bytes=built.num_bytes_produced,
            build_rows=built.rows,
            probe_bytes=self._estimated(job, 1 - build).bytes,
            readers=1,
            memory=self._memory(),
            held=self._held_by(job.id, producer),
            hint=job.join is not None and job.join.hint == build,
            read_bytes=self._estimates.read_by(producer).bytes,
            slots=self._deferrals.slots_of(producer) or 0,
            exchanged_again=self._is_exchanged_again(job.id),
        ).with_volume(self._volume)

    def _record(self, job: JobVertex, rule: str, facts: JoinSizes | HashJoin, result: str = HASH) -> None:
        self._recorder.decision("join", vertex=job.id, name=job.name, inputs=facts, rule=rule, result=result)

    def _record_refusal(self, job: JobVertex) -> None:
        assert job.join is not None and job.join.hint is not None
        facts = HashJoin(side=SIDES[job.join.hint], obstacle=job.join.obstacles[job.join.hint])
        self._record(job, "hint", facts)

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
        return min(able, key=lambda side: self._likely_bytes(job, side), default=None)

    def _estimated(self, job: JobVertex, side: int) -> Estimate:
        return self._estimates.of(job.inputs[side].dataset)

    def _likely_bytes(self, job: JobVertex, side: int) -> int:
        """The estimate. Without an earlier run it is at most ``LIKELY`` times what the plan guesses, or what is written by now if that is more."""
        estimate, dataset = self._estimated(job, side), job.inputs[side].dataset
        guess = self._graph.vertices[self._graph.job_graph.datasets[dataset].producer].job.likely_bytes
        if estimate.is_known or guess is None:
            return estimate.bytes
        return min(estimate.bytes, max(LIKELY * guess, self._estimates.written(dataset)))

    def _limit(self, join: int, producer: int) -> int:
        memory = build_memory.limit(self._memory())
        return max(memory - sum(self._held_by(join, producer)), 0)

    def _memory(self) -> int:
        """Bytes that a task may use for its data."""
        return int(self._job.side_inputs.number("task memory", self._job.inputs.task_memory) or UNKNOWN_MEMORY)

    def _held_by(self, join: int, producer: int) -> tuple[int, ...]:
        """Memory of the build sides that the tasks of both have already: they are the same tasks behind the change."""
        return (*self._held.get(producer, ()), *self._held.get(join, ()))


def _is_adaptive(job: JobVertex) -> bool:
    return job.join is not None and (job.join.can_build(0) or job.join.can_build(1))


def _is_refused(job: JobVertex) -> bool:
    return job.join is not None and job.join.hint in (0, 1) and bool(job.join.obstacles[job.join.hint])

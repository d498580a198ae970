"""Slots of their own resources (FLIP-169) beside the scheduler. Without them a no-op object stands in the place."""

from __future__ import annotations

from typing import Protocol

from firesteel.humanize import format_bytes
from firesteel.model.arrays import Ints, select
from firesteel.options import Options
from firesteel.scheduler.kernel.events import ExecutionsDeploying, ExecutorChanged, WorkersOccupied
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.slots.allocators import ExecutionSlotAllocator
from firesteel.scheduler.slots.network_memory import NetworkMemory
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.requests import SlotRequests
from firesteel.scheduler.slots.reservations import Kept
from firesteel.scheduler.slots.resource_profile import SlotEnforcement
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.executions import Rows


class FineGrainedResources(Protocol):
    """Fine-grained resources, as the scheduler calls them: it tells them of events and asks them what to do."""

    def executor_changed(self, event: ExecutorChanged) -> None: ...

    def workers_occupied(self, event: WorkersOccupied) -> None: ...

    def launched(self, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None:
        """Spark launched these, which stand at ``places`` in the event."""
        ...

    def vertices_initialized(self) -> None:
        """There are new ones."""
        ...

    def begin_round(self) -> None:
        """All that waits for slots is going to be asked for."""
        ...

    def end_round(self) -> bool:
        """True: what was kept for somebody is free now, so ask once more."""
        ...

    def refuse_impossible(self) -> None:
        """Fails the job for a group of which no worker can ever hold a slot."""
        ...

    def check_requests(self) -> None:
        """Begins to wait for workers that are missing, and ends it where they have come."""
        ...

    def event_handled(self) -> None: ...

    def job_ends(self) -> None: ...

    def waiting_for(self) -> list[str]: ...

    def slots_of(self, vertex: int) -> int | None:
        """Slots that the vertex' group can get at once; None: a slot is one of Spark's own, or no worker is known."""
        ...

    def validate(self) -> None:
        """Raises AssertionError."""
        ...


class NoFineGrainedResources:
    """No slot sharing group has resources: a slot is one of Spark's own."""

    def executor_changed(self, event: ExecutorChanged) -> None: ...
    def workers_occupied(self, event: WorkersOccupied) -> None: ...
    def launched(self, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None: ...
    def vertices_initialized(self) -> None: ...
    def begin_round(self) -> None: ...
    def refuse_impossible(self) -> None: ...
    def check_requests(self) -> None: ...
    def event_handled(self) -> None: ...
    def job_ends(self) -> None: ...
    def validate(self) -> None: ...

    def end_round(self) -> bool:
        return False

    def waiting_for(self) -> list[str]:
        return []

    def slots_of(self, vertex: int) -> int | None:
        return None


class DefaultFineGrainedResources:
    def __init__(
        self,
        pool: SlotPool,
        job: Job,
        recorder: Recorder,
        timers: Timers,
        options: Options,
        *,
        graph: DefaultExecutionGraph,
        metrics: Metrics,
    ) -> None:
        self.pool = pool
        self._job = job
        self._recorder = recorder
        self._requests = SlotRequests(pool, job, recorder, timers, options)
        self._usage = pool.usage
        self._network = NetworkMemory(graph, pool, recorder, options)
        metrics.job.gauge("numSlotsAsked", lambda: self._usage.asked)
        metrics.job.gauge("numSlotsHeld", lambda: self._usage.held)
        self._told_of_keeping: set[int] = set()
        self._admits: bool | None = None
        """True: the pool makes executions wait, as last recorded; None: not recorded yet."""

    def executor_changed(self, event: ExecutorChanged) -> None:
        self.pool.workers.change(event)
        self._requests.workers_changed()
        self._network.consider()

    def workers_occupied(self, event: WorkersOccupied) -> None:
        self.pool.workers.occupy(dict(zip(event.executors, event.cores.tolist(), strict=True)))

    def launched(self, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None:
        self.pool.launched(rows, select(event.executors, places), select(event.nodes, places))

    def vertices_initialized(self) -> None:
        self._network.consider()

    def begin_round(self) -> None:
        self.pool.begin_round()

    def end_round(self) -> bool:
        again = self.pool.end_round()
        for kept in self.pool.reservations.kept_now:
            self._decide_keeping(kept)
        return again

    def refuse_impossible(self) -> None:
        self._requests.refuse_impossible()

    def check_requests(self) -> None:
        pool = self.pool
        if pool.mode.enforcement is SlotEnforcement.TASK_PROFILES and pool.kinds and pool.workers.is_told:
            self._tell_who_admits()
        self._requests.check()

    def event_handled(self) -> None:
        self._usage.event_handled()
        self.pool.event_handled(is_active=self._job.is_active)
        if self._job.status.is_terminal:
            self.pool.session.close()

    def job_ends(self) -> None:
        self._usage.job_ends()

    def waiting_for(self) -> list[str]:
        return self._requests.waiting_for()

    def slots_of(self, vertex: int) -> int | None:
        return self.pool.slots_at_once(vertex) if self.pool.workers.is_told else None

    def validate(self) -> None:
        self.pool.validate()

    def _tell_who_admits(self) -> None:
        """Records who admits executions: where Spark counts cores, the workers' sizes decide whether memory has to be counted too."""
        pool = self.pool
        if pool.admits == self._admits:
            return
        self._admits = pool.admits
        named = zip(pool.groups, pool.profiles, strict=True)
        asked = {g: (p.memory + pool.mode.framework) / p.cpu_cores for g, p in named if p.cpu_cores}
        there = pool.workers.least_memory_per_core
        ratios = f"{format_bytes(max(asked.values()))} a core are asked for, {format_bytes(there)} are there"
        if not self._admits:
            reason = f"cores run out before memory ({ratios}): all is given to Spark, which keeps cores apart"
        elif pool.memory_binds:
            reason = (
                f"memory may run out before cores ({ratios}): what has no slot waits, the rest runs where its slot is"
            )
        elif pool.session.others_admit:
            reason = "another job of the session asks for so much memory a core that it may run out before cores: what has no slot waits"
        else:
            reason = "the session serves what came first, and nothing may queue there before a mirror"
        self._recorder.decision(
            "slot admission",
            inputs={"asked_bytes_per_core": asked, "least_bytes_per_core": there},
            rule=pool.mode.enforcement.value,
            result="the slot pool" if self._admits else "Spark",
            reason=reason,
        )

    def _decide_keeping(self, kept: Kept) -> None:
        """Once for each vertex: from then on it happens again whenever it has to."""
        vertex, passed = kept.vertex, kept.passed
        if vertex in self._told_of_keeping:
            return
        self._told_of_keeping.add(vertex)
        group = self.pool.group_of[vertex]
        names = [self.pool.workers.names[number] for number in kept.workers]
        step = self.pool.step_names[vertex]
        self._recorder.decision(
            "slot reservation",
            vertex=vertex,
            name=step,
            inputs={"group": self.pool.groups[group], "workers": names, "passed": passed},
            rule="fairness",
            result=names,
            reason=f"others got {passed} slots while none was large enough for '{step}': room for one is kept on "
            f"{', '.join(names)} until it is there, and again whenever that happens",
        )


def fine_grained_resources(
    allocator: ExecutionSlotAllocator,
    job: Job,
    recorder: Recorder,
    timers: Timers,
    options: Options,
    *,
    graph: DefaultExecutionGraph,
    metrics: Metrics,
) -> FineGrainedResources:
    """Slot sharing groups have resources where a pool gives the slots."""
    if not isinstance(allocator, SlotPool):
        return NoFineGrainedResources()
    return DefaultFineGrainedResources(allocator, job, recorder, timers, options, graph=graph, metrics=metrics)

"""Costs of scheduling a job of some shape: real time by phase, memory, bytes and requests; on a simulated cluster."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from firesteel.errors import UsageError
from firesteel.journal.file import Instrument
from firesteel.model.group_options import groups_of
from firesteel.model.job_graph import JobGraph
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import (
    ATTEMPTS_BEFORE_RESET_BACKOFF,
    FINE_GRAINED_ALL_BLOCKING,
    RESTART_ATTEMPTS,
    RESTART_STRATEGY,
    Options,
)
from firesteel.scheduler.failover.restart_strategies import UNLIMITED
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.records import JobPlanned, JournalRecord, SlotUsage
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.scheduler.topology.planned import planned
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.dice import Faults
from firesteel.simulation.held import give_back, held_bytes
from firesteel.simulation.job import SimulatedJob, Speculated
from firesteel.simulation.plane import World
from firesteel.simulation.stopwatch import OUTSIDE, Stopwatch
from firesteel.simulation.workload import ChainShape, EdgeKind, Workload

SIMULATED = "simulated"
"""The id of the job in the journal of a simulation."""

PHASES = (
    "build",
    "regions",
    "start",
    "deploy",
    "launch",
    "finish of producers",
    "sizes",
    "decide",
    "initialise",
    "finish of consumers",
    "failover of one task",
    "release",
    "encode",
    "journal",
    "other",
)
"""In the order of a job's life. "launch": executions told to be running; "sizes": those
that producers report, taken in; "encode": descriptors made to bytes; "other": nodes, timers, failures of the dice."""
LEAST_LUCK = 0.001
"""A region that runs through with less chance than that is tried over and over, and the job hardly ends."""
MOST_LOOKS = 8
"""Times at which memory is looked at; a look walks over all that the scheduler holds."""


@dataclass(frozen=True, slots=True)
class Phase:
    ms: float
    """Real time of the scheduler, milliseconds."""
    events: int
    """Number of times it happened."""


@dataclass(frozen=True, slots=True)
class GroupSlots:
    """``needs``: of one slot. ``most``: held at the same time. Core-seconds and GiB-seconds are virtual ones."""

    needs: str
    most: int = 0
    core_seconds: float = 0.0
    gib_seconds: float = 0.0


class _SlotsSeen:
    """Takes note of what slots were held, and passes all records on, if there is a journal."""

    def __init__(self, story: Instrument | None, graph: JobGraph) -> None:
        self._story = story
        groups = {vertex.slot_sharing_group: graph.group_of(vertex.id) for vertex in graph.vertices}
        fine = graph.slot_sharing_groups
        self.slots = {name: GroupSlots(_needs(group)) for name, group in groups.items() if fine}

    def record(self, record: JournalRecord) -> None:
        if self._story is not None:
            self._story.record(record)
        if isinstance(record, SlotUsage):
            seen = self.slots[record.group]
            self.slots[record.group] = GroupSlots(seen.needs, 0, record.core_seconds, record.gib_seconds)

    def close(self) -> None:
        """The story is its owner's."""


def _needs(group: SlotSharingGroup) -> str:
    return str(ResourceProfile.of(group)) if group.has_resources else "of any size"


@dataclass(frozen=True, slots=True)
class Costs:
    """``memory_mib``: the most that the scheduler held. ``descriptor_bytes``: of all gate descriptors and execution
    descriptors that were deployed; ``deployment_bytes``: the largest deployment of one execution. ``makespan_s``: virtual
    seconds of the whole job. ``parallelism``: of each vertex, -1 where the job ended before it was decided. ``cause``:
    why the job did not finish."""

    phases: dict[str, Phase]
    memory_mib: float
    descriptor_bytes: int
    deployment_bytes: int
    storage_requests: int
    makespan_s: float
    status: str
    cause: str
    parallelism: list[int]
    tasks: int
    events: int
    decisions: dict[str, int]
    requests: dict[str, int]
    speculation: Speculated
    slots: dict[str, GroupSlots]
    """By slot sharing group, where any has resources."""

    @property
    def finished(self) -> bool:
        return self.status == JobStatus.FINISHED.value

    @property
    def scheduler_ms(self) -> float:
        return sum(phase.ms for phase in self.phases.values())


@dataclass(frozen=True, slots=True)
class Simulated:
    """A job to be simulated."""

    shape: ChainShape = field(default_factory=ChainShape)
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    fail_rate: float = 0.0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """Over the shape's own."""
    one_by_one: bool = False
    frozen_nodes: int = 0
    """So many stand still for good, soon after the start; Spark calls them gone after a while."""
    groups: tuple[str, ...] = ()
    """The steps' slot sharing groups, in turn; empty: all are in "default". Options give them resources."""

    def job_graph(self) -> JobGraph:
        graph = self.shape.job_graph()
        for vertex in graph.vertices if self.groups else ():
            vertex.slot_sharing_group = self.groups[vertex.id % len(self.groups)]
        used = {vertex.slot_sharing_group for vertex in graph.vertices}
        given = groups_of(self.all_options())
        graph.slot_sharing_groups = {name: group for name, group in given.items() if name in used}
        return graph

    def all_options(self) -> Options:
        """Raises UsageError for an option that is none."""
        # Made-up failures are to be seen, not to end the job.
        base = Options(
            {
                RESTART_ATTEMPTS.key: UNLIMITED,
                "firesteel.merge.request-time": f"{StorageSpec().latency} s",
            }
        )
        return base.with_values(self.shape.options()).with_values(self.options)

    def all_blocking(self) -> Simulated:
        """Returns this job, with blocking exchanges if groups have resources and the options ask for that (FLIP-169)."""
        if self.job_graph().slot_sharing_groups and self.all_options()[FINE_GRAINED_ALL_BLOCKING]:
            return replace(self, shape=replace(self.shape, pipelined=False))
        return self

    def check(self) -> None:
        """Raises UsageError for an option that is none, and for a job that finds too few slots or hardly ever ends."""
        _check_resources(self)
        _check_slots(self)
        _check_luck(self)

    def world(self, fail_rate: float) -> World:
        return World(
            cluster=self.cluster,
            storage=StorageSpec(),
            faults=Faults(fail_rate=fail_rate, frozen_nodes=self.frozen_nodes),
            workload=Workload(self.seed, self.shape.partition_bytes),
            seed=self.seed,
            one_by_one=self.one_by_one,
        )


def costs_of(simulated: Simulated, journal: Instrument | None = None) -> Costs:
    """Run the job once for its phases, and once more up to the failure of one task.

    A job that fails has costs too. Raises UsageError for what no scheduler can run, and as :meth:`Simulated.check` does.
    """
    simulated.check()
    costs = _costs_of_run(simulated, journal)
    gc.collect()  # that job is a circle of its parts: the second one is not to stand beside it
    give_back()
    failed = _failover(simulated)
    return costs if failed is None else replace(costs, phases=costs.phases | {"failover of one task": failed})


def _costs_of_run(simulated: Simulated, journal: Instrument | None) -> Costs:
    """All but the failure of one task."""
    watch = Stopwatch()
    story = _SlotsSeen(journal, simulated.job_graph())
    story.record(_plan(simulated))
    job = _started(simulated, simulated.fail_rate, watch, story)
    most, looks, sizes = _memory(job), 1, job.plane.deploys
    while job.plane.ended is None:
        job.step()
        if job.plane.deploys != sizes and looks < MOST_LOOKS:
            most, looks, sizes = max(most, _memory(job)), looks + 1, job.plane.deploys
    most = max(most, _memory(job))
    phases = {name: Phase(watch.seconds.get(name, 0.0) * 1000, watch.counts.get(name, 0)) for name in PHASES}
    phases["other"] = _sum(phases["other"], watch, {"failover"})
    unknown = set(watch.seconds) - set(PHASES) - {OUTSIDE, "failover"}
    assert not unknown, f"phases that are not reported: {unknown}"
    outcome = job.outcome()
    requests, cause = outcome.requests, job.plane.ended.cause
    parallelism = [vertex.parallelism for vertex in job.scheduler.graph.vertices]
    return Costs(
        phases=phases,
        memory_mib=most / (1 << 20),
        descriptor_bytes=job.plane.descriptor_bytes,
        deployment_bytes=job.plane.deployment_bytes,
        storage_requests=requests.total,
        makespan_s=outcome.makespan,
        status=outcome.status.value,
        cause="" if cause is None else cause.message,
        parallelism=parallelism,
        tasks=sum(count for count in parallelism if count > 0),
        events=outcome.events,
        decisions=outcome.decisions,
        requests=requests.by_kind(),
        speculation=outcome.speculation,
        slots={name: replace(seen, most=job.plane.workers.most.get(name, 0)) for name, seen in story.slots.items()},
    )


def _started(simulated: Simulated, fail_rate: float, watch: Stopwatch, journal: Instrument | None) -> SimulatedJob:
    graph, options = simulated.job_graph(), simulated.all_options()
    with watch.measure("build"):
        inputs = Inputs(slots=simulated.cluster.total_slots, slot_mode=simulated.cluster.mode)
        scheduler = create_scheduler(graph, options, inputs)
        watch.attach(scheduler)
    job = SimulatedJob(scheduler, simulated.world(fail_rate), journal, watch)
    job.start()
    return job


def _failover(simulated: Simulated) -> Phase | None:
    """Measures one failure while the last step runs: an input is lost, or, without a stored input, a function raises."""
    watch = Stopwatch()
    job = _started(simulated, 0.0, watch, None)
    last = simulated.shape.vertices - 1
    while job.plane.ended is None:
        runs = job.plane.runs
        running = (runs.state[: runs.size] == RunState.RUNNING) & (runs.vertex[: runs.size] == last)
        if running.any():
            started = time.perf_counter()
            job.fault_injection.fail_one(int(np.argmax(running)))
            return Phase((time.perf_counter() - started) * 1000, 1)
        job.step()
    return None


def _memory(job: SimulatedJob) -> int:
    """The scheduler's own: the job graph is its user's, and the watch is ours. Looked at between phases, which have left much free."""
    give_back()
    scheduler = job.scheduler
    return held_bytes(scheduler, without=(scheduler.job_graph, scheduler.options, job.watch))


def _sum(phase: Phase, watch: Stopwatch, others: set[str]) -> Phase:
    seconds = sum(watch.seconds.get(name, 0.0) for name in others)
    return Phase(phase.ms + seconds * 1000, phase.events + sum(watch.counts.get(name, 0) for name in others))


def _plan(simulated: Simulated) -> JobPlanned:
    """Without what is only the simulation's own: restarts without limit."""
    graph, shape = simulated.job_graph(), Options(simulated.shape.options())
    graph.name = f"{graph.name} (simulated, seed {simulated.seed})"
    return planned(graph, SIMULATED, shape.with_values(simulated.options))


def _region_size(shape: ChainShape) -> int:
    """Tasks that run, and fail, together."""
    if not shape.pipelined:
        return 1
    return shape.vertices * (shape.parallelism if shape.edge is EdgeKind.ALL_TO_ALL and shape.vertices > 1 else 1)


def _restarts_for_ever(options: Options) -> bool:
    """However often something fails."""
    name = options[RESTART_STRATEGY]
    endless = name == "exponential-delay" and options[ATTEMPTS_BEFORE_RESET_BACKOFF] is None
    return endless or (name == "fixed-delay" and options[RESTART_ATTEMPTS] >= UNLIMITED)


def _check_resources(simulated: Simulated) -> None:
    """Groups with resources need workers that have some; and exchanges that are blocking (FLIP-169)."""
    groups = simulated.job_graph().slot_sharing_groups
    if groups and not simulated.cluster.workers:
        raise UsageError(
            f"Slot sharing group '{next(iter(groups))}' has resources, but the resources of the nodes are not given.",
            hint="Say how much memory each has for slots, for example --memory '64 GiB'; its cores are its --slots.",
        )
    if simulated.cluster.workers and not groups:
        raise UsageError(
            "The nodes have memory for slots, and no slot sharing group of the job has resources.",
            hint="Give them to a group: -O slot-sharing-group.default.cpu-cores=2 "
            "-O slot-sharing-group.default.task-heap-memory='2 GiB'.",
        )
    if groups and simulated.shape.pipelined:
        raise UsageError(
            f"--pipelined and resources of slot sharing group '{next(iter(groups))}' cannot be used together (FLIP-169).",
            hint=f"Leave --pipelined out, or say -O {FINE_GRAINED_ALL_BLOCKING.key}=true, which does the same.",
        )


def _check_slots(simulated: Simulated) -> None:
    together, slots = _region_size(simulated.shape), simulated.cluster.total_slots
    if together > slots:
        raise UsageError(
            f"A pipelined region of this job has {together:,} tasks, which must run at the same time, and the cluster "
            f"has {slots:,} slots.",
            hint="Give it more --nodes or --slots.",
        )


def _check_luck(simulated: Simulated) -> None:
    options, together = simulated.all_options(), _region_size(simulated.shape)
    if not _restarts_for_ever(options):
        return  # it ends, if only by failing
    if (1 - simulated.fail_rate) ** together < LEAST_LUCK:
        raise UsageError(
            f"A pipelined region of this job has {together:,} tasks and runs again when any of them fails; where "
            f"{simulated.fail_rate:g} of the executions fail, less than one try in {1 / LEAST_LUCK:,.0f} succeeds.",
            hint="Lower --fail-rate or make the regions smaller (--vertices, --parallelism, --edge forward), or limit "
            f"the restarts: -O {RESTART_ATTEMPTS.key}=100.",
        )

"""Several jobs at once on one simulated cluster, each with a scheduler of its own, joined by a slot manager alone.

What every worker holds is added up from what really runs there, of all jobs, and never from what a slot pool or the manager
says. Workers die and come back, jobs come late, are cancelled, or vanish with their driver.
"""

from __future__ import annotations

import collections
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.effort import examples
from tests.scheduler_kit import waits_of
from tests.simulation.faults import Faults
from tests.simulation.job import SimulatedJob
from tests.simulation.random_jobs import random_graph
from tests.simulation.workers import check_holds

from firesteel.errors import UsageError
from firesteel.model.job_graph import ResultPartitionType
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.slots.manager import SlotManager
from firesteel.scheduler.slots.resource_profile import WorkerResources
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.cluster.workers import Worker
from firesteel.simulation.plane import World
from firesteel.simulation.workload import ChainShape, EdgeKind, Workload

MIB = 1 << 20
TURNS = 8
"""Times the slots that were ever held at once: no request waits while others are given more than so many."""


@dataclass(eq=False)
class Waiting:
    """Of a job: since when it got nothing that it asked for."""

    got: int = 0
    passed: int = 0
    most_passed: int = 0


@dataclass(eq=False)
class Session:
    """Jobs that share the workers of one cluster; virtual time is common to all."""

    spec: ClusterSpec
    manager: SlotManager = field(default_factory=SlotManager)
    now: float = 0.0
    live: dict[str, SimulatedJob] = field(default_factory=dict)
    ended: dict[str, JobStatus] = field(default_factory=dict)
    plans: list = field(default_factory=list)
    """(when, what): not done yet."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    most_held: int = 1
    most_jobs: int = 0
    """Jobs that held slots at the same time."""

    def __post_init__(self):
        self.starts = np.ones(self.spec.nodes, np.int64)
        self.dead: dict[int, float] = {}

    def at(self, when, action):
        self.plans.append((when, len(self.plans), action))
        self.plans.sort(key=lambda plan: plan[:2])

    def submit(self, name, graph, options, seed=1, faults=None, every=1):
        scheduler = create_scheduler(
            graph,
            Options(options),
            Inputs(slot_mode=self.spec.mode),
            join=lambda _, workers, left: self.manager.register(name, workers, lambda: self._tell(name), left),
        )
        world = World(
            self.spec,
            StorageSpec(bandwidth=1e4),
            faults or Faults(),
            Workload(seed, mean=1000, variants=64),
            seed=seed,
            heartbeat=0.0,
        )
        job = self.live[name] = SimulatedJob(scheduler, world, validate_every=every)
        self.waiting[name] = Waiting()
        job.plane.clock.advance(self.now)
        job.plane.cluster.starts[:] = self.starts - 1
        job.start()
        for node, back in self.dead.items():
            job.fault_injection.kill(node, back_after=back - self.now)
        return job

    def _tell(self, name):
        job = self.live.get(name)
        if job is not None:
            clock = job.plane.clock
            clock.at(self.now, lambda: job.tell(e.SlotsFreed(at=clock.now)))

    def kill(self, node, back_after):
        """The same for all jobs; one node stays."""
        if node in self.dead or len(self.dead) + 1 >= self.spec.nodes:
            return
        self.dead[node] = self.now + back_after
        for job in list(self.live.values()):
            job.plane.clock.advance(self.now)
            job.fault_injection.kill(node, back_after=back_after)
        self.at(self.now + back_after, lambda: self._back(node))

    def _back(self, node):
        del self.dead[node]
        self.starts[node] += 1

    def cancel(self, name):
        if name in self.live:
            job = self.live[name]
            job.plane.clock.at(self.now, lambda: job.tell(e.CancelRequested(at=job.plane.clock.now)))

    def vanish(self, name):
        """Its driver is gone, and all that ran for it."""
        job = self.live.pop(name, None)
        if job is not None:
            self.ended[name] = JobStatus.FAILED
            job.scheduler.allocator.session.close()

    def run(self):
        while self.live or self.plans:
            job = min(self.live.values(), key=lambda job: job.next_moment, default=None)
            moment = np.inf if job is None else job.next_moment
            if self.plans and self.plans[0][0] <= moment:
                when, _, action = self.plans.pop(0)
                self.now = max(self.now, when)
                action()
            else:
                assert np.isfinite(moment), self.told()
                self.now = max(self.now, moment)
                job.step()
            self.live = {name: job for name, job in self.live.items() if not self._is_over(name, job)}
            self.check_books()
            self.count()
        return self

    def _is_over(self, name, job):
        if job.plane.ended is not None:
            self.ended[name] = job.plane.status
        return job.plane.ended is not None

    def told(self):
        return "\n".join(["Nobody goes on:", *(line for job in self.live.values() for line in waits_of(job.scheduler))])

    def check_books(self):
        """No worker holds more than it has, of all jobs together; no address is held twice."""
        held = collections.defaultdict(list)
        nodes = {}
        for job in self.live.values():
            for worker in job.plane.workers:
                held[worker.name] += worker.slots_held
                nodes[worker.name] = worker.node
        for name, slots in held.items():
            resources = self.spec.resources_of(nodes[name])
            check_holds(Worker(name, nodes[name], resources, 1, held=dict(enumerate(slots))), True)
        self.most_held = max(self.most_held, sum(map(len, held.values())))
        holders = sum(any(w.slots_held for w in job.plane.workers) for job in self.live.values())
        self.most_jobs = max(self.most_jobs, holders)

    def count(self):
        """How many slots others were given while a job waited for what the workers that are there could give."""
        given = {}
        for name, job in self.live.items():
            one = self.waiting[name]
            given[name] = job.plane.runs.size - one.got
            one.got += given[name]
        for name, job in self.live.items():
            one, pool = self.waiting[name], job.scheduler.allocator
            waits = any(pool.could_fulfil(request) for request in pool.unmet)
            if given[name] or not waits or self.dead:
                one.passed = 0
            else:
                one.passed += sum(given.values())
                one.most_passed = max(one.most_passed, one.passed)
                assert one.passed <= TURNS * self.most_held, f"{name} starves: {self.told()}"


# --- any mix ------------------------------------------------------------------------------------------------------------


def random_cluster(rng):
    workers = []
    for _ in range(rng.randint(1, 3)):
        gpus = rng.choice([0, 1, 2, 3])
        addresses = {"gpu": tuple(map(str, range(gpus)))} if gpus else {}
        memory = rng.choice([256, 512, 1024]) * MIB
        external = {"gpu": float(gpus)} if gpus else {}
        workers.append(WorkerResources(float(rng.choice([2, 4, 6])), memory, external, addresses=addresses))
    return ClusterSpec(nodes=len(workers), workers=tuple(workers))


def random_group(rng, name, worker):
    """Of at most what this worker has, with some left for the network."""
    if rng.random() < 0.15:
        return SlotSharingGroup(name)
    gpus = rng.choice([0.0, 0.0, 0.5, 1.0, *map(float, range(1, int(worker.external.get("gpu", 0)) + 1))])
    gpus = min(gpus, worker.external.get("gpu", 0.0))
    return SlotSharingGroup(
        name,
        rng.choice([0.5, 1.0, 1.0, worker.cpu_cores]),
        rng.choice([MIB, worker.memory // 8, worker.memory // 3, int(worker.memory * 0.9)]),
        external_resources={"gpu": gpus} if gpus else {},
    )


def random_job(rng, spec):
    """A graph and its options; some are pipelined, so that several slots are needed at once."""
    if rng.random() < 0.35:
        shape = ChainShape(
            rng.randint(2, 3),
            rng.randint(1, 3),
            rng.choice([*EdgeKind]),
            adaptive=False,
            pipelined=True,
            partition_bytes=500,
        )
        graph, options = shape.job_graph(), shape.options()
    else:
        graph = random_graph(rng)
        options = {"max-parallelism": rng.choice([3, 8]), "data-volume-per-task": rng.choice([50, 500])}
    groups = [random_group(rng, name, rng.choice(spec.workers)) for name in ("a", "b", "c")[: rng.randint(1, 3)]]
    if not any(group.has_resources for group in groups):
        groups[0] = SlotSharingGroup("a", 1.0, MIB)
    graph.slot_sharing_groups = {group.name: group for group in groups}
    names = [rng.choice(groups).name for _ in graph.vertices]
    names[0] = next(group.name for group in groups if group.has_resources)
    if any(dataset.type is ResultPartitionType.PIPELINED for dataset in graph.datasets):
        names.sort()  # what runs together in one task is a run of steps of one group
    for vertex, name in zip(graph.vertices, names, strict=True):
        vertex.slot_sharing_group = name
    return graph, {
        **options,
        "restart-strategy.fixed-delay.attempts": 1 << 30,
        "restart-strategy.fixed-delay.delay": "0 s",
    }


def ends_alone(spec, graph, options):
    """Whether the job finishes on this cluster when it has it to itself."""
    session = Session(spec)
    try:
        session.submit("alone", graph, options, every=0)
        session.run()
    except (AssertionError, UsageError):
        return False
    return session.ended["alone"] is JobStatus.FINISHED


def session_of(seed):
    """A session of this seed, submitted, and the names of the jobs that must finish."""
    rng = random.Random(seed)
    spec = random_cluster(rng)
    session, must = Session(spec), []
    for number in range(rng.randint(2, 4)):
        graph, options = random_job(rng, spec)
        if not ends_alone(spec, graph, options):
            continue
        name, begins = f"job {number}", rng.choice([0.0, 0.0, rng.random()])
        faults = Faults(fail_rate=rng.choice([0.0, 0.0, 0.2]), max_failures=5, retire=rng.choice([0.0, 0.2]))
        if any(dataset.type is ResultPartitionType.PIPELINED for dataset in graph.datasets):
            faults = Faults()
        given = (name, graph, options, seed + number, faults, 3)
        session.at(begins, lambda given=given: session.submit(*given))
        end = rng.choice([None, None, None, session.cancel, session.vanish])
        if end is None:
            must.append(name)
        else:
            session.at(begins + rng.random() * 2, lambda end=end, name=name: end(name))
    for _ in range(rng.choice([0, 0, 2, 5])):
        node, back = rng.randrange(spec.nodes), rng.choice([0.1, 1.0])
        session.at(3 * rng.random(), lambda node=node, back=back: session.kill(node, back))
    return session, must


@pytest.mark.parametrize("block", [0, *(pytest.param(k, marks=pytest.mark.full) for k in (1, 2, 3))])
def test_jobs_of_any_mix_end_and_are_never_promised_the_same(block):
    """No worker holds more than it has, no address is held twice, nobody waits for ever, and nobody starves."""
    together = 0
    for seed in range(1000 * block, 1000 * block + max(6, examples(30))):  # among fewer too few run together
        session, must = session_of(seed)
        try:
            session.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert {name: session.ended[name] for name in must} == dict.fromkeys(must, JobStatus.FINISHED), seed
        together += session.most_jobs > 1
    assert together >= 3, "jobs did not run at the same time"

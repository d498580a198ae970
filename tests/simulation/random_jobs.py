"""Random jobs on random clusters on which everything that can go wrong does: for property tests, and for soaking."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.simulation.digest import JournalDigest
from tests.simulation.drivers import mortal
from tests.simulation.faults import Faults
from tests.simulation.job import SimulatedJob
from tests.simulation.random_resources import IMPOSSIBLE, give_resources

from firesteel.journal.file import Instrument
from firesteel.model.absorbing import Absorbing, obstacle
from firesteel.model.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    JoinInfo,
    ResultPartitionType,
    RuntimeFilter,
    ShipStrategy,
    SourceInfo,
)
from firesteel.options import (
    BASELINE_LOWER_BOUND,
    BASELINE_MULTIPLIER,
    BASELINE_RATIO,
    BLOCK_SLOW_NODE_DURATION,
    CHECK_INTERVAL,
    MAX_CONCURRENT_EXECUTIONS,
    MAX_REJECTIONS,
    SLOW_TASK_ABSOLUTE_TIME,
    SLOW_TASK_EXPECTED,
    SLOW_TASK_RULE,
    SPECULATIVE_ENABLED,
    Options,
)
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.job import Outcome
from firesteel.simulation.plane import World
from firesteel.simulation.violation import check
from firesteel.simulation.workload import Workload

MOST_TASKS = 40
SHIPS = (*ShipStrategy, ShipStrategy.HASH, ShipStrategy.HASH)
UNRANGED = tuple(ship for ship in SHIPS if ship is not ShipStrategy.RANGE)
"""Of jobs with pipelined exchanges: what is read while it is made cannot be waited for until its ranges are known."""


DIVISIBLE = ((True, True), (True, False), (False, True), (False, False))


@dataclass(frozen=True, slots=True)
class RandomJob:
    graph: JobGraph
    options: Options
    world: World
    forgiving: bool
    """Restarts are plenty and nobody cancels: the job must finish, whatever happens."""
    size_buffer_bytes: int = 0
    """Rows of sizes that are kept in memory before they are stored."""
    impossible: str = ""
    """A slot sharing group that no worker can ever hold: the job must fail, and say so."""

    def scheduler(self, side_inputs: DirectInputs | None = None, pinned: Mapping[int, int] | None = None) -> Scheduler:
        """Raises UsageError where the job asks for what cannot be."""
        inputs = Inputs(
            slot_mode=self.world.cluster.mode, size_buffer_bytes=self.size_buffer_bytes, pinned=dict(pinned or {})
        )
        return create_scheduler(self.graph, self.options, inputs, side_inputs)

    def simulated(self, journal: Instrument | None, *, validate_every: int = 0) -> SimulatedJob:
        """The job on its cluster, with drivers that die where its world says so. Raises UsageError as ``scheduler`` does."""
        faults = self.world.faults
        if not (faults.driver_dies or faults.driver_dies_at):
            return SimulatedJob(self.scheduler(), self.world, journal, validate_every=validate_every)
        scheduler, drivers = mortal(self.scheduler)
        return SimulatedJob(scheduler, self.world, journal, drivers=drivers, validate_every=validate_every)


def random_job(seed: int, faults: bool = True, resources: bool = False, drivers: bool = False) -> RandomJob:
    """The job of this seed. ``faults``: False for one that meets none. ``resources``: its slot sharing groups have some,
    and so have the workers. ``drivers``: its drivers die, whatever else happens or does not."""
    rng = random.Random(seed)
    pipelined = rng.random() < 0.1
    graph = random_graph(rng, pipelined=pipelined)
    joins = random.Random(f"joins of {seed}")
    if len(graph.vertices) > 1 and not pipelined and joins.random() < 0.2:
        _add_join(graph, joins)
    if not pipelined:
        if joins.random() < 0.3:
            _add_two_steps(joins, graph)
        _add_joins(joins, graph)
    forgiving = rng.random() < 0.8
    options = {
        "jobmanager.scheduler": "Default" if pipelined else rng.choice([*4 * ["AdaptiveBatch"], "Default"]),
        "max-parallelism": rng.choice([1, 3, 8]),
        "data-volume-per-task": rng.choice([50, 500, 5000]),
        "firesteel.decider.cut": rng.choice(["by-bytes", "by-count"]),
        "firesteel.subpartition-factor": rng.choice([1, 2, 4]),
        "firesteel.deployment.offload-threshold": rng.choice(["1 b", "16 mib"]),
        "firesteel.join.runtime-filter.min-probe-data-size": rng.choice(["0 b", "1 gb"]),
        "firesteel.merge.request-time": rng.choice(["0 s", "1000 s"]),
        "jobmanager.partition.release-during-job-execution": rng.random() < 0.9,
        "restart-strategy.fixed-delay.delay": rng.choice(["0 s", "1 s"]),
        "restart-strategy.fixed-delay.attempts": 1 << 30 if forgiving else rng.choice([0, 2, 5]),
    }
    if options["jobmanager.scheduler"] == "AdaptiveBatch" and rng.random() < 0.9:
        options |= _speculation(rng)
    options["restart-strategy.type"] = "fixed-delay" if forgiving or rng.random() < 0.8 else "none"
    happens = replace(_faults(rng, forgiving), **({} if pipelined else _standstill(rng))) if faults else Faults()
    heavy = joins.choice([0.0, 0.9])
    world = replace(_world(rng, seed, happens, heavy), cluster=_cluster(rng, pipelined))
    job = RandomJob(graph, Options(options), world, forgiving or not faults, rng.choice([0, 100, 1 << 20]))
    job = _with_resources(rng, job, faults, pipelined) if resources else job
    return _with_mortal_drivers(random.Random(f"drivers of {seed}"), job) if drivers else job


def _with_mortal_drivers(rng: random.Random, job: RandomJob) -> RandomJob:
    """Where the pool names workers, the log is fast: those that go before they are told of their executions are not simulated."""
    slow = rng.choice([0.0, 0.0, 0.05, 1.0])
    happens = replace(
        job.world.faults,
        driver_dies=rng.choice([0.02, 0.1, 0.4]),
        max_driver_deaths=rng.choice([1, 3, 10]),
        log_seconds=0.0 if job.world.cluster.workers else slow,
    )
    return replace(job, world=replace(job.world, faults=happens))


def _with_resources(rng: random.Random, job: RandomJob, faults: bool, pipelined: bool) -> RandomJob:
    happens = job.world.faults
    if faults:
        happens = replace(
            happens, retire=rng.choice([0.0, 0.0 if pipelined else 0.5]), foreign_every=rng.choice([0.0, 0.5, 3.0])
        )
    given = give_resources(rng, job.graph, happens, pipelined=pipelined)
    world = replace(job.world, faults=replace(happens, late_nodes=given.late_nodes), cluster=given.cluster)
    return replace(job, world=world, impossible=given.impossible)


def run_random_job(job: RandomJob, *, validate_every: int = 1) -> tuple[Outcome, str]:
    """Runs the job and returns how it ended, and the digest of its journal.

    Raises ViolationError when the scheduler did what it must not, or the job ended otherwise than it must; UsageError
    where the job asks for what cannot be.
    """
    journal = JournalDigest()
    simulated = job.simulated(journal, validate_every=validate_every)
    outcome = simulated.run()
    ends = {JobStatus.FINISHED}
    if job.impossible:
        check_refused(simulated, job.impossible)
        return outcome, journal.digest
    if not job.forgiving:
        ends |= {JobStatus.FAILED, *((JobStatus.CANCELED,) if job.world.faults.cancel_after else ())}
    check(outcome.status in ends, f"the job is {outcome.status.value}")
    return outcome, journal.digest


def check_refused(simulated: SimulatedJob, group: str) -> None:
    """The job failed, and its cause tells what the group asks for; or somebody cancelled it before."""
    ended = simulated.plane.ended
    assert ended is not None
    told = "" if ended.cause is None else ended.cause.message
    check(ended.status is not JobStatus.FINISHED, f"the job has finished, and nothing can hold its group '{group}'")
    check(ended.status is JobStatus.CANCELED or IMPOSSIBLE in told, f"the job failed for another reason: {told}")


def random_graph(rng: random.Random, *, pipelined: bool = False) -> JobGraph:
    """Up to six vertices, any ship strategies, several edges, results read by several; at most 40 tasks if set so."""
    graph = JobGraph("random", [], [])
    outputs: dict[tuple[int, ShipStrategy], int] = {}
    count = rng.randint(1, 6)
    for number in range(count):
        vertex = JobVertex(number, f"step {number}", f"uid-{number}")
        vertex.has_sink = rng.random() < 0.2
        vertex.supports_concurrent_attempts = rng.random() < 0.8
        vertex.speculative = rng.random() < 0.9
        vertex.deterministic = rng.random() < 0.8
        if rng.random() < 0.3:
            vertex.parallelism = rng.randint(1, max(1, MOST_TASKS // count))
        elif rng.random() < 0.2:
            vertex.max_parallelism = rng.randint(1, 6)
        graph.vertices.append(vertex)
        if number == 0 or rng.random() < 0.15:
            vertex.source = SourceInfo(np.array([rng.randint(0, 300) for _ in range(rng.randint(0, 6))], np.int64))
            continue
        ships = UNRANGED if pipelined else SHIPS
        chosen = {(rng.randrange(number), rng.choice(ships)) for _ in range(rng.randint(1, 3))}
        for index, (producer, ship) in enumerate(sorted(chosen, key=lambda pair: (pair[0], pair[1].value))):
            if (producer, ship) not in outputs:
                outputs[producer, ship] = _add_dataset(graph, producer, ship, pipelined and rng.random() < 0.5)
            edge = JobEdge(outputs[producer, ship], index, co_partitioned=ship is ShipStrategy.HASH)
            vertex.inputs.append(edge)
    for vertex in graph.vertices:
        if not vertex.outputs and rng.random() < 0.3:
            _add_dataset(graph, vertex.id, ShipStrategy.GLOBAL, False, persistent=True)
    return graph


def _add_join(graph: JobGraph, rng: random.Random) -> None:
    """Adds a join of two steps: of some kind, which may deal out the rows of some sides."""
    sides = list(zip(rng.sample(range(len(graph.vertices)), 2), rng.choice(DIVISIBLE), strict=True))
    vertex = JobVertex(len(graph.vertices), "join", "uid-join")
    for index, (producer, divisible) in enumerate(sides):
        dataset = _add_dataset(graph, producer, ShipStrategy.HASH, False)
        vertex.inputs.append(JobEdge(dataset, index, co_partitioned=True, divisible=divisible))
    graph.vertices.append(vertex)
    _let_absorb(graph, vertex, rng)


def _add_two_steps(rng: random.Random, graph: JobGraph) -> None:
    """Adds a vertex that may be two steps: by key, or for one subtask."""
    producer, first, by_key = rng.randrange(len(graph.vertices)), len(graph.vertices), rng.random() < 0.7
    fields = {} if rng.random() < 0.8 else {"max_parallelism": rng.randint(2, 6)}
    read = JobEdge(_add_dataset(graph, producer, ShipStrategy.HASH, False), 0, True, divisible=by_key, by_value=by_key)
    _is_read_by_others(graph, producer)
    graph.vertices.append(JobVertex(first, "count values", f"uid-{first}", inputs=[read], **fields))
    between = _add_dataset(graph, first, ShipStrategy.HASH if by_key else ShipStrategy.GLOBAL, False)
    edges, fields = [JobEdge(between, 0, co_partitioned=True)], fields if by_key else {"parallelism": 1}
    graph.vertices.append(
        JobVertex(first + 1, "add counts", "uid-add", inputs=edges, first_step=first, is_whole=True, **fields)
    )


def _is_read_by_others(graph: JobGraph, producer: int) -> None:
    """A step that joins can neither absorb nor narrow any more."""
    graph.vertices[producer].filters = ()
    for join in graph.vertices:
        if join.join is not None:
            found = [obstacle(graph, Absorbing(join.id, side)) for side in (0, 1)]
            join.join = replace(join.join, obstacles=(found[0], found[1]))


def _add_joins(rng: random.Random, graph: JobGraph) -> None:
    """Joins of steps whose rows nobody reads, which may absorb the producers of their probe sides; small sides are often new sources."""
    for _ in range(rng.choice([0, 0, 1, 2, 3])):
        ends = [vertex.id for vertex in graph.vertices if not vertex.outputs and not vertex.has_sink]
        if not ends:
            return
        sides = rng.sample(ends, min(len(ends), 2))
        if len(sides) == 1 or rng.random() < 0.7:
            splits = np.array([rng.randint(0, 50) for _ in range(rng.randint(1, 3))], np.int64)
            source = JobVertex(
                number := len(graph.vertices), f"step {number}", f"uid-{number}", source=SourceInfo(splits)
            )
            source.deterministic = rng.random() < 0.6
            graph.vertices.append(source)
            sides = rng.sample([sides[0], number], 2)
        number = len(graph.vertices)
        inputs = [_add_dataset(graph, side, ShipStrategy.HASH, False) for side in sides]
        divisible = rng.choice(DIVISIBLE)
        edges = [JobEdge(d, k, co_partitioned=True, divisible=divisible[k]) for k, d in enumerate(inputs)]
        graph.vertices.append(join := JobVertex(number, f"step {number}", f"uid-{number}", inputs=edges))
        join.has_sink = rng.random() < 0.1
        _let_absorb(graph, join, rng)


def _let_absorb(graph: JobGraph, join: JobVertex, rng: random.Random) -> None:
    """The join may absorb the producer of its probe side where the graph allows that."""
    found = [obstacle(graph, Absorbing(join.id, side)) for side in (0, 1)]
    join.join = JoinInfo("inner", (found[0], found[1]), rng.choice([None, None, 0, 1, 2]))
    _let_filter(graph, join, rng)


def _let_filter(graph: JobGraph, join: JobVertex, rng: random.Random) -> None:
    """Sources that only the join reads may be narrowed by its other side."""
    for side in (0, 1):
        producer = graph.vertices[graph.datasets[join.inputs[side].dataset].producer]
        if producer.source is not None and len(producer.outputs) == 1 and not producer.has_sink and rng.random() < 0.5:
            build = join.inputs[1 - side].dataset
            producer.filters = (*producer.filters, RuntimeFilter(join.id, 1 - side, build, ("k",), ("k",)))


def _add_dataset(graph: JobGraph, producer: int, ship: ShipStrategy, pipelined: bool, persistent: bool = False) -> int:
    number = len(graph.datasets)
    kind = ResultPartitionType.PIPELINED if pipelined else ResultPartitionType.BLOCKING
    keys = ("k",) if ship is ShipStrategy.HASH else ()
    graph.datasets.append(IntermediateDataSet(number, producer, ship, keys, kind, persistent))
    graph.vertices[producer].outputs.append(number)
    return number


def _world(rng: random.Random, seed: int, faults: Faults, heavy: float) -> World:
    return World(
        storage=StorageSpec(latency=rng.choice([0.0, 0.02, 1.0]), bandwidth=1e4),
        faults=replace(faults, node_local=rng.random() < 0.5),
        workload=Workload(
            seed,
            mean=rng.choice([0, 300, 1000, 3000]),
            skew=rng.choice([0.0, 0.8]),
            variants=1 << 20,
            heavy=heavy,
        ),
        seed=seed,
        heartbeat=rng.choice([0.0, 0.1, 0.5]),
        one_by_one=rng.random() < 0.3,
    )


def _cluster(rng: random.Random, pipelined: bool) -> ClusterSpec:
    """Many slots of few nodes, few of many, or too few: those only where no region needs many at once."""
    kind = rng.randint(0, 1 if pipelined else 3)
    if kind == 0:
        return ClusterSpec(nodes=rng.randint(2, 8), slots=rng.randint(40, 60), slow_nodes=rng.randint(0, 1))
    if kind == 1:
        return ClusterSpec(nodes=60, slots=rng.randint(1, 4), slow_nodes=rng.randint(0, 10))
    return ClusterSpec(nodes=rng.randint(2, 4), slots=rng.randint(1, 2), slow_nodes=rng.randint(0, 1), slow_factor=0.1)


def _faults(rng: random.Random, forgiving: bool) -> Faults:
    def sometimes(most: float) -> float:
        return rng.choice([0.0, most * rng.random()])

    return Faults(
        fail_rate=sometimes(0.3),
        max_failures=10,
        node_death_every=rng.choice([0.0, 0.3, 3.0]),
        node_back_after=rng.choice([0.1, 5.0]),
        lose_every=rng.choice([0.0, 0.2, 2.0]),
        damage=rng.choice([0.0, 0.5]),
        lost=rng.choice([0.0, 0.5, 1.0]),
        launch_late=sometimes(1.0),
        nameless=sometimes(0.5),
        tie=rng.choice([0.0, 0.5]),
        uncounted=sometimes(1.0),
        duplicate=sometimes(0.3),
        late=sometimes(0.3),
        late_by=rng.choice([0.05, 1.0]),
        other_token=sometimes(0.2),
        race=sometimes(1.0),
        lose_sizes=sometimes(0.5),
        merge_fails=sometimes(0.5),
        untold=sometimes(1.0),
        sinks_fail=0.0 if forgiving else 0.6,
        cancel_after=0.0 if forgiving else rng.choice([0.0, 0.5, 3.0]),
    )


def _speculation(rng: random.Random) -> dict[str, Any]:
    """Detectors that call executions slow soon and often, right or wrong."""
    return {
        SPECULATIVE_ENABLED.key: True,
        MAX_CONCURRENT_EXECUTIONS.key: rng.choice([1, 2, 2, 2, 3, 4]),
        BLOCK_SLOW_NODE_DURATION.key: rng.choice(["0 s", "500 ms", "5 s", "1 min"]),
        MAX_REJECTIONS.key: rng.choice([0, 1, 5]),
        CHECK_INTERVAL.key: rng.choice(["50 ms", "100 ms", "500 ms"]),
        BASELINE_LOWER_BOUND.key: rng.choice(["0 s", "50 ms", "500 ms"]),
        BASELINE_RATIO.key: rng.choice([0.0, 0.25, 0.75]),
        BASELINE_MULTIPLIER.key: rng.choice([0.5, 1.1, 1.5]),
        SLOW_TASK_RULE.key: rng.choice(["input-weighted", "seed"]),
        SLOW_TASK_EXPECTED.key: rng.random() < 0.7,
        SLOW_TASK_ABSOLUTE_TIME.key: rng.choice([None, "200 ms", "2 s"]),
    }


def _standstill(rng: random.Random) -> dict[str, Any]:
    """Nodes that become slow, or stand still; not where executions must run at the same time."""
    return {
        "slow_every": rng.choice([0.0, 0.5, 3.0]),
        "slow_for": rng.choice([1.0, 20.0]),
        "freeze_every": rng.choice([0.0, 0.5, 3.0]),
        "freeze_for": rng.choice([0.5, 4.0, float("inf")]),
        "heartbeat_timeout": rng.choice([1.0, 10.0]),
        "zombie": rng.choice([0.0, 0.7]),
    }

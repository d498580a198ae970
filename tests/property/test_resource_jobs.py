"""Jobs whose slot sharing groups have resources, on simulated workers of different sizes that come and go.

The cluster keeps a book of its own of what each worker holds (``simulation.workers``), and stops at the first execution that
is more than a worker has. Who keeps the promise differs: the pool alone, Spark with task profiles, Spark that makes executors.
"""

from __future__ import annotations

import collections
import random
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from tests.effort import examples
from tests.groups_kit import ring
from tests.scheduler_kit import waits_of
from tests.simulation.job import SimulatedJob
from tests.simulation.random_jobs import random_graph, random_job, run_random_job

from firesteel.errors import UsageError
from firesteel.model.job_graph import ResultPartitionType
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.plane import World
from firesteel.simulation.violation import ViolationError
from firesteel.simulation.workload import ChainShape, Workload

GIB, MIB = 1 << 30, 1 << 20
POOL, TASKS, EXECUTORS = SlotEnforcement


def run(seed, faults=True, every=20):
    """None where the job asks for what cannot be."""
    try:
        return run_random_job(random_job(seed, faults, resources=True), validate_every=every)
    except UsageError:
        return None
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


# --- never more than a worker holds, and every job that is admitted ends ------------------------------------------------


@pytest.mark.parametrize("block", [0, pytest.param(1, marks=pytest.mark.full)])
def test_every_job_ends_and_no_worker_ever_holds_more_than_it_has(block):
    tried = max(5, examples(75))
    ended = [run(seed) for seed in range(15 * block, 15 * block + tried)]
    assert sum(found is not None for found in ended) > tried // 2


def test_every_event_leaves_the_pool_valid():
    for seed in range(3004, 3004 + examples(30)):
        run(seed, every=1)


def test_where_nothing_goes_wrong_nothing_is_restarted():
    for seed in range(4000, 4000 + examples(50)):
        found = run(seed, faults=False)
        if found is not None and not random_job(seed, False, resources=True).impossible:
            assert found[0].status is JobStatus.FINISHED and "failover" not in found[0].decisions


def test_the_same_seed_tells_the_same_story():
    for seed in range(5000, 5000 + examples(30)):
        assert run(seed) == run(seed)


def sized(rng, name):
    gpus = rng.choice([{}, {}, {"gpu": rng.choice([0.5, 1.0, 2.0])}])
    return SlotSharingGroup(
        name, rng.choice([0.5, 1.0, 1.5, 4.0]), rng.choice([MIB, GIB]), 0, rng.choice([0, GIB]), external_resources=gpus
    )


def largest(groups):
    """What holds one slot of any of them, and not more of the largest."""
    gpus = max(group.external_resources.get("gpu", 0.0) for group in groups)
    cores = max(group.cpu_cores for group in groups)
    memory = max(ResourceProfile.of(group).memory for group in groups if group.has_resources)
    return cores, memory, gpus


@pytest.mark.parametrize("enforcement", [POOL, TASKS], ids=["pool", "tasks"])
def test_any_mix_of_groups_finishes_on_one_slot_that_fits_the_largest(enforcement):
    for seed in range(examples(60)):
        rng = random.Random(seed)
        graph = random_graph(rng)
        groups = [sized(rng, "a"), sized(rng, "b"), SlotSharingGroup("coarse")]
        graph.slot_sharing_groups = {group.name: group for group in groups}
        for vertex in graph.vertices:
            vertex.slot_sharing_group = rng.choice(groups).name
        cores, memory, gpus = largest(groups)
        if enforcement is TASKS:
            cores = float(-(-cores // 1))  # Spark knows whole cores only
        addresses = {"gpu": tuple(f"{n}" for n in range(int(-(-gpus // 1))))} if enforcement is POOL and gpus else {}
        worker = WorkerResources(cores, memory + 64 * MIB, {"gpu": gpus} if gpus else {}, addresses=addresses)
        job = simulated(graph, worker, mode=SlotMode(enforcement), **{"jobmanager.scheduler": "AdaptiveBatch"})
        if job is not None:
            assert job.run().status is JobStatus.FINISHED, (seed, job.plane.ended)


def simulated(graph, *workers, mode=None, seed=1, **options):
    """None where the job asks for what cannot be."""
    cluster = ClusterSpec(len(workers), workers=workers, mode=mode or SlotMode())
    world = World(cluster, StorageSpec(bandwidth=1e4), workload=Workload(seed, mean=1000, variants=64), seed=seed)
    try:
        scheduler = create_scheduler(graph, Options(options), Inputs(slot_mode=cluster.mode))
    except UsageError:
        return None
    return SimulatedJob(scheduler, world, validate_every=5)


def test_a_shared_slot_never_mixes_groups_and_holds_one_subtask_of_a_vertex():
    """In jobs with pipelined exchanges, whose regions share slots."""
    shared = 0
    for seed in range(max(100, examples(1100))):
        job = random_job(seed, resources=True)
        if all(dataset.type is ResultPartitionType.BLOCKING for dataset in job.graph.datasets):
            continue
        try:
            simulated_job = SimulatedJob(job.scheduler(), job.world, validate_every=10)
        except UsageError:
            continue
        if simulated_job.plane.has_resources:
            simulated_job.start()
            while simulated_job.plane.ended is None:
                shared += executions_in_shared_slots(simulated_job)
                simulated_job.step()
    assert shared > 20


def executions_in_shared_slots(job):
    pool, table = job.scheduler.allocator, job.scheduler.executions
    held = np.flatnonzero(pool._slot >= 0)
    found = collections.defaultdict(list)
    for row, slot in zip(held.tolist(), pool._slot[held].tolist(), strict=True):
        found[slot].append(int(table.vertex[row]))
    for vertices in found.values():
        assert len({job.scheduler.job_graph.vertices[v].slot_sharing_group for v in vertices}) == 1
        assert len(set(vertices)) == len(vertices)
    return sum(len(vertices) for vertices in found.values() if len(vertices) > 1)


def test_a_region_of_several_tasks_holds_each_address_once():
    """The last vertex' first subtask is in the slot of the vertices before, and another one reads what they make."""
    graph = ring(SlotSharingGroup("gpu", 1.0, GIB, external_resources={"gpu": 1.0}))
    worker = WorkerResources(4.0, 8 * GIB, {"gpu": 4.0}, addresses={"gpu": ("0", "1", "2", "3")})
    job = simulated(graph, worker, mode=SlotMode(POOL), **{"jobmanager.scheduler": "Default"})
    job.start()
    (worker,) = job.plane.workers
    assert sorted(held.addresses["gpu"] for held in worker.slots_held) == [("0",), ("1",), ("2",), ("3",)]
    assert sorted(collections.Counter(map(id, worker.held.values())).values()) == [1, 1, 1, 3]
    assert job.run().status is JobStatus.FINISHED


# --- what can never run, and what waited too long ---------------------------------------------------------------------


def chain(*groups, parallelism=4, seconds=1.0):
    """A step for each group, one after another; a task takes about so many seconds."""
    shape = ChainShape(len(groups), parallelism, partition_bytes=int(seconds * 1e4))
    graph = shape.job_graph()
    graph.slot_sharing_groups = {group.name: group for group in groups if group.has_resources}
    for vertex, group in zip(graph.vertices, groups, strict=True):
        vertex.slot_sharing_group = group.name
    return graph, shape.options()


@pytest.mark.parametrize("enforcement", [POOL, TASKS], ids=["pool", "tasks"])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (SlotSharingGroup("huge", 8.0, GIB), "8 cores"),
        (SlotSharingGroup("huge", 1.0, 64 * GIB), "64 GiB"),
        (SlotSharingGroup("huge", 1.0, GIB, external_resources={"gpu": 2.0}), "2 gpu"),
    ],
)
def test_a_group_that_no_worker_can_ever_hold_fails_the_job_at_once_with_the_numbers(enforcement, asked, told):
    graph, options = chain(asked, SlotSharingGroup("small", 1.0, GIB))
    workers = WorkerResources(2.0, 4 * GIB), WorkerResources(4.0, 8 * GIB, {"gpu": 1.0})
    job = simulated(graph, *workers, mode=SlotMode(enforcement), **options)
    outcome, message = job.run(), job.plane.ended.cause.message
    assert outcome.status is JobStatus.FAILED and outcome.makespan < 2.0
    assert (job.plane.runs.node[: job.plane.runs.size] < 0).all(), "nothing has run"
    assert "'huge'" in message and told in message and "4 cores, 8 GiB" in message


@pytest.mark.parametrize("enforcement", [POOL, TASKS], ids=["pool", "tasks"])
@pytest.mark.parametrize(("back_after", "ends"), [(5.0, JobStatus.FINISHED), (1e9, JobStatus.FAILED)])
def test_a_group_whose_only_worker_is_gone_waits_for_it_but_not_for_ever(enforcement, back_after, ends):
    graph, options = chain(SlotSharingGroup("small", 1.0, GIB), SlotSharingGroup("large", 4.0, 6 * GIB))
    workers = WorkerResources(2.0, 4 * GIB), WorkerResources(4.0, 8 * GIB)
    options |= {"slot.request.timeout": "20 s", "restart-strategy.fixed-delay.attempts": 1 << 30}
    job = simulated(graph, *workers, mode=SlotMode(enforcement), **options)
    job.start()
    job.step()
    job.fault_injection.kill(1, back_after=back_after)
    said = []
    while job.plane.ended is None:
        job.step()
        said += waits_of(job.scheduler)
    assert job.plane.status is ends
    assert any("'large'" in line and "4 cores" in line and "20 s" in line for line in said)
    if ends is JobStatus.FAILED:
        assert "'large'" in job.plane.ended.cause.message and "20 s" in job.plane.ended.cause.message
        assert 20.0 <= job.plane.clock.now < 40.0


def test_the_timeout_does_not_run_while_a_worker_is_large_enough_but_busy():
    graph, options = chain(SlotSharingGroup("large", 4.0, 6 * GIB), parallelism=20, seconds=10.0)
    job = simulated(graph, WorkerResources(4.0, 8 * GIB), **options, **{"slot.request.timeout": "20 s"})
    outcome = job.run()
    assert outcome.status is JobStatus.FINISHED and outcome.makespan > 100.0


# --- the cluster's own rules: each is broken on purpose, and seen -------------------------------------------------------


def broken(change, **wanted):
    """What is complained of when ``change(job)`` breaks the scheduler."""
    with pytest.raises(ViolationError) as complaint:
        for seed in range(200):
            chaotic = random_job(seed, wanted.get("faults", False), resources=True)
            if chaotic.world.cluster.mode.enforcement not in wanted.get("of", [*SlotEnforcement]) or chaotic.impossible:
                continue
            try:
                job = SimulatedJob(chaotic.scheduler(), chaotic.world)
            except UsageError:
                continue
            if job.plane.has_resources:
                change(job)
                job.run()
    return str(complaint.value)


def pool_of(job):
    return job.scheduler.allocator


def grants(change):
    """Deploys with other slots than the pool gave."""

    def put_between(job):
        handle = job.scheduler.handle

        def handled(event):
            commands = handle(event)
            deploys = [k for k, command in enumerate(commands) if isinstance(command, c.Deploy)]
            for k in deploys:
                commands[k] = structs.replace(commands[k], slots=change(commands[k].slots))
            return commands

        job.scheduler.handle = handled

    return put_between


@pytest.mark.full
def test_a_pool_that_forgets_what_it_gave_is_seen():
    def forgetful(job):
        pool_of(job).workers.take = lambda *_: None

    assert "slots hold" in broken(forgetful, of=[POOL])


@pytest.mark.full
def test_a_pool_that_does_not_know_that_memory_binds_is_seen():
    def careless(job):
        pool_of(job)._binds = None
        pool_of(job)._memory_can_bind = lambda _profile: False

    assert "B of" in broken(careless, of=[TASKS])


@pytest.mark.full
def test_slots_of_another_group_or_need_are_seen():
    assert "got slots of group" in broken(grants(lambda slots: replace(slots, group="another")))
    other = ResourceProfile(0.25, 7)
    assert "and got" in broken(grants(lambda slots: replace(slots, profile=other)))


@pytest.mark.full
def test_an_address_that_two_hold_is_seen():
    def same_for_all(slots):
        if not slots.addresses or slots.profile.external[0][1] < 1:
            return slots
        return replace(slots, addresses=[slots.addresses[0]] * len(slots.addresses))

    assert " of gpu " in broken(grants(same_for_all), of=[POOL])


@pytest.mark.full
def test_a_slot_on_a_blocked_node_is_seen():
    def careless(job):
        pool_of(job)._avoided = tuple

    assert "whose node is blocked" in broken(careless, of=[POOL], faults=True)


# --- guards ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_the_jobs_are_as_wild_as_they_are_meant_to_be():
    """Guards the tests above against dice that have gone quiet."""
    seen = collections.Counter()
    for seed in range(40):
        job = random_job(seed, resources=True)
        try:
            simulated_job = SimulatedJob(job.scheduler(), job.world)
        except UsageError:
            continue
        handle = simulated_job.scheduler.handle

        def counted(event, handle=handle, mode=job.world.cluster.mode.enforcement):
            commands = handle(event)
            seen.update([type(event).__name__])
            if isinstance(event, e.ExecutionsRejected) and event.retired:
                seen["retired"] += 1
            for slots in (k.slots for k in commands if isinstance(k, c.Deploy) and k.slots is not None):
                seen.update([mode.name, f"insists {slots.insists}", f"addresses {bool(slots.addresses)}"])
                seen[f"{'specified' if slots.profile.is_specified else 'unknown'}"] += 1
                seen[f"pending {bool((slots.executors.codes < 0).any())}"] += 1
            return commands

        simulated_job.scheduler.handle = counted
        seen[simulated_job.run().status.name] += 1
    wanted = "WorkersOccupied POOL TASK_PROFILES EXECUTOR_PROFILES specified unknown retired FINISHED FAILED"
    wanted = [*wanted.split(), "insists True", "insists False", "addresses True", "pending True", "pending False"]
    assert not [kind for kind in wanted if not seen[kind]]

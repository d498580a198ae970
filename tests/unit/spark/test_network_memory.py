"""Network memory of a slot sharing group: what readers and writers hold, worked out when all its vertices are initialised."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, plane

from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.results import reader
from firesteel.results.storage import objects, store
from firesteel.scheduler.slots import network_memory
from firesteel.scheduler.slots.network_memory import is_far
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources

MIB, GIB = 1 << 20, 1 << 30
A = SlotSharingGroup("a", 1.0, GIB)
B = SlotSharingGroup("b", 1.0, GIB)
LARGE = WorkerResources(8.0, 100 * GIB)


def test_it_reckons_with_the_sizes_that_readers_and_writers_use():
    for name in ("CHUNK_BYTES", "GATHER_BYTES", "READ_AHEAD"):
        assert getattr(network_memory, name) == getattr(reader, name)
    for name in ("LOCAL_TAIL_BYTES", "REMOTE_TAIL_BYTES", "WORKER_BYTES"):
        assert getattr(network_memory, name) == getattr(objects, name)
    assert store.WRITE_BYTES == network_memory.WRITE_BYTES


def chain(resources=LARGE, mode=None, groups=("a", "a", "b"), **options):
    """Three steps in a row, of 3, 4 and 2 subtasks."""
    builder = GraphBuilder("chain", A, B)
    first = builder.source([1] * 3, parallelism=3, slot_sharing_group=groups[0])
    second = builder.step((first, ShipStrategy.HASH), parallelism=4, slot_sharing_group=groups[1])
    builder.step((second, ShipStrategy.HASH), parallelism=2, slot_sharing_group=groups[2])
    job = plane(builder.graph, slot_mode=mode, sizes=lambda _v, _s, _d, n: np.full(n, GIB), **options)
    job.worker("w", resources)
    return job.start()


def network(job, vertex) -> list[int]:
    return [deploy.slots.profile.network_memory // MIB for deploy in job.deploys if deploy.vertex == vertex]


def test_it_enters_the_profile_once_all_vertices_of_the_group_are_initialised():
    job = chain()
    assert network(job, 0) == [0] and not job.decisions("network memory")
    job.run(0)
    (decision,) = job.decisions("network memory")
    # 4 MiB of chunks and 4 MiB of joined slices; the tails of three objects and the numbers of the output are some KiB
    assert network(job, 1) == [9] and decision.result == 9 * MIB
    assert "group 'a'" in decision.reason and "9 MiB" in decision.reason
    job.run(1)
    assert network(job, 2) == [9]
    job.run()
    assert job.status == "FINISHED"
    assert ResourceProfile.of(A).with_network_memory(9 * MIB) in job.scheduler.allocator.profiles


def test_a_far_store_is_read_ahead():
    job = chain(firesteel__storage__directory="s3://bucket/results")
    job.run(0)
    # three objects of 4 MiB each, 4 MiB of joined slices, 192 KiB of tails, 1 MiB for one write
    assert network(job, 1) == [18]
    assert not is_far(Options({"firesteel.storage.directory": "file:///results"}))
    assert is_far(Options({"firesteel.storage.filesystem": "module:function"}))


def test_no_more_than_there_is_to_read():
    builder = GraphBuilder("small", A, B)
    first = builder.source([1] * 3, parallelism=3, slot_sharing_group="a")
    builder.step((first, ShipStrategy.HASH), parallelism=2, slot_sharing_group="b")
    job = plane(builder.graph)
    job.worker("w", LARGE)
    job.start()
    job.run(0)
    assert network(job, 1) == [1], "a few hundred bytes are read"


def test_it_never_costs_a_worker_a_slot():
    job = chain(WorkerResources(4.0, 4 * GIB))
    job.run(0)
    assert network(job, 1) == [0] and len(job.keys(1)) == 4
    (decision,) = job.decisions("network memory")
    assert decision.result == 0 and decision.inputs["needed"] == 9 * MIB and "fewer slots" in decision.reason
    job = chain(WorkerResources(4.0, 4 * GIB + 20 * MIB))
    job.run(0)
    assert network(job, 1) == [5] and len(job.keys(1)) == 4


def test_slots_that_executors_were_made_for_stay_as_they_are():
    mode = SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True)
    job = chain(mode=mode)
    job.run(0)
    job.run(1)
    assert network(job, 1) == [0], "of the same need as the first step"
    assert network(job, 2) == [9], "the first of its group"


@pytest.mark.parametrize(("second", "mib"), [("a", 9), ("b", 1)])
def test_a_slot_needs_what_its_largest_task_needs(second, mib):
    """A stored input, read by a task of two executions: what passes between them is nowhere held. The first step has the
    numbers of its output, which count as 1 MiB."""
    builder = GraphBuilder("regions", A, B)
    first = builder.source([1] * 2, parallelism=2, slot_sharing_group="b")
    reads = builder.step((first, ShipStrategy.HASH), parallelism=2, slot_sharing_group="a")
    edge = (reads, ShipStrategy.FORWARD, ResultPartitionType.PIPELINED)
    builder.step(edge, parallelism=2, slot_sharing_group=second)
    job = plane(builder.graph, jobmanager__scheduler="Default")
    job.worker("w", LARGE)
    job.start()
    job.run(0)
    assert network(job, 1) == [9]
    assert network(job, 2) == [mib]


def test_it_never_makes_a_slot_too_large_for_a_worker_that_has_just_what_was_asked_for():
    just = WorkerResources(1.0, A.task_heap_memory)

    def waiting(*first: WorkerResources, gone: bool = False):
        builder = GraphBuilder("just", A)
        begin = builder.source([1] * 3, parallelism=3, slot_sharing_group="a")
        builder.step((begin, ShipStrategy.HASH), parallelism=1, slot_sharing_group="a")
        job = plane(builder.graph, slot_mode=SlotMode(grows=True), jobmanager__scheduler="Default")
        for number, resources in enumerate(first):
            job.worker(str(number), resources)
            if gone:
                job.worker(str(number), added=False)
        job.start()
        return job

    for job in (waiting(), waiting(just, gone=True), waiting(WorkerResources(0.5, GIB))):
        job.worker("just", just)
        job.run()
        assert job.status == "FINISHED"
        assert job.decisions("network memory")[0].result == 0

"""The parts of the simulated cluster, each by itself."""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pytest
from msgspec import structs
from tests.simulation import reading
from tests.simulation.faults import Faults
from tests.simulation.job import SimulatedJob
from tests.simulation.regions import check_producers, check_shared, members_of, slots_of
from tests.simulation.storage import Storage

from firesteel.model import sizes
from firesteel.model.arrays import Names
from firesteel.model.job_graph import IntermediateDataSet, JobGraph, JobVertex, ShipStrategy
from firesteel.model.sizes import unpack
from firesteel.options import Options
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.records import MetricsSnapshot
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.simulation.clock import VirtualClock, seen_at
from firesteel.simulation.cluster.nodes import Cluster, ClusterSpec
from firesteel.simulation.cluster.reading import bytes_of, loss_of, requests_of
from firesteel.simulation.cluster.regions import gangs_of
from firesteel.simulation.cluster.runs import ended_last
from firesteel.simulation.cluster.slot_queue import SlotQueue, Wish
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.held import held_bytes
from firesteel.simulation.plane import World
from firesteel.simulation.stopwatch import GROW, INITIALIZE, OUTSIDE, Stopwatch
from firesteel.simulation.violation import ViolationError
from firesteel.simulation.workload import ChainShape, EdgeKind, PackedSizes, Workload


def ints(*values):
    return np.array(values, np.int64)


# --- time ---------------------------------------------------------------------------------------------------------


def test_actions_come_in_the_order_of_their_time_and_of_their_coming():
    clock, seen = VirtualClock(), []
    for when, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        clock.at(when, lambda name=name: seen.append(name))
    assert clock.take() is None and clock.next_at == 1.0
    clock.advance(1.0)
    clock.after(-5.0, lambda: seen.append("past"))
    while (action := clock.take()) is not None:
        action()
    assert seen == ["a", "b", "past"] and clock.next_at == 2.0
    clock.advance(0.5)
    assert clock.now == 1.0


def test_what_happens_is_seen_with_the_next_heartbeat():
    assert seen_at(0.05, 0.1) == pytest.approx(0.1)
    assert seen_at(0.05, 0.0) == 0.05
    assert seen_at(math.inf, 0.1) == math.inf
    for beats in range(1, 2000):  # however sums are rounded: never before it happens, and on a beat at once
        assert beats * 0.1 <= seen_at(beats * 0.1, 0.1) < (beats + 0.5) * 0.1


# --- nodes and slots -------------------------------------------------------------------------------------------------


def test_a_cluster_hands_out_slots_over_all_nodes_and_takes_them_back():
    cluster = Cluster(ClusterSpec(nodes=3, slots=2, slow_nodes=1))
    assert sorted(cluster.speed.tolist()) == [0.25, 1.0, 1.0]
    free = cluster.free_slots()
    assert cluster.node_of[free[:3]].tolist() == [0, 1, 2]
    cluster.occupy(free[:4], ints(7, 8, 9, 10), np.array([5.0, 3.0, 4.0, 9.0]))
    assert cluster.run[cluster.next_to_end()] == 8
    due = cluster.due(5.0)
    assert cluster.run[due].tolist() == [8, 9, 7], "in the order of their ends"
    assert cluster.vacate(due).tolist() == [8, 9, 7] and len(cluster.free_slots()) == 5


def test_a_dead_node_has_no_slots_until_it_is_back():
    cluster = Cluster(ClusterSpec(nodes=2, slots=2))
    cluster.occupy(ints(0, 1), ints(4, 5), np.array([1.0, 1.0]))
    assert cluster.run[cluster.kill(0)].tolist() == [4]
    assert cluster.free_slots().tolist() == [3]
    cluster.alive[0] = True
    assert cluster.free_slots().tolist() == [2, 3]
    names = cluster.names_of(np.array([1, 1], np.int32))
    assert names.names == ("node-1",) and names[1] == "node-1"


def test_the_queue_is_first_come_first_served_and_never_splits_a_gang():
    queue = SlotQueue()
    queue.put(ints(0, 1, 2))
    queue.put_gangs(ints(3, 4, 5, 6, 7), ints(0, 0, 0, 1, 1))
    queue.put(ints(8))
    assert take(queue, *range(2)) == {0: 0, 1: 1}
    assert take(queue, *range(3)) == {2: 0}, "the gang of three does not fit, and nobody passes it"
    assert list(take(queue, *range(4))) == [3, 4, 5]
    queue.drop(ints(7), 9)
    assert list(take(queue, *range(9))) == [6, 8] and len(queue) == 0


def take(queue, *free, now=0.0, alive=(True, True, True)):
    """Three nodes, slot ``s`` on node ``s % 3``. Which of them run next, and where."""
    rows, slots = queue.take(ints(*free), np.arange(12) % 3, np.array(alive), now)
    return dict(zip(rows.tolist(), slots.tolist(), strict=True))


def test_executions_that_keep_away_wait_a_while_and_urgent_ones_pass():
    queue, not_0 = SlotQueue(), np.array([True, False, False])
    queue.put(ints(0, 1, 2))
    queue.put(ints(3, 4), Wish(not_0, 3.0), urgent=True)
    assert take(queue, 0, 3) == {0: 0, 1: 3}, "the urgent ones do not want these slots, and let others pass"
    assert take(queue, 0, 1) == {3: 1, 2: 0}
    assert take(queue, 0, now=2.9) == {}
    assert take(queue, 0, now=2.9, alive=(True, False, False)) == {4: 0}, "there is no other node"
    queue.put(ints(5, 6), Wish(not_0, 3.0))
    assert take(queue, 0, 2, now=3.0) == {5: 2, 6: 0}, "other nodes first, and then any"


def test_a_node_that_stands_still_goes_on_where_it_was():
    cluster = Cluster(ClusterSpec(nodes=2, slots=1))
    cluster.occupy(ints(0, 1), ints(4, 5), cluster.ends_of(ints(0, 1), 1.0, np.array([4.0, 4.0])))
    cluster.set_speed(0, 0.5, 2.0)
    assert cluster.ends.tolist() == [8.0, 5.0], "three seconds of work were left"
    cluster.set_speed(0, 0.0, 4.0)
    assert cluster.ends[0] == np.inf and cluster.speed.tolist() == [0.0, 1.0]
    cluster.vacate(ints(1))
    cluster.set_speed(1, 0.0, 4.0)
    cluster.occupy(ints(1), ints(6), cluster.ends_of(ints(1), 5.0, np.array([3.0])))
    cluster.end_by(ints(1), 5.05)
    assert cluster.ends[1] == np.inf, "where nothing moves nothing can be cancelled"
    cluster.set_speed(0, 1.0, 10.0)
    cluster.set_speed(1, 1.0, 10.0)
    assert cluster.ends.tolist() == [12.0, 10.0]
    assert cluster.marked(("node-1", "elsewhere")).tolist() == [False, True]


def test_members_of_a_gang_outlast_those_that_feed_them():
    ends, gangs, depth = np.array([5.0, 2.0, 1.0, 9.0, 3.0]), ints(0, 0, 1, 0, 1), ints(0, 1, 0, 2, 1)
    assert ended_last(ends, gangs, depth).tolist() == [5.0, 5.0, 1.0, 9.0, 3.0]
    ends, depth = np.array([1.0, 8.0, 1.0, 1.0, 0.5]), ints(0, 0, 0, 1, 1)
    assert ended_last(ends, gangs, depth).tolist() == [1.0, 8.0, 1.0, 8.0, 1.0]


# --- storage ---------------------------------------------------------------------------------------------------------


def _data_sets(count):
    return [IntermediateDataSet(n, 0, ShipStrategy.HASH) for n in range(count)]


@pytest.fixture
def storage():
    vertex = JobVertex(0, "source", "source", outputs=[0, 1])
    store = Storage(StorageSpec(), JobGraph("two results", [vertex], _data_sets(2)))
    store.write(0, [0, 1], ints(1, 2, 3), np.array([0, 0, 1], np.int32))
    return store


def test_objects_are_deleted_once_and_lost_as_often_as_you_like(storage):
    storage.delete(0, ints(2))
    assert storage.has(0, ints(1, 2, 3, 99, -1)).tolist() == [True, False, True, False, False]
    assert storage.has(1, ints(2)).all() and storage.was_deleted(0, ints(2)).all()
    with pytest.raises(ViolationError, match="deleted twice"):
        storage.delete(0, ints(2))
    with pytest.raises(ViolationError, match="never written"):
        storage.delete(0, ints(77))
    storage.lose(1, ints(3))
    storage.lose(1, ints(3))
    assert not storage.has(1, ints(3)).any() and not storage.was_deleted(1, ints(3)).any()
    storage.delete(1, ints(3))
    assert storage.requests.by_kind() == {"reads": 0, "writes": 6, "deletes": 2, "lists": 0, "blobs": 0}


def test_a_discarded_execution_leaves_nothing_and_a_dead_disk_neither(storage):
    storage.delete(0, ints(1))
    storage.discard(0, 1)
    storage.discard(0, 5)
    assert not storage.has(1, ints(1)).any()
    version = storage.version.copy()
    storage.lose_node(0)
    assert storage.has(0, ints(2, 3)).tolist() == [False, True] and (storage.version > version).all()


def test_leaks_are_told_by_kind(storage):
    told = np.ones(4, np.bool_)
    assert storage.leaks([0], told) == ["3 objects of data set 1"]
    assert storage.leaks([0, 1], told) == []
    told[:] = False
    assert storage.leaks([], told) == [], "the scheduler never heard of them"
    storage.store_sizes(c.StoreSizes(1, ints(0), ints(0), [b"x"]))
    storage.store_blob(b"d", b"data")
    storage.merged.write(0, c.MergedObjects(ints(0), ints(3), ints(9)), ints(0))
    assert storage.leaks([], told) == ["merged objects of data set 0", "rows of sizes of data set 1", "1 blobs"]
    with pytest.raises(ViolationError, match="not there"):
        storage.delete_merged(0, c.MergedObjects(ints(0), ints(2), ints(9)))
    with pytest.raises(ViolationError, match="not there"):
        storage.drop_blobs([b"other"])


def test_merged_objects_are_deleted_once_and_only_as_they_were_written(storage):
    book = storage.merged
    assert not book.has(ints(7)).any() and not book.has(ints()).any() and book.datasets == []
    book.write(1, c.MergedObjects(ints(0, 4), ints(4, 6), ints(7, 8)), ints(0, 1))
    book.write(0, c.MergedObjects(ints(0), ints(9), ints(12)), ints(1))
    assert book.has(ints(6, 7, 8, 9, 12, 13)).tolist() == [False, True, True, False, True, False]
    assert book.datasets == [0, 1]
    book.delete(1, c.MergedObjects(ints(4), ints(6), ints(8)))
    assert book.has(ints(7, 8)).tolist() == [True, False]
    wrong = {
        "gone": (1, c.MergedObjects(ints(4), ints(6), ints(8))),
        "twice": (1, c.MergedObjects(ints(0, 0), ints(4, 4), ints(7, 7))),
        "of another data set": (1, c.MergedObjects(ints(0), ints(9), ints(12))),
        "of other partitions": (0, c.MergedObjects(ints(1), ints(9), ints(12))),
        "never written": (0, c.MergedObjects(ints(0), ints(9), ints(11))),
    }
    for dataset, merged in wrong.values():
        with pytest.raises(ViolationError, match="not there"):
            book.delete(dataset, merged)
    book.delete(0, c.MergedObjects(ints(), ints(), ints()))


def test_more_outputs_than_a_byte_has_bits_are_told_apart():
    vertex = JobVertex(0, "source", "source", outputs=list(range(20)))
    store = Storage(StorageSpec(), JobGraph("many results", [vertex], _data_sets(20)))
    store.write(0, list(range(20)), ints(1, 2), np.zeros(2, np.int32))
    store.delete(17, ints(1))
    assert [store.has(d, ints(1, 2)).tolist() for d in (9, 17)] == [[True, True], [False, True]]


def test_rows_of_sizes_are_found_by_partition_and_attempt(storage):
    storage.store_sizes(c.StoreSizes(0, ints(0, 1), ints(0, 0), [b"a", b"b"]))
    storage.store_sizes(c.StoreSizes(0, ints(1), ints(1), [b"c"]))
    assert storage.load_sizes(c.LoadSizes(0, ints(1, 1, 2), ints(1, 0, 0))) == [b"c", b"b", None]
    storage.drop_sizes(0)
    assert storage.load_sizes(c.LoadSizes(0, ints(1), ints(1))) == [None]


# --- what is read ----------------------------------------------------------------------------------------------------


def deploy(gates, ranges, vertex=1, subpartitions=None):
    n = ranges[0].parallelism if ranges else 3
    subtasks = np.arange(n)
    return c.Deploy(vertex, n, subtasks, np.zeros(n, np.int64), gates, ranges, subpartitions or {})


def rectangles(*spans):
    rects = np.array([(first, end, 0, 1) for first, end in spans], np.int32)
    return c.InputRanges(np.arange(len(spans) + 1, dtype=np.int32), rects)


def test_requests_are_objects_read_and_merged_ones_count_once():
    gate = c.GateDescriptor(0, 1, np.zeros(6, np.int64), ints(1, 2, 3, 4, 5, 6), False)
    ranges = rectangles((0, 6), (4, 6), (0, 0))
    assert requests_of(deploy((gate,), (ranges,))).tolist() == [6, 2, 0]
    merged = replace(gate, merged=c.MergedObjects(ints(0), ints(4), ints(50)))
    assert requests_of(deploy((merged,), (ranges,))).tolist() == [3, 2, 0]
    several = replace(gate, merged=c.MergedObjects(ints(1, 4), ints(3, 6), ints(50, 51)))
    assert requests_of(deploy((several,), (ranges,))).tolist() == [4, 1, 0]
    assert not requests_of(deploy((replace(gate, pipelined=True),), (ranges,))).any()


def test_the_first_missing_object_is_named_for_each_reader():
    gate = c.GateDescriptor(3, 1, ints(7, 7, 7), ints(1, 2, 3), False, partitions=ints(10, 11, 14))
    ranges = rectangles((10, 12), (14, 15), (10, 15))
    there = np.array([True, False, False])
    misses, first = reading.first_missing(gate, ranges, there, ints(0, 1, 2))
    assert misses.tolist() == [True, True, True] and first.tolist() == [1, 2, 1]
    lost = loss_of(gate, 2)
    assert (lost.dataset, lost.partition, lost.attempt, lost.token) == (3, 14, 7, 3)
    misses, _ = reading.first_missing(gate, ranges, ~there, ints(1))
    assert not misses.any()


def test_a_deployment_must_not_name_what_is_deleted(storage):
    gate = c.GateDescriptor(0, 1, np.zeros(3, np.int64), ints(1, 2, 3), False)
    command = deploy((gate,), (rectangles((0, 1), (2, 3)),))
    reading.check_told_of_stored(command, storage)
    storage.delete(0, ints(2))
    reading.check_told_of_stored(command, storage)  # nobody reads that one
    storage.delete(0, ints(3))
    with pytest.raises(ViolationError, match="told to read"):
        reading.check_told_of_stored(command, storage)


def test_gangs_are_what_pipelined_gates_connect():
    none = np.empty(0, np.int64)
    gate = c.GateDescriptor(0, 1, none, none, False, pipelined=True)
    source = deploy((), (), vertex=0, subpartitions={0: 1})

    def gangs(*spans):
        return [g.tolist() for g in gangs_of(c.DeployRegions((source, deploy((gate,), (rectangles(*spans),)))))]

    assert gangs((0, 1), (1, 2), (2, 3)) == [[0, 1, 2], [0, 1, 2]]
    assert gangs((0, 3), (0, 3)) == [[0, 0, 0], [0, 0]]
    assert gangs((1, 3), (0, 1)) == [[0, 1, 1], [1, 0]]
    assert gangs((0, 2), (1, 3)) == [[0, 0, 0], [0, 0]], "by way of the one in the middle"
    with pytest.raises(ViolationError, match="without its producers"):
        check_producers(c.DeployRegions((deploy((gate,), (rectangles((0, 1)),)),)))


def granted(*shared, group="g", addresses=()):
    executors = Names.of(["w"] * len(shared))
    return c.SlotGrants(group, ResourceProfile(1.0, 1), executors, True, addresses, ints(*shared))


def test_what_shares_a_slot_is_of_one_gang_whatever_it_reads():
    none = np.empty(0, np.int64)
    gate = c.GateDescriptor(0, 1, none, none, False, pipelined=True)
    source = structs.replace(deploy((), (), vertex=0, subpartitions={0: 1}).select(ints(0)), slots=granted(0))
    reader = structs.replace(deploy((gate,), (rectangles((0, 0), (0, 0), (0, 1)),)), slots=granted(0, 1, 2))
    together = c.DeployRegions((source, reader))
    gangs = gangs_of(together, slots_of(together))
    assert [gang.tolist() for gang in gangs] == [[0], [0, 1, 0]], "the third reads what the slot of the first makes"
    found = members_of([ints(0), ints(1, 2, 3)], gangs, [source.slots, reader.slots])
    assert [[(m.row, m.place, m.slot) for m in gang] for gang in found] == [
        [(0, 0, 0), (1, 0, 0), (3, 2, 2)],
        [(2, 1, 1)],
    ]


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (granted(0, 0), "of one vertex"),
        (granted(0, 1, group="another"), "group 'another' too"),
        (granted(0, 1, addresses=[{"gpu": ("1",)}, {"gpu": ("2",)}]), "different addresses"),
    ],
)
def test_what_shares_a_slot_must_be_alike(other, complaint):
    first = granted(0, addresses=[{"gpu": ("0",)}] if other.addresses else ())
    parts = (
        structs.replace(deploy((), ()).select(ints(0)), slots=first),
        structs.replace(deploy((), ()).select(ints(0, 1)), slots=other),
    )
    with pytest.raises(ViolationError, match=complaint):
        check_shared(c.DeployRegions(parts))


# --- what is measured ------------------------------------------------------------------------------------------------


def test_a_stopwatch_charges_the_innermost_phase_and_leaves_out_what_is_outside():
    watch = Stopwatch()
    with watch.outside():
        pass
    with watch.measure("event"):
        with watch.measure("decide"):
            sum(range(200_000))
        with watch.outside():
            sum(range(200_000))
    assert watch.counts == {"event": 1, "decide": 1, OUTSIDE: 1}
    assert watch.seconds["decide"] > watch.seconds["event"] < watch.seconds[OUTSIDE]


def test_a_stopwatch_calls_what_the_start_initialises_built_and_tells_growth_by_its_parts():
    watch = Stopwatch()
    assert [watch.name_of(phase) for phase in (GROW, INITIALIZE)] == [None, "initialise"]
    with watch.measure("start"):
        assert watch.name_of(INITIALIZE) == "build"


def test_a_watch_that_is_attached_tells_every_phase_apart():
    watch, shape = Stopwatch(), ChainShape(parallelism=4)
    scheduler = create_scheduler(shape.job_graph(), Options(shape.options()))
    watch.attach(scheduler)
    SimulatedJob(scheduler, World()).run()
    assert set(watch.seconds) == {"decide", "initialise", "regions", "sizes", "deploy", "release"}


def test_memory_is_what_can_be_reached_each_thing_once():
    @dataclass(slots=True)
    class Slotted:
        column: object

    column = np.zeros(100_000)
    base = held_bytes(column)
    assert base >= column.nbytes
    assert held_bytes([column, column, column[10:]]) < base + 1000
    assert held_bytes({"a": Slotted(deque([column]))}) > base
    assert held_bytes([column], without=[column]) == sys.getsizeof([column])


@pytest.mark.parametrize("seed", [3, 40_000])
def test_totals_are_added_up_span_by_span(seed):
    work, n = Workload(seed, mean=10**9, skew=0.5, heavy=0.3, variants=2), 70_001
    sums = [work.plain(1, p, n).sum() for p in range(2)]
    assert work.totals(1, ints(0, 1, 2), n).tolist() == [sums[0], sums[1], sums[0]]


def test_sizes_follow_from_the_seed_alone_and_rows_add_up():
    work = Workload(3, mean=10_000, variants=4)
    rows = [work.plain(0, p, 50) for p in range(8)]
    assert (rows[1] == rows[5]).all() and (rows[1] != rows[2]).any() and (rows[0] != work.plain(1, 0, 50)).any()
    assert work.totals(0, ints(5, 2), 50).tolist() == [rows[1].sum(), rows[2].sum()]
    assert all(0.5 * 10_000 < row.sum() < 1.5 * 10_000 for row in rows)
    for ends in (ints(0), ints(3, 0), ints(9, 4, 8)):
        assert work.written_before(0, ends, 50).tolist() == [work.totals(0, np.arange(n), 50).sum() for n in ends]
    watch = Stopwatch()
    packed = PackedSizes(work, 0, ints(2, 3, 1), 50, watch)
    assert len(packed) == 3 and unpack(packed[1:][0]).tolist() == unpack(work.packed(0, 3, 50)).tolist()
    skewed = Workload(3, mean=10_000, skew=1.0).plain(0, 0, 1000)
    assert skewed.max() > 20 * np.median(skewed)
    assert Workload(4).plain(0, 0, 9).tolist() != Workload(5).plain(0, 0, 9).tolist()


# --- the plane -------------------------------------------------------------------------------------------------------


def job_of(shape, **world):
    options = Options({**shape.options(), "restart-strategy.fixed-delay.attempts": 100})
    scheduler = create_scheduler(shape.job_graph(), options)
    return SimulatedJob(scheduler, World(**world), validate_every=1)


def test_every_command_has_somebody_to_carry_it_out():
    kinds = {k for k in vars(c).values() if isinstance(k, type) and issubclass(k, c.Command) and k is not c.Command}
    assert set(job_of(ChainShape(1, 1)).plane.handlers) == kinds

    class Unheard(c.Command):
        pass

    with pytest.raises(ViolationError, match="Unheard"):
        job_of(ChainShape(1, 1)).plane.carry_out([Unheard()])


@pytest.mark.parametrize("edge", list(EdgeKind))
@pytest.mark.parametrize("kind", ["adaptive", "static", "pipelined"])
def test_chains_of_every_kind_run_to_their_end(edge, kind):
    shape = ChainShape(3, 20, edge, adaptive=kind == "adaptive", pipelined=kind == "pipelined")
    outcome = job_of(shape, cluster=ClusterSpec(10, 6), workload=Workload(1, shape.partition_bytes)).run()
    assert outcome.status is c.JobStatus.FINISHED and outcome.makespan > 0
    assert outcome.requests.writes == outcome.requests.deletes == (0 if kind == "pipelined" else 40)


def test_slow_nodes_make_a_job_slower_and_few_slots_too():
    shape = ChainShape(2, 20)
    work = {"workload": Workload(1, shape.partition_bytes)}
    quick = job_of(shape, cluster=ClusterSpec(20, 1), **work).run().makespan
    slow = job_of(shape, cluster=ClusterSpec(20, 1, slow_nodes=1), **work).run().makespan
    waves = job_of(shape, cluster=ClusterSpec(5, 1), **work).run().makespan
    assert slow > 1.5 * quick and waves > 1.5 * quick


def test_told_one_by_one_the_story_has_more_events_and_the_same_end():
    shape, world = ChainShape(2, 30), {"cluster": ClusterSpec(6, 5), "workload": Workload(1, 16 << 20)}
    bulk, single = job_of(shape, **world).run(), job_of(shape, one_by_one=True, **world).run()
    assert single.events > bulk.events + 30 and single.makespan == bulk.makespan


def test_a_node_that_dies_takes_its_disk_along():
    shape = ChainShape(2, 12)
    world = {"cluster": ClusterSpec(4, 3), "faults": Faults(node_local=True), "workload": Workload(1, 1 << 20)}
    job = job_of(shape, **world)
    job.start()
    while job.plane.deploys < 2:
        job.step()
    job.fault_injection.kill(1)
    while job.plane.ended is None:
        job.step()
    assert job.plane.status is c.JobStatus.FINISHED
    assert job.plane.decisions["failover"] >= 2, "what ran there, and what others missed"
    assert (job.plane.runs.attempt[: job.plane.runs.size] > 0).sum() >= 3


def test_a_region_that_finds_no_room_is_refused():
    job = job_of(ChainShape(2, 5, adaptive=False, pipelined=True), cluster=ClusterSpec(3, 3))
    with pytest.raises(ViolationError, match="10 executions needs as many slots at once, and there are 9"):
        job.run()


class Numbers:
    """Listens to a job's numbers by vertex."""

    def __init__(self):
        self.of = {}

    def record(self, record):
        if isinstance(record, MetricsSnapshot):
            for vertex, numbers in record.vertices.items():
                self.of.setdefault(vertex, {}).update(numbers)

    def close(self):
        pass


@pytest.mark.parametrize("fail_rate", [0.0, 0.2])
@pytest.mark.parametrize("most_measured", [23, 22], ids=["measured", "unmeasured"])
@pytest.mark.parametrize("kind", ["static", "adaptive"])
def test_all_to_all_jobs_read_what_they_produce_to_the_byte(kind, most_measured, fail_rate, monkeypatch):
    """Also what runs again alone reads its own share only, whether or not sizes are reported by subpartition."""
    monkeypatch.setattr(sizes, "MANY_PRODUCERS", most_measured)
    monkeypatch.setattr(sizes, "FEW_SUBPARTITIONS", 5)
    shape, numbers = ChainShape(3, 23, adaptive=kind == "adaptive", partition_bytes=100_003), Numbers()
    options = Options({**shape.options(), "restart-strategy.fixed-delay.attempts": 1000})
    world = World(
        ClusterSpec(23, 1), faults=Faults(fail_rate=fail_rate), workload=Workload(7, 100_003), heartbeat=0.0, seed=3
    )
    job = SimulatedJob(create_scheduler(shape.job_graph(), options), world, numbers)
    outcome = job.run()
    assert outcome.status is c.JobStatus.FINISHED
    assert ("failover" in outcome.decisions) == (fail_rate > 0)
    for vertex in (0, 1):
        produced = numbers.of[vertex]["numBytesProduced"]
        assert produced > 0 and numbers.of[vertex + 1]["numBytesIn"] == produced
    assert not any(of.get("numRecordsIn") or of.get("numRecordsOut") for of in numbers.of.values())


def test_unmeasured_shares_add_up_whatever_the_rectangles_and_however_large(monkeypatch):
    work, n = Workload(1, mean=1 << 44), 1 << 12
    monkeypatch.setattr(work, "totals", lambda _dataset, partitions, _n: (1 << 44) + partitions % 16)
    gate = c.GateDescriptor(0, n, np.zeros(9, np.int64), np.arange(9), False)
    rects = np.array([(0, 9, 0, 1000), (0, 5, 1000, n), (5, 9, 1000, 1001), (5, 9, 1001, n), (0, 0, 0, n)], np.int32)
    ranges = c.InputRanges(np.array([0, 1, 3, 4, 5], np.int32), rects)
    read = bytes_of(deploy((gate, gate), (ranges, ranges)), work)
    assert read.sum() == 2 * work.totals(0, np.arange(9), n).sum() and read[-1] == 0
    alone = bytes_of(deploy((gate,), (ranges.select(ints(0)),)), work)
    assert alone.tolist() == [read[0] // 2] and abs(alone[0] / (9 * 2**44) - 1000 / n) < 1e-9

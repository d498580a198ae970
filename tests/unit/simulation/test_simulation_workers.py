"""Workers with resources of their own in the simulated cluster: what they hold, who runs where, executors that come and go."""

from __future__ import annotations

import numpy as np
import pytest
from tests.simulation.worker_queue import Member, WorkerQueue
from tests.simulation.workers import Workers

from firesteel.model.arrays import Names
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.cluster.executors import ExecutorAllocation
from firesteel.simulation.cluster.nodes import Cluster, ClusterSpec, ExecutorSpec
from firesteel.simulation.cluster.slot_queue import LOCALITY_WAIT, Wish
from firesteel.simulation.cluster.workers import Worker
from firesteel.simulation.violation import ViolationError

GIB = 1 << 30
HEAVY = ResourceProfile(2.0, GIB)
POOL, TASKS, EXECUTORS = SlotEnforcement.POOL, SlotEnforcement.TASK_PROFILES, SlotEnforcement.EXECUTOR_PROFILES
ALIVE = np.ones(3, np.bool_)


def ints(*values):
    return np.array(values, np.int64)


def workers(enforcement, *resources, slots=4):
    found = Workers(enforcement)
    for number, own in enumerate(resources):
        found.add(Worker(f"w{number}", number, own, slots))
    return found


def grants(profile, *executors, insists=False, addresses=()):
    return SlotGrants("g", profile, Names.of(executors), insists, addresses)


def queue_of(found):
    return WorkerQueue(found, np.arange)


def take(queue, found, now=0.0, alive=ALIVE):
    """Row to the worker it runs on."""
    rows, slots = queue.take(np.arange(30), np.arange(30) % 3, alive, now)
    assert len(set(slots.tolist())) == len(slots)
    for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
        assert found.by_name[found.name_of(row)].node == slot % 3
    return {row: found.name_of(row) for row in rows.tolist()}


# --- what is held ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "complaint"),
    [
        (ResourceProfile(2.0, 1), "cores"),
        (ResourceProfile(0.1, 3 * GIB), "B of"),
        (ResourceProfile(0.1, 1, GIB), "as task_off_heap_memory"),
        (ResourceProfile(0.1, 1, external=(("gpu", 1.0),)), "gpu"),
    ],
)
def test_more_than_a_worker_has_is_seen(profile, complaint):
    found = workers(POOL, WorkerResources(3.0, 4 * GIB, {"gpu": 1.0}, task_off_heap_memory=GIB))
    found.hold(0, found.by_name["w0"], grants(profile, "w0"), 0)
    with pytest.raises(ViolationError, match=complaint):
        found.hold(1, found.by_name["w0"], grants(profile, "w0"), 0)


def test_what_is_released_or_called_gone_does_not_count():
    found = workers(POOL, WorkerResources(2.0, GIB))
    worker = found.by_name["w0"]
    changes: list[None] = []
    found.changed = lambda: changes.append(None)
    found.hold(0, worker, grants(HEAVY, "w0"), 0)
    found.release(ints(0))
    assert not changes
    found.hold(1, worker, grants(HEAVY, "w0"), 0)
    assert found.called_gone(ints(1)) and found.occupied() == {"w0": 2.0}
    found.hold(2, worker, grants(HEAVY, "w0"), 0)
    found.release(ints(1))
    assert len(changes) == 1 and found.occupied() == {}


def test_foreign_load_counts():
    found = workers(POOL, WorkerResources(3.0, 4 * GIB))
    found.by_name["w0"].foreign = 2.0
    assert found.occupied() == {"w0": 2.0} and found.fits(found.by_name["w0"], HEAVY) == 0
    with pytest.raises(ViolationError, match="cores"):
        found.hold(0, found.by_name["w0"], grants(HEAVY, "w0"), 0)


def test_an_address_is_held_once():
    gpu = ResourceProfile(1.0, 1, external=(("gpu", 1.0),))
    found = workers(POOL, WorkerResources(4.0, GIB, {"gpu": 2.0}, addresses={"gpu": ("a", "b")}))
    worker = found.by_name["w0"]
    found.hold(0, worker, grants(gpu, "w0", addresses=[{"gpu": ("a",)}]), 0)
    with pytest.raises(ViolationError, match="2 of gpu a"):
        found.hold(1, worker, grants(gpu, "w0", addresses=[{"gpu": ("a",)}]), 0)
    found.release(ints(1))
    with pytest.raises(ViolationError, match="has 0 addresses"):
        found.hold(1, worker, grants(gpu, "w0", addresses=[{}]), 0)
    found.release(ints(1))
    with pytest.raises(ViolationError, match="has no gpu"):
        found.hold(1, worker, grants(gpu, "w0", addresses=[{"gpu": ("c",)}]), 0)
    found.release(ints(0, 1))
    part = ResourceProfile(0.5, 1, external=(("gpu", 0.5),))
    for row in (2, 3):
        found.hold(row, worker, grants(part, "w0", addresses=[{"gpu": ("b",)}]), 0)
    with pytest.raises(ViolationError, match=r"1\.5 of gpu b"):
        found.hold(4, worker, grants(part, "w0", addresses=[{"gpu": ("b",)}]), 0)


# --- who runs where -------------------------------------------------------------------------------------------------


def test_in_pool_mode_all_run_at_once_where_the_pool_says():
    found = workers(POOL, WorkerResources(2.0, GIB), WorkerResources(4.0, 2 * GIB))
    queue = queue_of(found)
    queue.put(ints(0, 1, 2), grants(HEAVY, "w1", "w0", "w1"), None, 0.0)
    assert take(queue, found) == {0: "w1", 1: "w0", 2: "w1"} and not len(queue)
    queue.put(ints(3), grants(HEAVY, "w0"), None, 0.0)
    with pytest.raises(ViolationError, match="cores"):
        take(queue, found)


def test_in_pool_mode_what_is_bound_to_a_worker_goes_with_it():
    found = workers(POOL, WorkerResources(2.0, GIB), WorkerResources(4.0, 2 * GIB))
    queue = queue_of(found)
    queue.put(ints(0, 1, 2), grants(HEAVY, "w1", "w0", "w1"), None, 0.0)
    assert queue.take_bound("w1").tolist() == [0, 2] and len(queue) == 1


def test_spark_places_by_whole_cores_and_external_resources_first_come():
    gpu = ResourceProfile(1.5, 1, external=(("gpu", 1.0),))
    found = workers(TASKS, WorkerResources(4.0, GIB), WorkerResources(3.0, GIB, {"gpu": 4.0}))
    queue = queue_of(found)
    queue.put(ints(0, 1), grants(gpu, "", ""), None, 0.0)
    queue.put(ints(2, 3, 4, 5, 6, 7), grants(ResourceProfile.UNKNOWN, *6 * [""]), None, 0.0)
    assert take(queue, found) == {0: "w1", 2: "w0", 3: "w0", 4: "w0", 5: "w0", 6: "w1"}
    found.release(ints(0, 6))
    assert take(queue, found) == {1: "w1", 7: "w1"} and queue.demand() == {}


def test_spark_insists_on_a_place_for_a_while():
    found = workers(TASKS, WorkerResources(2.0, GIB), WorkerResources(2.0, GIB))
    queue = queue_of(found)
    queue.put(ints(0, 1), grants(HEAVY, "w1", "w1", insists=True), None, 0.0)
    assert take(queue, found, now=2.9) == {0: "w1"}
    assert take(queue, found, now=LOCALITY_WAIT) == {1: "w0"}
    assert found.by_name["w0"].held[1].strayed
    queue.put(ints(2), grants(ResourceProfile(1.0, 1), "w9", insists=True), None, 3.0)
    found.release(ints(0))
    assert take(queue, found, now=3.0) == {2: "w1"}, "that worker is not there any more"


def test_memory_is_not_checked_where_spark_went_its_own_way():
    large = ResourceProfile(1.0, GIB)
    found = workers(TASKS, WorkerResources(2.0, GIB), WorkerResources(1.0, GIB))
    found.hold(0, found.by_name["w0"], grants(large, "w0", insists=True), 0)
    found.hold(1, found.by_name["w0"], grants(large, "w1", insists=True), 0, strayed=True)
    found.release(ints(1))
    with pytest.raises(ViolationError, match="B of"):
        found.hold(2, found.by_name["w0"], grants(large, "w0", insists=True), 0)


def test_nodes_that_are_to_be_avoided_come_last():
    found = workers(TASKS, WorkerResources(1.0, GIB), WorkerResources(1.0, GIB))
    queue, not_0 = queue_of(found), np.array([True, False, False])
    queue.put(ints(0, 1), grants(ResourceProfile.UNKNOWN, "", ""), Wish(not_0, 3.0), 0.0, urgent=True)
    assert take(queue, found, now=1.0) == {0: "w1"}
    assert take(queue, found, now=1.0, alive=np.array([True, False, False])) == {1: "w0"}
    queue.put(ints(2, 3), grants(ResourceProfile.UNKNOWN, "", ""), None, 0.0)
    queue.drop(ints(2), 4)
    found.release(ints(0, 1))
    assert take(queue, found) == {3: "w0"}


def region(*members, slots=(), **more):
    """Executions (row, worker) of a region; ``slots``: the slot of each."""
    return [
        Member(row, grants(HEAVY, worker, **more), 0, slot) for (row, worker), slot in zip(members, slots, strict=True)
    ]


def test_executions_of_a_region_share_slots_until_the_last_is_over():
    found = workers(POOL, WorkerResources(4.0, 2 * GIB))
    queue = queue_of(found)
    queue.put_region(region((0, "w0"), (1, "w0"), (2, "w0"), slots=(0, 0, 1)), 0.0)
    assert len(queue) == 3 and take(queue, found) == {0: "w0", 1: "w0", 2: "w0"}
    worker = found.by_name["w0"]
    assert worker.memory_left == 0 and found.most == {"g": 2}
    found.release(ints(0))
    assert worker.memory_left == 0, "another execution is in the slot"
    found.release(ints(1))
    assert worker.memory_left == GIB
    queue.put_region(region((3, "w0"), (4, "w1"), slots=(0, 0)), 0.0)
    with pytest.raises(ViolationError, match="different workers"):
        take(queue, found)


def test_a_region_starts_as_a_whole_or_not_at_all():
    found = workers(TASKS, WorkerResources(4.0, 2 * GIB), WorkerResources(2.0, GIB))
    queue = queue_of(found)
    queue.put_region(region((0, ""), (1, ""), slots=(0, 1)), 0.0)
    queue.put_region(region((2, ""), (3, ""), slots=(0, 1)), 0.0)
    assert take(queue, found) == {0: "w0", 1: "w0"} and queue.demand() == {HEAVY: 2}
    assert not found.by_name["w1"].held
    found.release(ints(0))
    assert take(queue, found) == {2: "w0", 3: "w1"}
    queue.put_region(region((4, "w1"), slots=(0,), insists=True), 0.0)
    found.release(ints(1))
    assert take(queue, found) == {} and take(queue, found, now=LOCALITY_WAIT) == {4: "w0"}
    queue.put_region(region((5, ""), (6, ""), slots=(0, 1)), 0.0)
    queue.drop(ints(5), 7)
    assert len(queue) == 1


# --- executors that are made for a need ------------------------------------------------------------------------------


class Allocation:
    def __init__(self, *nodes):
        mode = SlotMode(EXECUTORS, grows=True)
        spec = ClusterSpec(len(nodes), workers=nodes, mode=mode, executors=ExecutorSpec(4, GIB, 2.0, 10.0))
        self.clock, self.workers, self.said = VirtualClock(), Workers(EXECUTORS), []
        self.queue = queue_of(self.workers)
        self.executors = ExecutorAllocation(
            Cluster(spec), self.clock, self.workers, self.queue, lambda worker, added: self.said.append((worker, added))
        )

    def at(self, when):
        self.clock.advance(when)
        while (action := self.clock.take()) is not None:
            action()
        self.executors.adjust()
        return [(worker.name, added) for worker, added in self.said]


def test_executors_appear_for_what_waits_and_go_when_they_are_idle():
    made = Allocation(WorkerResources(8.0, 16 * GIB), WorkerResources(2.0, GIB))
    made.queue.put(ints(0, 1, 2), grants(HEAVY, "", "", ""), None, 0.0)
    assert made.at(0.0) == [] and made.at(1.9) == []
    assert made.at(2.0) == [("executor-1", True), ("executor-2", True)]
    first = made.said[0][0]
    assert first.profile == HEAVY and first.slots == 2 and first.resources == WorkerResources(4.0, 2 * GIB)
    assert take(made.queue, made.workers) == {0: "executor-1", 1: "executor-1", 2: "executor-2"}
    made.workers.release(ints(2))
    made.at(3.0)
    assert made.at(12.9)[2:] == [] and made.at(13.0)[2:] == [("executor-2", False)]


def test_executors_serve_only_what_they_were_made_for_and_take_room():
    made = Allocation(WorkerResources(2.0, 2 * GIB))
    made.queue.put(ints(0), grants(ResourceProfile.UNKNOWN, ""), None, 0.0)
    made.queue.put(ints(1), grants(HEAVY, ""), None, 0.0)
    made.at(0.0)
    assert made.at(5.0) == [("executor-1", True)], "no room is left for the other"
    assert take(made.queue, made.workers) == {0: "executor-1"}
    made.workers.release(ints(0))
    made.at(6.0)
    made.at(16.0)
    assert made.at(18.0)[1:] == [("executor-1", False), ("executor-2", True)]
    assert take(made.queue, made.workers) == {1: "executor-2"}


def test_an_executor_does_not_appear_on_a_node_that_is_gone():
    made = Allocation(WorkerResources(4.0, 8 * GIB))
    made.queue.put(ints(0), grants(HEAVY, ""), None, 0.0)
    made.at(0.0)
    made.executors.node_is_gone(0)
    made.clock.advance(2.0)
    made.clock.take()()
    assert made.said == []

"""SlotPool: slots of their own resources, cut from what the workers have free."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, ints, plane, waits_of

from firesteel.model.job_graph import ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.reservations import Reservations
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources

GIB = 1 << 30
LIGHT = SlotSharingGroup("light", 1.0, GIB)
HEAVY = SlotSharingGroup("heavy", 2.0, 2 * GIB, managed_memory=GIB)
GPU = SlotSharingGroup("gpu", 1.0, GIB, external_resources={"gpu": 1.0})
PART = SlotSharingGroup("part", 0.5, GIB // 4, external_resources={"gpu": 0.1})
COARSE = SlotSharingGroup("coarse")
FOUR = WorkerResources(4.0, 8 * GIB)
TWO_GPUS = WorkerResources(8.0, 16 * GIB, {"gpu": 2.0}, addresses={"gpu": ("0", "1")})


def pool_of(*groups, mode=None, avoided=tuple, **workers):
    """A pool for one vertex per group, and workers by name."""
    builder = GraphBuilder("test", *groups)
    for group in groups:
        builder.source(slot_sharing_group=group.name)
    pool = SlotPool(builder.graph, mode, avoided=avoided)
    for name, resources in workers.items():
        pool.workers.change(worker(name, resources))
    return pool


def worker(name, resources=FOUR, added=True, slots=4, node="", profile=None):
    return e.ExecutorChanged(
        at=0.0,
        executor=name,
        host="h",
        slots=slots,
        added=added,
        node=node or name,
        resources=resources,
        profile=profile,
    )


def ask(pool, vertex, *rows):
    return pool.allocate_slots_for(ExecutionDeploymentOption(vertex, ints(*rows), ints(*rows)))


def granted(pool, vertex, *rows):
    return ask(pool, vertex, *rows).executions.tolist()


def test_slots_are_cut_first_fit_from_what_is_free():
    pool = pool_of(LIGHT, HEAVY, a=FOUR, b=FOUR)
    option = ask(pool, 1, *range(3))
    assert option.executions.tolist() == [0, 1, 2]
    assert [option.slots.executors[k] for k in range(3)] == ["a", "a", "b"]
    assert (option.slots.group, option.slots.profile) == ("heavy", ResourceProfile.of(HEAVY))
    assert granted(pool, 0, *range(10, 20)) == [10, 11], "two cores of b are left"
    assert granted(pool, 1, 3) == []
    pool.ended(ints(0, 77))
    pool.ended(ints(0))
    assert granted(pool, 0, *range(20, 30)) == [20, 21], "freed once, though told twice"


def test_memory_and_its_kinds_bound_too():
    pool = pool_of(HEAVY, a=WorkerResources(16.0, 7 * GIB), b=WorkerResources(16.0, 100 * GIB, managed_memory=GIB))
    option = ask(pool, 0, *range(9))
    assert [option.slots.executors[k] for k in range(len(option.executions))] == ["a", "a", "b"]


def test_ten_tenths_fit_into_one():
    pool = pool_of(PART, a=WorkerResources(100.0, 100 * GIB, {"gpu": 1.0}))
    for row in range(10):
        assert granted(pool, 0, row) == [row]
    assert granted(pool, 0, 10) == []
    pool.ended(ints(*range(10)))
    assert (pool.workers.free == pool.workers.total).all()


def test_thirds_fit_three_times_and_no_more():
    third = SlotSharingGroup("third", 1 / 3, 1)
    assert granted(pool_of(third, a=WorkerResources(1.0, GIB)), 0, *range(5)) == [0, 1, 2]


def test_an_unspecified_slot_takes_its_share_of_the_worker():
    pool = pool_of(COARSE, HEAVY, a=FOUR, b=WorkerResources(8.0, 8 * GIB))
    option = ask(pool, 0, *range(3))
    assert [option.slots.executors[k] for k in range(3)] == ["a"] * 3
    assert option.slots.profile == ResourceProfile.UNKNOWN
    assert granted(pool, 1, 10, 11, 12) == [10, 11], "one core and 2 GiB are left of a, all of b, which has 8 GiB"
    assert granted(pool, 0, *range(20, 30)) == [20, 21], "the fourth of a; of b a quarter is 2 cores and 2 GiB"


def test_the_pool_hands_out_addresses_each_once():
    pool = pool_of(GPU, PART, a=TWO_GPUS)
    option = ask(pool, 0, 0, 1, 2)
    assert [dict(a) for a in option.slots.addresses] == [{"gpu": ("0",)}, {"gpu": ("1",)}]
    assert granted(pool, 1, 5) == []
    pool.ended(ints(0))
    option = ask(pool, 1, *range(10, 25))
    assert len(option.executions) == 10 and {a["gpu"] for a in option.slots.addresses} == {("0",)}
    pool.ended(ints(1))
    assert ask(pool, 0, 30).slots.addresses[0]["gpu"] == ("1",)


def test_a_part_of_a_resource_is_a_part_of_one_address():
    most = SlotSharingGroup("most", 0.1, 1, external_resources={"gpu": 0.6})
    pair = SlotSharingGroup("pair", 0.1, 1, external_resources={"gpu": 2.0})
    pool = pool_of(most, pair, PART, a=TWO_GPUS)
    option = ask(pool, 0, 0, 1, 2)
    assert [a["gpu"] for a in option.slots.addresses] == [("0",), ("1",)], (
        "three times 0.6 is less than 2, but fits not"
    )
    pool.ended(ints(0, 1))
    assert ask(pool, 2, 5).slots.addresses[0]["gpu"] == ("0",)
    assert granted(pool, 1, 6) == []
    assert ask(pool, 0, 7).slots.addresses[0]["gpu"] == ("0",), "the fuller one, so that the other stays whole"
    pool.ended(ints(5, 7))
    assert ask(pool, 1, 8).slots.addresses[0]["gpu"] == ("0", "1")


def test_a_lost_worker_takes_its_slots_along_and_gives_nothing_back():
    pool = pool_of(LIGHT, a=FOUR, b=FOUR)
    assert len(granted(pool, 0, *range(8))) == 8
    for _ in range(2):
        pool.workers.change(worker("a", added=False))
    assert granted(pool, 0, 9) == []
    pool.workers.change(worker("c"))
    assert granted(pool, 0, 10) == [10]
    pool.ended(ints(*range(4)))  # their failures
    assert len(granted(pool, 0, *range(20, 30))) == 3
    pool.workers.change(worker("a"))  # the name comes again: another worker
    assert len(granted(pool, 0, *range(30, 40))) == 4


def test_a_worker_that_is_told_of_twice_is_one():
    pool = pool_of(LIGHT, a=FOUR)
    assert len(granted(pool, 0, 0, 1)) == 2
    pool.workers.change(worker("a"))
    assert len(granted(pool, 0, *range(10, 20))) == 2
    pool.workers.change(worker("a", WorkerResources(6.0, 8 * GIB)))
    assert len(granted(pool, 0, *range(20, 30))) == 2


def test_blocked_nodes_give_no_slots():
    blocked = []
    pool = pool_of(LIGHT, avoided=lambda: tuple(blocked), a=FOUR, b=FOUR)
    blocked.append("a")
    option = ask(pool, 0, *range(9))
    assert [option.slots.executors[k] for k in range(4)] == ["b"] * 4 == [option.slots.executors.names[0]] * 4
    blocked.clear()
    assert len(granted(pool, 0, *range(10, 20))) == 4


def test_cores_that_others_take_are_not_free():
    pool = pool_of(LIGHT, a=FOUR)
    pool.workers.occupy({"a": 2.5, "unknown": 9.0})
    assert len(granted(pool, 0, *range(9))) == 1
    pool.workers.occupy({})
    assert len(granted(pool, 0, *range(10, 20))) == 3


def test_a_slot_is_where_spark_started_it():
    pool = pool_of(LIGHT, a=FOUR, b=FOUR)
    ask(pool, 0, *range(4))
    pool.started_on(ints(0, 1, 2), ["b", "gone", "b"], [])
    pool.started_on(ints(0), ["b"], [])
    assert pool.workers_of(ints(0, 1, 2, 3)) == ["b", "a", "b", "a"]
    assert len(granted(pool, 0, *range(10, 20))) == 4
    pool.ended(ints(0, 1, 2, 3))
    assert len(granted(pool, 0, *range(20, 30))) == 4
    pool.started_on(ints(0, 99), ["a", "a"], [])  # late: they are over, or nobody knows them
    assert granted(pool, 0, 40) == []


def test_where_only_the_node_is_told_its_only_worker_is_meant():
    pool = pool_of(LIGHT, mode=SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True))
    for name, node in (("1", "x"), ("2", "y"), ("3", "y")):
        pool.workers.change(worker(name, node=node))
    ask(pool, 0, 0, 1)
    pool.started_on(ints(0, 1), [], ["x", "y"])
    assert pool.workers_of(ints(0, 1)) == ["1", ""]


def test_where_memory_cannot_bind_spark_alone_makes_tasks_wait():
    tasks = SlotMode(SlotEnforcement.TASK_PROFILES)
    pool = pool_of(LIGHT, mode=tasks, a=FOUR)
    option = ask(pool, 0, *range(9))
    assert (
        len(option.executions) == 9 and option.slots.executors.codes.tolist() == [-1] * 9 and not option.slots.insists
    )
    assert pool.num_pending.tolist() == [9]
    pool.started_on(ints(0, 1), ["a", "a"], [])
    assert pool.workers.free[0].tolist() == [2_000_000]
    pool.ended(ints(0, 1, 2))
    assert pool.num_pending.tolist() == [6]
    assert pool.workers.free[0].tolist() == [4_000_000]


def test_where_memory_can_bind_the_pool_insists_on_places():
    tasks = SlotMode(SlotEnforcement.TASK_PROFILES)
    pool = pool_of(LIGHT, mode=tasks, a=FOUR, b=WorkerResources(4.0, 2 * GIB))
    option = ask(pool, 0, *range(9))
    assert len(option.executions) == 6 and option.slots.insists
    kind = pool_of(HEAVY, mode=tasks, a=WorkerResources(4.0, 8 * GIB, managed_memory=GIB))
    assert kind.memory_binds, "a kind that is bounded by itself"


def test_profiles_are_those_of_the_resources_not_of_the_group():
    assert ResourceProfile.of(LIGHT) == ResourceProfile.of(SlotSharingGroup("other", 1.0, GIB))
    assert pool_of(SlotSharingGroup("none")).profiles == [ResourceProfile.UNKNOWN]


def test_ten_thousand_requests_of_many_profiles_match_a_thousand_workers_at_once():
    rng = np.random.default_rng(1)
    groups = [SlotSharingGroup(f"g{k}", 0.5 * (1 + k % 8), GIB * (1 + k % 5)) for k in range(50)]
    workers = {
        f"w{k}": WorkerResources(float(rng.integers(4, 64)), int(rng.integers(8, 256)) * GIB) for k in range(1000)
    }
    pool = pool_of(*groups, **workers)
    rows = rng.permutation(10_000).reshape(50, 200)
    begun = time.process_time()
    found = sum(len(granted(pool, vertex, *rows[vertex])) for vertex in range(50))
    taken = time.process_time() - begun
    assert found > 9_000 and (pool.workers.free >= 0).all()
    assert taken < 1, "it takes 0.05 s; trying each request on each worker would take ten times the limit"


# --- a whole job -----------------------------------------------------------------------------------------------


def two_groups(light=6, heavy=5, **options):
    builder = GraphBuilder("two groups", LIGHT, HEAVY)
    a = builder.source([100] * light, parallelism=light, slot_sharing_group="light")
    builder.step((a, ShipStrategy.REBALANCE), parallelism=heavy, slot_sharing_group="heavy")
    return plane(builder.graph, **options)


@pytest.mark.parametrize("kind", ["AdaptiveBatch", "Default"])
def test_a_job_runs_as_many_at_once_as_have_slots(kind):
    job = two_groups(jobmanager__scheduler=kind)
    job.worker("a", WorkerResources(4.0, 6 * GIB))
    job.start()
    assert job.keys(0) == [(0, k, 0) for k in range(4)]
    assert "waits for 2 slots" in " ".join(waits_of(job.scheduler))
    job.finish((0, 0, 0), (0, 1, 0))
    job.check_workers()
    assert len(job.keys(0)) == 4
    job.run(0)
    assert len(job.keys(1)) == 2
    assert all(d.slots.profile == ResourceProfile.of(HEAVY) for d in job.deploys if d.vertex == 1)
    job.run()
    assert job.status == "FINISHED"


def test_without_resources_nothing_changes():
    builder = GraphBuilder("coarse", COARSE)
    builder.source([1] * 9, slot_sharing_group="coarse")
    job = plane(builder.graph).start()
    job.worker("a", FOUR)
    assert all(deploy.slots is None for deploy in job.deploys) and len(job.keys(0)) == 1
    assert not any(isinstance(record, r.SlotUsage) for record in job.run().records)


def test_a_job_that_was_told_of_no_worker_waits_for_one():
    job = two_groups().start()
    assert not job.tasks
    job.worker("a", FOUR)
    assert len(job.keys(0)) == 4


def test_workers_that_come_and_go_leave_nothing_behind():
    pool = pool_of(LIGHT)
    for k in range(20):
        pool.workers.change(worker(f"w{k}"))
        pool.workers.change(worker(f"w{k}", added=False))
    assert len(pool.workers.names) == 1


def test_a_slot_of_any_size_is_given_back_as_it_was_taken_when_its_worker_has_changed():
    pool = pool_of(LIGHT, COARSE, a=FOUR)
    assert granted(pool, 1, 0) == [0]
    pool.workers.change(worker("a", WorkerResources(8.0, 32 * GIB)))
    pool.ended(ints(0))
    assert (pool.workers.free == pool.workers.total).all()


def test_where_nothing_may_queue_before_a_mirror_the_pool_admits():
    builder = GraphBuilder("in turn", LIGHT)
    builder.source(slot_sharing_group="light")
    for in_turn in (False, True):
        pool = SlotPool(builder.graph, SlotMode(SlotEnforcement.TASK_PROFILES), in_turn=in_turn)
        pool.workers.change(worker("a"))
        assert pool.admits is in_turn


def test_room_that_was_kept_is_free_for_others_once_it_is_used():
    pool = pool_of(LIGHT, HEAVY, a=FOUR)
    kept, free = Reservations(pool.workers, pool.session), pool.workers.free
    needs = [[(pool.workers.needs(profile), 1)] for profile in pool.profiles]
    kept.asked((1, False), needs[1], 1, 0)
    kept.asked((0, False), needs[0], 4, 4)
    kept.end_round(pool.usable, 4)
    assert (free - kept.kept_from(0, free))[0].tolist() == [2_000_000]
    assert (kept.kept_from(1, free) == free).all()
    kept.begin_round()
    kept.asked((1, False), needs[1], 1, 1)
    assert (kept.kept_from(0, free) == free).all()

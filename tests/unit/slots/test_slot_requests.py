"""Slot requests: who waits for what, who gives up, nobody starves."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.groups_kit import (
    DEFAULT,
    FOUR,
    GIB,
    HEAVY,
    LIGHT,
    MOST_EVENTS,
    SPECULATIVE,
    TWO,
    pipelined,
    requests,
    ring,
    sources,
)
from tests.scheduler_kit import DETECTOR_TIMER, GraphBuilder, Plane, plane, waits_of

from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources

# --- what can never be, and what waits for a worker --------------------------------------------------------------


def test_what_no_worker_could_ever_hold_fails_the_job_at_once_with_the_numbers():
    job = sources(1, 1)
    job.worker("small", WorkerResources(1.0, GIB))
    job.worker("large", WorkerResources(2.0, 32 * GIB))
    job.start()
    assert job.status == "FAILED" and not job.deploys
    message = job.ended.cause.message
    assert "'heavy'" in message and "'step 1'" in message
    assert "4 cores, 2 GiB heap" in message and "2 cores, 32 GiB" in message
    assert requests(job)[-1].result == "fails"


@pytest.mark.parametrize("enforcement", [SlotEnforcement.POOL, SlotEnforcement.TASK_PROFILES])
def test_what_a_later_step_can_never_get_is_refused_before_anything_is_deployed(enforcement):
    def two_steps() -> Plane:
        builder = GraphBuilder("later", LIGHT, HEAVY)
        first = builder.source([1] * 4, parallelism=4, slot_sharing_group="light")
        builder.step((first, ShipStrategy.HASH), parallelism=1, slot_sharing_group="heavy")
        return plane(builder.graph, slot_mode=SlotMode(enforcement))

    job = two_steps()
    job.worker("small", TWO)
    job.start()
    assert job.status == "FAILED" and not job.deploys
    assert "No worker can ever hold what group 'heavy' (step 'step 1') asks for" in job.ended.cause.message
    job = two_steps().start()
    job.worker("small", TWO)
    assert job.keys(0), "a larger one may be about to come"
    job.fire("slot-request-settled")
    for key in list(job.tasks):
        job.confirm_cancel(key)
    assert job.status == "FAILED" and job.keys(1) == []
    job = two_steps()
    job.worker("small", TWO)
    job.worker("small", added=False)
    job.start()
    assert job.status == "RUNNING", "nobody is there to judge by"
    job.worker("large", FOUR)
    job.run()
    assert job.status == "FINISHED"


def test_what_cannot_be_is_told_in_whole_sentences():
    gpus = SlotSharingGroup("gpus", 1.0, GIB, external_resources={"gpu": 2.0})
    job = sources(1, groups=(gpus,))
    job.worker("w", FOUR)
    job.start()
    assert job.ended.cause.message == (
        "No worker can ever hold what group 'gpus' (step 'step 0') asks for (1 core, 1 GiB heap, 2 gpu): "
        "the largest worker has 4 cores, 8 GiB and no gpu."
    )
    job = sources(1, groups=(HEAVY,), mode=SlotMode(grows=True))
    job.worker("w", TWO)
    job.start()
    assert waits_of(job.scheduler)[-1] == (
        "Group 'heavy' (step 'step 0') waits: there is no worker that could hold 4 cores, 2 GiB heap (the largest worker "
        "has 2 cores, 8 GiB). The job gives up in 5 min (slot.request.timeout)."
    )
    job.fire(min(job.timers))
    assert job.ended.cause.message == (
        "In 5 min there was no worker that could hold what group 'heavy' (step 'step 0') asks for (4 cores, 2 GiB heap): "
        "the largest worker has 2 cores, 8 GiB."
    )
    job = sources(1, groups=(HEAVY,), mode=SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True))
    job.start()
    begin = "Group 'heavy' (step 'step 0') waits: there is no executor for 4 cores, 2 GiB heap"
    assert waits_of(job.scheduler)[-1].startswith(f"{begin} (none is there).")
    job.worker("w", TWO, profile=ResourceProfile.of(LIGHT))
    assert waits_of(job.scheduler)[-1].startswith(f"{begin} (there is 1 executor, of other profiles).")


def test_where_slots_take_their_framework_memory_it_counts_and_is_told():
    """YARN gives an executor of 8 GiB 819 MiB of overhead: less than 256 MiB for each of its four cores."""
    mib = GIB >> 10
    mode = SlotMode(SlotEnforcement.TASK_PROFILES, framework=256 * mib)
    small = SlotSharingGroup("small", 1.0, 100 * mib)
    job = sources(4, groups=(small,), mode=mode)
    job.worker("w", WorkerResources(4.0, 819 * mib))
    job.start()
    assert len(job.keys(0)) == 2, "356 MiB each"
    (admission,) = job.decisions("slot admission")
    assert admission.result == "the slot pool"
    assert "356 MiB a core are asked for, 205 MiB are there" in admission.reason
    job.run()
    assert job.status == "FINISHED"
    job = sources(1, groups=(SlotSharingGroup("large", 1.0, 600 * mib),), mode=mode)
    job.worker("w", WorkerResources(4.0, 819 * mib))
    job.start()
    assert job.ended.cause.message == (
        "No worker can ever hold what group 'large' (step 'step 0') asks for (1 core, 600 MiB heap): the largest worker has 4 cores, "
        "819 MiB, and each slot takes 256 MiB more for its Python worker (firesteel.memory.framework)."
    )
    assert job.ended.cause.hint == "Ask for less, or start larger workers (spark.executor.memoryOverhead)."


def test_a_resource_that_no_worker_has_is_named():
    job = sources(1, groups=(SlotSharingGroup("gpu", 1.0, GIB, external_resources={"gpu": 1}),))
    job.worker("large", FOUR)
    job.start()
    cause = job.scheduler.job.cause
    assert "hold what group 'gpu' (step 'step 0') asks for" in cause.message
    assert cause.message.endswith("the largest worker has 4 cores, 8 GiB and no gpu.")
    assert "offer gpu" in cause.hint and "spark.executor.resource.gpu.amount" in cause.hint


def test_what_has_its_slot_and_only_starts_does_not_wait_for_one():
    job = sources(2, groups=(HEAVY,))
    job.worker("w", FOUR)
    job.start()
    (line,) = (line for line in waits_of(job.scheduler) if line.startswith("Group"))
    assert "waits for 1 slot of 4 cores, 2 GiB heap: 1 worker could hold one, but it has no room now" in line
    one = sources(1, groups=(HEAVY,))
    one.worker("w", FOUR)
    one.start()
    assert not any(line.startswith("Group") for line in waits_of(one.scheduler))


def test_workers_that_come_one_by_one_are_waited_for_a_moment():
    job = sources(1, 1).start()
    job.worker("small", TWO)
    assert job.status == "RUNNING"
    job.worker("large", FOUR)
    job.run()
    assert job.status == "FINISHED"
    job = sources(1, 1).start()
    job.worker("small", TWO)
    job.fire("slot-request-settled")
    assert job.status == "FAILING"


def test_where_workers_may_still_come_the_request_waits_until_its_time_is_over():
    job = sources(1, 1, mode=SlotMode(grows=True), slot__request__timeout="60 s")
    job.worker("small", TWO)
    job.start()
    assert job.status == "RUNNING"
    (told,) = requests(job)
    assert told.result == "waits" and "4 cores" in told.reason and "2 cores" in told.reason
    assert any("gives up in 1 min" in line for line in waits_of(job.scheduler))
    job.run(0)
    (timer,) = [timer for timer in job.timers if timer.startswith("slot-request")]
    job.fire(timer)
    assert job.status == "FAILED" and job.now >= 60
    assert "slot.request.timeout" in job.ended.cause.hint and "1 min" in job.ended.cause.message


def test_no_time_runs_while_a_worker_that_is_large_enough_is_busy():
    job = sources(0 + 1, 1, groups=(HEAVY, SlotSharingGroup("other", 3.0, GIB)), slot__request__timeout="60 s")
    job.worker("a", FOUR)
    job.start()
    assert job.keys(0) and not job.keys(1)
    assert not requests(job) and not job.timers
    assert any("'other'" in line and "1 worker could hold one" in line for line in waits_of(job.scheduler))
    job.now = 1000.0
    job.finish((0, 0, 0))
    assert job.keys(1)


def test_time_runs_when_the_only_large_worker_is_lost_and_stops_when_it_is_back():
    job = sources(1, 2, slot__request__timeout="60 s")
    job.worker("small", TWO)
    job.worker("large", FOUR)
    job.start()
    assert [key[1] for key in job.keys(1)] == [0]
    job.worker("large", added=False)
    assert requests(job)[-1].result == "waits", "it was there, so another may come"
    job.now += 50
    job.worker("large-2", FOUR)
    assert requests(job)[-1].result == "goes on"
    assert len(job.keys(1)) == 2
    stale = min(timer for timer in job.timers if timer.startswith("slot-request"))
    job.worker("large-2", added=False)
    job.fire(stale)
    assert job.status == "RUNNING", "the timer of a wait that is over"


def test_executors_of_a_profile_are_waited_for_while_none_of_it_is_there():
    mode = SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True)
    job = sources(2, 2, mode=mode, slot__request__timeout="60 s")
    job.worker("1", TWO, profile=ResourceProfile.of(LIGHT))
    job.start()
    assert len(job.tasks) == 4 and all(not task.worker for task in job.tasks.values()), "Spark makes executors for them"
    (told,) = requests(job)
    assert told.inputs["group"] == "heavy"
    job.now += 10
    job.worker("2", FOUR, profile=ResourceProfile.of(HEAVY))
    assert requests(job)[-1].result == "goes on"
    job.launch((1, 0, 0), worker="2")
    pool = job.scheduler.allocator
    assert pool.workers.free[0].tolist() == [2_000_000, 0]
    job.finish((1, 0, 0))
    job.launch((1, 1, 0), worker="2")
    job.worker("2", added=False)
    assert requests(job)[-1].result == "goes on", "nobody is asked for any more"
    job.run()
    assert job.status == "FINISHED"


def test_a_wait_is_over_when_nobody_asks_any_more():
    mode = SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True)
    job = sources(1, 1, mode=mode, slot__request__timeout="60 s").start()
    job.worker("1", TWO, profile=ResourceProfile.of(LIGHT))
    timers = [timer for timer in job.timers if timer.startswith("slot-request")]
    job.finish((1, 0, 0))  # nobody told of its executor
    job.now = 100.0
    for timer in timers:
        job.fire(timer)
    assert job.status == "RUNNING"


def test_no_time_runs_while_the_only_worker_that_is_large_enough_is_on_a_blocked_node():
    job = sources(2, 1, **SPECULATIVE)
    job.worker("a", FOUR, node="node-a")
    job.worker("b", TWO, node="node-b")
    job.start()
    for key in job.keys(0):
        job.launch(key, node="node-a", worker="a")
    job.slow((0, 0, 0))
    assert job.scheduler.allocator.unmet and not requests(job)
    told = "1 worker could hold one, but it is on a blocked node."
    assert any("'heavy'" in line and line.endswith(told) for line in waits_of(job.scheduler))
    assert not any(timer.startswith("slot-request") for timer in job.timers)
    job.run()
    assert job.status == "FINISHED"


def test_a_mirror_that_only_the_node_of_its_original_could_hold_does_not_fail_the_job():
    """The original takes longer than requests may wait, and its node is blocked for as long."""
    gpu = SlotSharingGroup("gpu", 1.0, GIB, external_resources={"gpu": 1.0})
    job = sources(1, groups=(gpu,), **SPECULATIVE, slot__request__timeout="60 s")
    job.worker("a", WorkerResources(4.0, 8 * GIB, {"gpu": 1.0}), node="node-a")
    job.worker("b", FOUR, node="node-b")
    job.start()
    job.launch((0, 0, 0), node="node-a", worker="a")
    for _ in range(5):
        job.slow((0, 0, 0))
        job.now += 30.0
        for timer in [timer for timer in job.timers if job.timers[timer] <= job.now and timer != DETECTOR_TIMER]:
            job.fire(timer)
        assert job.scheduler.job.blocklist.avoided == ("node-a",)
        assert job.scheduler.job.joined, "the mirror waits"
        assert job.status == "RUNNING" and not requests(job)
    job.finish((0, 0, 0))
    job.run()
    assert job.status == "FINISHED"


def test_two_steps_of_a_group_wait_together():
    builder = GraphBuilder("two", HEAVY)
    for _ in range(2):
        builder.source([1] * 3, parallelism=3, slot_sharing_group="heavy")
    job = plane(builder.graph)
    job.worker("a", FOUR)
    job.start()
    assert waits_of(job.scheduler)[-1] == (
        "Group 'heavy' (steps 'step 0', 'step 1') waits for 5 slots of 4 cores, 2 GiB heap: 1 worker could hold one, but it "
        "has no room now."
    )
    assert job.scheduler.metrics.job.read()["numSlotsAsked"] == 5 + 1
    job.send(e.CancelRequested(at=job.tick()))
    job.confirm_cancel((0, 0, 0))
    last = [record for record in job.records if isinstance(record, r.SlotUsage)][-1]
    assert (last.asked, last.held) == (0, 0), "nobody asks any more"


def test_a_profile_that_gets_no_executor_fails_the_job():
    mode = SlotMode(SlotEnforcement.EXECUTOR_PROFILES, grows=True)
    job = sources(1, 1, mode=mode, slot__request__timeout="60 s").start()
    job.worker("1", TWO, profile=ResourceProfile.of(LIGHT))
    job.launch((0, 0, 0), worker="1")
    for timer in sorted(job.timers, key=job.timers.__getitem__):
        if job.ended is None and timer in job.timers:
            job.fire(timer)
    assert job.status == "FAILING" and "no executor for what group 'heavy'" in job.scheduler.job.cause.message


def test_who_makes_executions_wait_is_on_record():
    mode = SlotMode(SlotEnforcement.TASK_PROFILES)
    job = sources(6, groups=(LIGHT,), mode=mode).start()
    assert not job.tasks and not job.decisions("slot admission"), "nobody knows yet what memory there is"
    job.worker("a", WorkerResources(2.0, 8 * GIB))
    assert len(job.tasks) == 6, "Spark keeps cores apart, and memory lasts"
    (decision,) = job.decisions("slot admission")
    assert decision.result == "Spark" and "1 GiB a core are asked for, 4 GiB are there" in decision.reason
    job.worker("b", WorkerResources(4.0, 2 * GIB))
    assert job.decisions("slot admission")[-1].result == "the slot pool"


# --- fairness ----------------------------------------------------------------------------------------------------


def finish_in_turn(job, until=lambda: False) -> list[tuple[int, int, int]]:
    """The longest running task finishes, again and again; returns the keys in the order of their starts."""
    started: dict[tuple[int, int, int], None] = {}
    for _ in range(MOST_EVENTS):
        started |= dict.fromkeys(key for key in job.tasks if key not in started)
        job.check_workers()
        if job.ended is not None or until():
            return list(started)
        job.finish(next(key for key in job.tasks))
    raise AssertionError("\n".join(waits_of(job.scheduler)))


def test_a_large_request_does_not_starve_behind_a_stream_of_small_ones():
    job = sources(60, 3)
    job.worker("a", FOUR)
    job.start()
    started = finish_in_turn(job)
    places = [place for place, key in enumerate(started) if key[0] == 1]
    assert places[0] < 15 and places[-1] < 45, places
    (decision,) = job.decisions("slot reservation")
    assert decision.vertex == 1 and decision.result == ["a"]


def test_room_that_was_kept_on_a_worker_that_is_lost_or_smaller_is_kept_elsewhere():
    for change in (lambda job, name: job.worker(name, added=False), lambda job, name: job.worker(name, TWO)):
        job = sources(200, 1)
        job.check = False  # a worker that is smaller than what runs there is not what its books expect
        job.worker("a", FOUR)
        job.worker("b", FOUR)
        job.start()
        finish_in_turn(job, lambda job=job: bool(job.decisions("slot reservation")))
        (kept,) = job.decisions("slot reservation")[0].result
        change(job, kept)
        for _ in range(40):
            if job.keys(1):
                break
            job.finish(job.keys(0)[0])
        assert job.keys(1) == [(1, 0, 0)]
        assert job.tasks[1, 0, 0].worker == ("b" if kept == "a" else "a")


def test_a_stream_of_large_ones_does_not_starve_a_small_one():
    job = sources(20, 3, groups=(HEAVY, LIGHT))
    job.worker("a", FOUR)
    job.start()
    started = finish_in_turn(job)
    assert max(place for place, key in enumerate(started) if key[0] == 1) < 12


def test_what_is_kept_for_a_request_that_is_gone_is_free_again():
    """The large one is restarted with a delay while a worker is being emptied for it: the small ones must go on."""
    builder = GraphBuilder("gone", LIGHT, HEAVY)
    builder.source([1] * 30, parallelism=30, slot_sharing_group="light")
    b = builder.source([1] * 2, parallelism=2, slot_sharing_group="light")
    builder.step((b, ShipStrategy.HASH), parallelism=1, slot_sharing_group="heavy")
    job = plane(builder.graph, restart_strategy__fixed_delay__delay="1 h")
    job.worker("a", FOUR)
    job.start()
    job.run(1)
    finish_in_turn(job, lambda: bool(job.decisions("slot reservation")))
    job.worker("b", WorkerResources(1.0, GIB))
    job.run()
    assert job.status == "FINISHED"


@pytest.mark.parametrize("seed", range(12))
def test_any_mix_of_groups_finishes_on_one_slot_that_fits_the_largest(seed):
    rng = random.Random(seed)
    sizes = [(rng.choice([0.5, 1.0, 2.0, 3.5]), rng.randint(1, 4)) for _ in range(rng.randint(1, 4))]
    groups = [SlotSharingGroup(f"g{k}", cores, memory * GIB) for k, (cores, memory) in enumerate(sizes)]
    names = [group.name for group in groups] + ["default"] * rng.randrange(2)
    builder = GraphBuilder("mix", *groups)
    for number in range(rng.randint(2, 6)):
        inputs = [
            (p, rng.choice([ShipStrategy.HASH, ShipStrategy.RESCALE])) for p in range(number) if rng.random() < 0.4
        ]
        fields = {"slot_sharing_group": names[number % len(names)], "parallelism": rng.randint(1, 5)}
        if inputs:
            builder.step(*inputs, **fields)
        else:
            builder.source([10] * 5, **fields)
    options = rng.choice([{}, DEFAULT])
    job = plane(builder.graph, **options)
    most = WorkerResources(max(c for c, _ in sizes), max(m for _, m in sizes) * GIB)
    job.worker("only", most, slots=max(1, int(most.cpu_cores)))
    job.start()
    for _ in range(MOST_EVENTS):
        if job.ended is not None:
            break
        if job.tasks:
            job.finish(rng.choice(sorted(job.tasks)))
        else:
            assert job.timers, "\n".join(waits_of(job.scheduler))
            job.fire(min(job.timers, key=job.timers.__getitem__))
    assert job.status == "FINISHED"


# --- mirrors and blocked nodes -----------------------------------------------------------------------------------


def test_a_mirror_gets_a_slot_before_those_that_wait_and_on_another_node():
    job = sources(12, groups=(LIGHT,), **SPECULATIVE)
    job.worker("a", TWO, node="node-a")
    job.worker("b", TWO, node="node-b")
    job.start()
    keys = job.keys(0)
    for key in keys:
        job.launch(key, node="node-a" if job.tasks[key].worker == "a" else "node-b", worker=job.tasks[key].worker)
    slow = next(key for key in keys if job.tasks[key].worker == "a")
    job.slow(slow)
    assert job.blocked == ("node-a",)
    mirror = (0, slow[1], 1)
    assert mirror not in job.tasks, "no slot yet"
    job.finish(next(key for key in keys if job.tasks[key].worker == "a" and key != slow))
    assert job.running_on("a") == [slow], "a blocked node gives no slots"
    job.finish(next(key for key in keys if key in job.tasks and job.tasks[key].worker == "b"))
    assert job.tasks[mirror].worker == "b"
    job.check_workers()
    job.finish(mirror)
    assert job.tasks[slow].cancelled and "a" in {job.tasks[key].worker for key in job.tasks}
    before = int(job.scheduler.allocator.num_slots.sum())
    job.confirm_cancel(slow)
    assert int(job.scheduler.allocator.num_slots.sum()) == before - 1, "its slot was held until it was gone"


# --- regions -----------------------------------------------------------------------------------------------------


def test_executions_that_share_a_task_share_a_slot():
    job = pipelined("light", "light")
    job.worker("a", FOUR)
    job.start()
    assert len(job.keys(0)) == len(job.keys(1)) == 4, "four slots hold eight executions"
    parts = job.regions[0].parts
    assert (
        [parts[0].slots.executors[k] for k in range(4)] == [parts[1].slots.executors[k] for k in range(4)] == ["a"] * 4
    )
    slots = parts[0].slots.shared.tolist()
    assert slots == parts[1].slots.shared.tolist() and len(set(slots)) == 4, "the plane is told who shares one"
    assert parts[0].select(np.array([1])).slots.shared.tolist() == slots[1:2]
    job.finish((0, 0, 0))
    assert len(job.keys(0)) == 3, "its consumer still holds the slot"
    job.finish((1, 0, 0))
    assert len(job.keys(0)) == 4
    job.finish((0, 1, 0), (0, 2, 0))
    assert int(job.scheduler.allocator.num_slots.sum()) == 4, "of both the consumers are still there"
    job.run()
    assert job.status == "FINISHED"


def test_of_a_region_with_an_all_to_all_edge_the_plane_is_told_who_shares_a_slot():
    """The pool does not look at which of the last vertex' subtasks read the first one's rows."""
    job = plane(ring(SlotSharingGroup("gpu", 1.0, GIB, external_resources={"gpu": 1.0})), **DEFAULT)
    addresses = {"gpu": ("0", "1", "2", "3")}
    job.worker("a", WorkerResources(4.0, 8 * GIB, {"gpu": 4.0}, addresses=addresses))
    job.start()
    first, second, last = (part.slots for part in job.regions[0].parts)
    assert first.shared.tolist() == second.shared.tolist() == last.shared.tolist()[:1]
    assert len(set(last.shared.tolist())) == 4
    assert [held["gpu"] for held in last.addresses] == [("0",), ("1",), ("2",), ("3",)]
    assert first.addresses[0] == second.addresses[0] == last.addresses[0]


def chain(builder, first, *others):
    """A source of one subtask and steps behind it, each of its slot sharing group."""
    last = builder.source([1], parallelism=1, slot_sharing_group=first)
    for name in others:
        edge = (last, ShipStrategy.FORWARD, ResultPartitionType.PIPELINED)
        last = builder.step(edge, parallelism=1, slot_sharing_group=name)


def test_steps_of_one_group_with_one_of_another_between_them_share_no_slot():
    groups = [SlotSharingGroup("outer", 1.0, GIB), SlotSharingGroup("inner", 1.0, GIB)]
    builder = GraphBuilder("between", *groups)
    chain(builder, "outer", "inner", "outer")
    job = plane(builder.graph, **DEFAULT)
    job.worker("a", FOUR)
    job.start()
    assert len({int(part.slots.shared[0]) for part in job.regions[0].parts}) == 3
    assert int(job.scheduler.allocator.num_slots.sum()) == 3


def test_a_region_that_first_fit_cannot_place_is_placed_where_nothing_else_runs():
    """The first takes a, the only worker with memory for the third."""
    groups = [
        SlotSharingGroup("g0", 1.0, GIB),
        SlotSharingGroup("g1", 2.0, 2 * GIB),
        SlotSharingGroup("g2", 1.0, 3 * GIB),
    ]
    builder = GraphBuilder("packed", *groups)
    chain(builder, "g0", "g1", "g2")
    job = plane(builder.graph, **DEFAULT)
    for name, cores, memory in (("a", 1.0, 4), ("b", 3.0, 2), ("c", 2.0, 2)):
        job.worker(name, WorkerResources(cores, memory * GIB))
    job.start()
    assert [job.tasks[vertex, 0, 0].worker for vertex in range(3)] == ["b", "c", "a"]
    job.run()
    assert job.status == "FINISHED"


def test_cores_that_others_hold_for_now_do_not_let_time_run_for_a_region():
    job = pipelined("light", "third", count=1)
    job.worker("a", FOUR)
    job.send(e.WorkersOccupied(at=job.tick(), executors=("a",), cores=np.array([3.0])))
    job.start()
    assert not job.tasks and not requests(job)
    job.send(e.WorkersOccupied(at=job.tick(), executors=(), cores=np.array([])))
    job.run()
    assert job.status == "FINISHED"


def test_regions_of_several_tasks_get_all_their_slots_or_none():
    job = pipelined("light", "third")
    job.worker("a", FOUR)
    job.start()
    assert len(job.keys(0)) == len(job.keys(1)) == 1, "1 + 1.5 cores each"
    assert any("1 GiB" in line and "at once" in line for line in waits_of(job.scheduler))
    job.worker("b", TWO)
    assert len(job.keys(0)) == len(job.keys(1)) == 2
    job.run()
    assert job.status == "FINISHED"


def test_a_region_that_no_workers_can_hold_together_does_not_wait_for_ever():
    builder = GraphBuilder("wide", LIGHT)
    a = builder.source([1] * 6, parallelism=6, slot_sharing_group="light")
    builder.step((a, ShipStrategy.HASH, ResultPartitionType.PIPELINED), parallelism=6, slot_sharing_group="light")
    job = plane(builder.graph, **DEFAULT, slot__request__timeout="60 s")
    job.worker("a", FOUR)
    job.start()
    assert not job.tasks and requests(job)[-1].result == "waits"
    assert "6 times 1 core" in requests(job)[-1].reason
    job.worker("b", TWO)
    assert len(job.keys(0)) == len(job.keys(1)) == 6

"""Jobs whose groups have resources: who waits for what, who gives up, nobody starves, and what was held is on record."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.scheduler_kit import Chaos, GraphBuilder, Plane, drive, ints, plane, random_graph, random_sizes

from firesteel.graph.job_graph import ResultPartitionType, ShipStrategy
from firesteel.graph.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler import events as e
from firesteel.scheduler import records as r
from firesteel.scheduler.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.scheduler.retired_workers import MOST_RETIRED
from firesteel.scheduler.states import ExecutionState

GIB = 1 << 30
LIGHT = SlotSharingGroup("light", 1.0, GIB)
HEAVY = SlotSharingGroup("heavy", 4.0, 2 * GIB)
FOUR = WorkerResources(4.0, 8 * GIB)
TWO = WorkerResources(2.0, 8 * GIB)
SPECULATIVE = {"jobmanager__adaptive-batch-scheduler__speculative__enabled": "true"}
DEFAULT = {"jobmanager__scheduler": "Default"}
MOST_EVENTS = 2000


def sources(*counts, groups=(LIGHT, HEAVY), mode=None, **options) -> Plane:
    """A source of the ``k``-th group with so many subtasks, for each of the counts."""
    builder = GraphBuilder("sources", *groups)
    for group, count in zip(groups, counts, strict=True):
        builder.source([100] * count, parallelism=count, slot_sharing_group=group.name)
    return plane(builder.graph, slot_mode=mode, **options)


def requests(job) -> list[r.Decision]:
    return job.decisions("slot request")


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
    assert job.scheduler.waiting_for()[-1] == (
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
    assert job.scheduler.waiting_for()[-1].startswith(f"{begin} (none is there).")
    job.worker("w", TWO, profile=ResourceProfile.of(LIGHT))
    assert job.scheduler.waiting_for()[-1].startswith(f"{begin} (there is 1 executor, of other profiles).")


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
    (line,) = (line for line in job.scheduler.waiting_for() if line.startswith("Group"))
    assert "waits for 1 slot of 4 cores, 2 GiB heap: 1 worker could hold one, but it has no room now" in line
    one = sources(1, groups=(HEAVY,))
    one.worker("w", FOUR)
    one.start()
    assert not any(line.startswith("Group") for line in one.scheduler.waiting_for())


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
    assert any("gives up in 1 min" in line for line in job.scheduler.waiting_for())
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
    assert any("'other'" in line and "1 worker could hold one" in line for line in job.scheduler.waiting_for())
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


def test_workers_on_blocked_nodes_do_not_stop_the_time():
    job = sources(2, 1, **SPECULATIVE)
    job.worker("a", FOUR, node="node-a")
    job.worker("b", TWO, node="node-b")
    job.start()
    for key in job.keys(0):
        job.launch(key, node="node-a", worker="a")
    assert not requests(job), "a worker is large enough"
    job.slow((0, 0, 0))
    assert requests(job)[-1].result == "waits" and "1 worker on blocked nodes" in requests(job)[-1].reason


def test_two_steps_of_a_group_wait_together():
    builder = GraphBuilder("two", HEAVY)
    for _ in range(2):
        builder.source([1] * 3, parallelism=3, slot_sharing_group="heavy")
    job = plane(builder.graph)
    job.worker("a", FOUR)
    job.start()
    assert job.scheduler.waiting_for()[-1] == (
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
    raise AssertionError("\n".join(job.scheduler.waiting_for()))


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
            assert job.timers, "\n".join(job.scheduler.waiting_for())
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


def pipelined(first, second, count=5, **fields):
    builder = GraphBuilder("regions", LIGHT, HEAVY, SlotSharingGroup("third", 1.5, GIB))
    a = builder.source([1] * count, parallelism=count, slot_sharing_group=first)
    edge = (a, ShipStrategy.FORWARD, ResultPartitionType.PIPELINED)
    builder.step(edge, parallelism=count, slot_sharing_group=second, **fields)
    return plane(builder.graph, **DEFAULT)


def test_executions_that_share_a_task_share_a_slot():
    job = pipelined("light", "light")
    job.worker("a", FOUR)
    job.start()
    assert len(job.keys(0)) == len(job.keys(1)) == 4, "four slots hold eight executions"
    parts = job.regions[0].parts
    assert (
        [parts[0].slots.executors[k] for k in range(4)] == [parts[1].slots.executors[k] for k in range(4)] == ["a"] * 4
    )
    job.finish((0, 0, 0))
    assert len(job.keys(0)) == 3, "its consumer still holds the slot"
    job.finish((1, 0, 0))
    assert len(job.keys(0)) == 4
    job.finish((0, 1, 0), (0, 2, 0))
    assert int(job.scheduler.allocator.num_slots.sum()) == 4, "of both the consumers are still there"
    job.run()
    assert job.status == "FINISHED"


def test_a_region_that_first_fit_cannot_place_is_placed_where_nothing_else_runs():
    """The first takes a, the only worker with memory for the third."""
    groups = [
        SlotSharingGroup("g0", 1.0, GIB),
        SlotSharingGroup("g1", 2.0, 2 * GIB),
        SlotSharingGroup("g2", 1.0, 3 * GIB),
    ]
    builder = GraphBuilder("packed", *groups)
    last = builder.source([1], parallelism=1, slot_sharing_group="g0")
    for name in ("g1", "g2"):
        edge = (last, ShipStrategy.FORWARD, ResultPartitionType.PIPELINED)
        last = builder.step(edge, parallelism=1, slot_sharing_group=name)
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
    assert any("1 GiB" in line and "at once" in line for line in job.scheduler.waiting_for())
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


# --- usage -------------------------------------------------------------------------------------------------------


def test_what_is_held_is_on_record_to_the_second():
    job = sources(3, groups=(SlotSharingGroup("g", 2.0, GIB),))
    job.worker("a", FOUR)
    job.start()
    launched = {}
    spent = 0.0
    while job.ended is None:
        for key in list(job.tasks):
            if key not in launched:
                job.launch(key, worker="a")
                launched[key] = job.now
        job.now += 1.5
        key = next(iter(job.tasks))
        job.finish(key)
        spent += job.now - launched[key]
    usage = [record for record in job.records if isinstance(record, r.SlotUsage)]
    assert usage[0].profile == {"cpu_cores": 2.0, "task_heap_memory": GIB} and not usage[1].profile
    assert (usage[0].asked, usage[0].held) == (3, 0)
    assert (usage[1].asked, usage[1].held) == (1, 1), "one is over, and the third has its slot"
    last = usage[-1]
    assert (last.asked, last.held) == (0, 0)
    assert last.core_seconds == pytest.approx(2 * spent, abs=1e-3)
    assert last.gib_seconds == pytest.approx(spent, abs=1e-3)
    assert job.scheduler.metrics.job.read()["numSlotsHeld"] == 0


def test_records_of_use_are_few():
    job = sources(400, groups=(LIGHT,))
    job.check = False
    job.worker("a", FOUR)
    job.start()
    while job.ended is None:
        key = next(iter(job.tasks))
        job.launch(key, worker="a")
        job.finish(key)
    usage = [record for record in job.records if isinstance(record, r.SlotUsage)]
    assert job.now > 8 and len(usage) <= 2 + job.now / 0.5


def test_a_finish_that_tells_its_own_times_counts_those():
    job = sources(1, groups=(LIGHT,))
    job.worker("a", FOUR)
    job.start()
    started = job.now
    job.now = 10.0
    report = e.ExecutionReports.of(ints(1), times=(2.0, 3.0, 7.0), peak_memory=ints(5 * (1 << 20) + 1))
    job.tasks.clear()
    job.admitted[0, 0] = (0, 1)
    job.read[0, 0, 1] = {}
    job.send(e.ExecutionsFinished(at=10.0, vertex=0, subtasks=ints(0), attempts=ints(0), reports=report))
    last = [record for record in job.records if isinstance(record, r.SlotUsage)][-1]
    assert last.core_seconds == pytest.approx(5.0)
    assert last.waited_seconds == pytest.approx(2.0 - started), "until it was launched, not until that was told"
    (change,) = [c for c in job.records if isinstance(c, r.StateChange) and c.state == "FINISHED"]
    assert change.peaks == [6]


def test_who_waits_in_vain_has_waited_to_the_end():
    job = sources(2, groups=(SlotSharingGroup("g", 4.0, GIB),))
    job.worker("a", FOUR)
    job.start()
    started = job.now
    job.launch((0, 0, 0), worker="a")
    job.now = 50.0
    job.send(e.CancelRequested(at=50.0, reason="enough"))
    last = [record for record in job.records if isinstance(record, r.SlotUsage)][-1]
    assert last.waited_seconds == pytest.approx(50.0 - started)


def test_several_that_finish_at_once_count_their_own_times_launched_or_not():
    job = sources(2, groups=(SlotSharingGroup("g", 2.0, GIB),))
    job.worker("a", FOUR)
    job.start()
    job.launch((0, 0, 0), worker="a")
    job.now = 10.0
    begun = job.scheduler.executions.stamps[ExecutionState.DEPLOYING][0]
    report = e.ExecutionReports.of(ints(1, 1), times=(begun, 3.0, 7.0))
    job.tasks.clear()
    for subtask in range(2):
        job.admitted[0, subtask] = (0, 1)
        job.read[0, subtask, 1] = {}
    job.send(e.ExecutionsFinished(at=10.0, vertex=0, subtasks=ints(0, 1), attempts=ints(0, 0), reports=report))
    last = [record for record in job.records if isinstance(record, r.SlotUsage)][-1]
    assert last.core_seconds == pytest.approx(2 * 2 * (7.0 - begun))


def test_cancelled_executions_are_counted_until_they_are_gone():
    job = sources(2, groups=(LIGHT,))
    job.worker("a", FOUR)
    job.start()
    job.launch((0, 0, 0), worker="a")
    begun = job.now
    job.send(e.CancelRequested(at=job.tick()))
    job.now += 5
    job.confirm_cancel((0, 1, 0))  # was never launched
    job.confirm_cancel((0, 0, 0))
    last = [record for record in job.records if isinstance(record, r.SlotUsage)][-1]
    assert job.status == "CANCELED" and last.core_seconds == pytest.approx(job.now - begun, abs=1e-3)
    assert np.isclose(last.gib_seconds, last.core_seconds)


# --- parallelism -------------------------------------------------------------------------------------------------


def decided(bounded=True, group="heavy", **options):
    """A step behind a source whose bytes ask for a parallelism of 32."""
    builder = GraphBuilder("bounded", LIGHT, HEAVY)
    a = builder.source([1] * 2, parallelism=2, slot_sharing_group="light")
    builder.step((a, ShipStrategy.HASH), slot_sharing_group=group)
    wanted = {"jobmanager__adaptive_batch_scheduler__avg_data_volume_per_task": "10 b"}
    job = plane(builder.graph, firesteel__decider__bounded_by_slots=str(bounded).lower(), **wanted, **options)
    job.worker("a", WorkerResources(17.0, 64 * GIB))
    job.worker("b", WorkerResources(9.0, 3 * GIB), node="elsewhere")
    job.start()
    job.run(0)
    return job


def test_a_parallelism_is_at_most_the_slots_that_its_group_can_get_at_once():
    job = decided()
    (decision,) = job.decisions("parallelism")
    assert job.parallelism(1) == decision.result["parallelism"] == 5, "four slots of a, and b has memory for one"
    assert "the 5 slots of group 'heavy'" in decision.bounds
    assert decided(bounded=False).parallelism(1) > 5


def test_slots_bound_by_count_and_sources_too():
    job = decided(firesteel__decider__cut="by-count")
    assert job.parallelism(1) == 5
    builder = GraphBuilder("source", HEAVY)
    builder.source([1 << 30] * 50, slot_sharing_group="heavy")
    job = plane(builder.graph, firesteel__decider__bounded_by_slots="true")
    job.worker("a", WorkerResources(17.0, 64 * GIB))
    job.start()
    (decision,) = job.decisions("source parallelism")
    assert decision.result == 4 and decision.bounds == ["the 4 slots of group 'heavy'"]


def test_slots_bound_a_forward_group_by_its_largest_member():
    builder = GraphBuilder("forward", LIGHT, HEAVY)
    first = builder.source([1 << 30] * 50, slot_sharing_group="light")
    builder.step((first, ShipStrategy.FORWARD), slot_sharing_group="heavy")
    job = plane(builder.graph, firesteel__decider__bounded_by_slots="true")
    job.worker("a", WorkerResources(17.0, 64 * GIB))
    job.start()
    assert job.parallelism(0) == 4
    assert job.decisions("source parallelism")[0].bounds == ["the 4 slots of group 'heavy'"]


def test_without_resources_the_slots_of_the_nodes_bound():
    builder = GraphBuilder("coarse")
    builder.source([1 << 30] * 50)
    job = plane(builder.graph, firesteel__decider__bounded_by_slots="true")
    job.worker("a", slots=3)
    job.worker("b", slots=4)
    job.start()
    assert job.decisions("source parallelism")[0].bounds == ["the 7 slots of group 'default'"]


def test_a_source_makes_use_of_the_slots_that_its_group_has():
    builder = GraphBuilder("source", HEAVY)
    builder.source([1 << 20] * 50, slot_sharing_group="heavy")
    job = plane(builder.graph)
    job.worker("a", WorkerResources(17.0, 64 * GIB))
    job.start()
    assert job.parallelism(0) == 4 and "4 slots" in job.decisions("source parallelism")[0].reason


# --- workers that begin otherwise --------------------------------------------------------------------------------


def test_what_a_retired_worker_hands_back_is_sent_again_at_once_and_not_charged():
    job = sources(3, groups=(LIGHT,), restart_strategy__type="none")
    job.worker("a", TWO)
    job.start()
    job.hand_back((0, 0, 0), retired=True)
    assert job.keys(0) == [(0, 0, 1), (0, 1, 0)]
    assert job.scheduler.metrics.num_restarts.value == 0
    assert "other external resources" in job.decisions("retired worker")[0].reason
    job.send(job.sent[-1])  # twice
    assert job.keys(0) == [(0, 0, 1), (0, 1, 0)]
    job.run()
    assert job.status == "FINISHED"


def test_a_mirror_that_meets_a_retired_worker_is_replaced_beside_its_original():
    job = sources(1, groups=(LIGHT,), **SPECULATIVE)
    job.worker("a", TWO, node="node-a")
    job.worker("b", TWO, node="node-b")
    job.start()
    job.launch((0, 0, 0), node="node-a", worker="a")
    job.slow((0, 0, 0))
    job.hand_back((0, 0, 1), node="node-b", retired=True)
    assert job.keys(0) == [(0, 0, 0), (0, 0, 2)]
    assert job.scheduler.graph.vertices[0][0].get_current_execution(2).is_mirror
    job.finish((0, 0, 2))
    job.run()
    assert job.status == "FINISHED"


def test_meeting_retired_workers_for_ever_is_a_failure():
    job = sources(1, groups=(LIGHT,), restart_strategy__type="none")
    job.worker("a", TWO)
    job.start()
    for attempt in range(MOST_RETIRED):
        job.hand_back((0, 0, attempt), retired=True)
    assert job.status == "RUNNING"
    job.hand_back((0, 0, MOST_RETIRED), retired=True)
    assert job.status == "FAILED" and "50 Python workers" in job.ended.cause.message


def test_a_region_whose_task_met_a_retired_worker_runs_again_as_a_whole():
    job = pipelined("light", "light", count=1)
    job.worker("a", FOUR)
    job.start()
    job.hand_back((0, 0, 0), retired=True)
    job.hand_back((1, 0, 0), retired=True)
    assert job.keys(0) == [(0, 0, 1)] and job.keys(1) == [(1, 0, 1)]
    assert int(job.scheduler.allocator.num_slots.sum()) == 1
    job.run()
    assert job.status == "FINISHED"


# --- chaos -------------------------------------------------------------------------------------------------------

CHAOS = Chaos(
    user=0.02,
    innocent=0.02,
    worker=0.03,
    lost=0.02,
    lose=0.02,
    double=0.1,
    other_token=0.02,
    foreign_cancel=0.01,
    executors=0.08,
    slow=0.05,
    hand_back=0.1,
)


@pytest.mark.parametrize("seed", range(24))
def test_whatever_goes_wrong_the_books_are_right_and_the_job_ends(seed):
    """``validate`` recounts all books after each event."""
    rng = random.Random(seed)
    kind = ("AdaptiveBatch", "Speculative", "Default")[seed % 3]
    groups = [SlotSharingGroup(f"g{k}", rng.choice([0.5, 1.0, 3.0]), rng.randint(1, 3) * GIB) for k in range(3)]
    graph = random_graph(rng, pipelined=0.4 if kind == "Default" else 0.0)
    graph.slot_sharing_groups = {group.name: group for group in groups}
    for vertex in graph.vertices:
        vertex.slot_sharing_group = rng.choice([*graph.slot_sharing_groups, "default"])
    graph.vertices[0].slot_sharing_group = "g0"
    mode = SlotMode(rng.choice([*SlotEnforcement]), grows=True)
    options = {"AdaptiveBatch": {}, "Speculative": SPECULATIVE, "Default": DEFAULT}[kind]
    job = plane(
        graph, slot_mode=mode, sizes=random_sizes(rng), restart_strategy__fixed_delay__attempts="1000", **options
    )
    # A region needs all its slots at once; single executions get along with one of the largest size.
    base = WorkerResources(40.0, 60 * GIB) if kind == "Default" else WorkerResources(3.0, 3 * GIB)
    job.worker("base", base, slots=30 if kind == "Default" else 2)
    drive(job, rng, CHAOS)
    assert job.status == "FINISHED"

"""Jobs whose groups have resources: what was held, how parallel they are, workers that retire, faults."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.groups_kit import DEFAULT, FOUR, GIB, HEAVY, LIGHT, SPECULATIVE, TWO, pipelined, sources
from tests.scheduler_kit import FaultInjection, GraphBuilder, drive, ints, plane, random_graph, random_sizes

from firesteel.model.job_graph import ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.failover.retired_workers import MOST_RETIRED
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.slots.resource_profile import SlotEnforcement, SlotMode, WorkerResources

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
    begun = job.scheduler.executions.stamps[ExecutionState.DEPLOYING].item(0)
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
    assert job.parallelism(1) == 4, "5 slots, as a power of two"
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
    job.reject((0, 0, 0), retired=True)
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
    job.reject((0, 0, 1), node="node-b", retired=True)
    assert job.keys(0) == [(0, 0, 0), (0, 0, 2)]
    assert job.scheduler.graph.vertices[0][0].current_executions[-1].is_mirror
    job.finish((0, 0, 2))
    job.run()
    assert job.status == "FINISHED"


def test_meeting_retired_workers_for_ever_is_a_failure():
    job = sources(1, groups=(LIGHT,), restart_strategy__type="none")
    job.worker("a", TWO)
    job.start()
    for attempt in range(MOST_RETIRED):
        job.reject((0, 0, attempt), retired=True)
    assert job.status == "RUNNING"
    job.reject((0, 0, MOST_RETIRED), retired=True)
    assert job.status == "FAILED" and "50 Python workers" in job.ended.cause.message


def test_a_region_whose_task_met_a_retired_worker_runs_again_as_a_whole():
    job = pipelined("light", "light", count=1)
    job.worker("a", FOUR)
    job.start()
    job.reject((0, 0, 0), retired=True)
    job.reject((1, 0, 0), retired=True)
    assert job.keys(0) == [(0, 0, 1)] and job.keys(1) == [(1, 0, 1)]
    assert int(job.scheduler.allocator.num_slots.sum()) == 1
    job.run()
    assert job.status == "FINISHED"


# --- fault injection -------------------------------------------------------------------------------------------------------

FAULTS = FaultInjection(
    user=0.02,
    uncounted=0.02,
    worker=0.03,
    lost=0.02,
    lose=0.02,
    double=0.1,
    other_token=0.02,
    foreign_cancel=0.01,
    executors=0.08,
    slow=0.05,
    reject=0.1,
)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < 9 else pytest.mark.full) for n in range(24)])
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
    drive(job, rng, FAULTS)
    assert job.status == "FINISHED"

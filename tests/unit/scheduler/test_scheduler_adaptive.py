"""How the graph grows and what is scheduled when: FLIP-187's cases, and the default scheduler beside it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, attempts_of, plane, split_lists, waits_of

from firesteel.errors import UsageError
from firesteel.model.job_graph import JobEdge, ResultPartitionType, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.growth import AdaptiveGrowth
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.events import CancelRequested, ExecutionsDeploying, ExecutorChanged, JobStarted
from firesteel.scheduler.kernel.records import MetricsSnapshot
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption, Slots

HASH, RESCALE, FORWARD = ShipStrategy.HASH, ShipStrategy.RESCALE, ShipStrategy.FORWARD
BROADCAST, GLOBAL, REBALANCE = ShipStrategy.BROADCAST, ShipStrategy.GLOBAL, ShipStrategy.REBALANCE
MIB = 1 << 20


def two_steps(ship, splits=2, **consumer):
    builder = GraphBuilder()
    builder.source([100] * splits, parallelism=splits)
    builder.step((0, ship), **consumer)
    return builder.graph


def deployed(p, vertex):
    return [subtask for subtask, _ in attempts_of(p.deploys, vertex)]


def test_seed_case_a1_a2_b1_b2():
    """A1 finishes first: nothing is scheduled, B is not there. A2 finishes: B2 as its consumer, B1 as newly added."""
    p = plane(two_steps(RESCALE, parallelism=2), sizes=lambda _v, _s, _d, n: np.full(n, 100)).start()
    p.finish((0, 0, 0))
    assert p.deploys[1:] == [] and not p.scheduler.graph.vertices[1].is_initialized
    p.finish((0, 1, 0))
    assert deployed(p, 1) == [0, 1]
    assert len(p.scheduler.graph.vertices[1].inputs[0]) == 2, "a group per block"


def test_the_graph_starts_empty_and_the_job_ends_only_with_every_registered_vertex():
    p = plane(two_steps(HASH))
    assert [v.is_initialized for v in p.scheduler.graph.vertices] == [False, False]
    p.start()
    assert [v.is_initialized for v in p.scheduler.graph.vertices] == [True, False]
    p.finish((0, 0, 0), (0, 1, 0))
    assert p.status == "RUNNING", "all executions there are have finished, but vertex 1 has not"
    p.run()
    assert p.status == "FINISHED" and p.ended is p.commands[-1]


def test_a_vertex_is_decided_from_what_its_inputs_produced():
    p = plane(
        two_steps(HASH),
        sizes=lambda _v, s, _d, n: np.full(n, 10 * (s + 1)),
        data_volume_per_task=1000,
        max_parallelism=16,
    )
    p.start().run(0)
    (decision,) = p.decisions("parallelism")
    assert p.parallelism(1) == 2 and decision.vertex == 1 and decision.inputs["bytes"] == [64 * 30]
    deploy = p.deploys[-1]
    assert deploy.input_bytes.tolist() == [960, 960] and deploy.subpartitions == {}
    assert deploy.gates[0].num_subpartitions == 64 and deploy.gates[0].tokens.tolist() == [1, 2]


@pytest.mark.parametrize("options", [{}, {"jobmanager.scheduler": "Default"}])
def test_a_source_with_a_broadcast_beside_is_a_source_that_waits_for_it(options):
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2)
    builder.source([100] * 6)
    builder.graph.vertices[1].inputs.append(JobEdge(builder.dataset(0, BROADCAST), 0))
    p = plane(builder.graph, data_volume_per_task=200, **options).start()
    assert p.parallelism(1) == 3, "from its splits"
    assert deployed(p, 1) == []
    p.run(0)
    assert deployed(p, 1) == [0, 1, 2]
    deploy = p.deploys[-1]
    assert split_lists(deploy.splits) == [[0, 1], [2, 3], [4, 5]]
    assert deploy.ranges[0].of(2).tolist() == [[0, 2, 0, 1]]
    assert p.run().status == "FINISHED"


def test_a_broadcast_has_one_subpartition_that_all_read():
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3), builder.source([1] * 2, parallelism=2)
    builder.step((0, HASH), (1, BROADCAST), parallelism=4)
    p = plane(builder.graph).start()
    p.run(0), p.run(1)
    gate = p.deploys[-1].gates[1]
    assert gate.is_broadcast and gate.num_subpartitions == 1
    for k in range(4):
        assert p.deploys[-1].ranges[1].of(k).tolist() == [[0, 2, 0, 1]]


def test_sizes_of_what_nobody_consumes_are_not_kept_row_by_row():
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3)
    builder.dataset(0, GLOBAL, persistent=True)
    p = plane(builder.graph).start().run()
    info = p.scheduler.graph.result(0).info
    assert p.status == "FINISHED" and info.kept_row_bytes == 0 and info.num_bytes_produced == 30


def test_single_consumers_are_gathered_into_few_deployments():
    n = 100
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n)
    builder.step((0, FORWARD))
    p = plane(builder.graph).start()
    while p.keys(0):
        p.finish(p.keys(0)[0])  # one each hundredth of a second
        for timer in [t for t, at in p.timers.items() if at <= p.now]:
            p.fire(timer)
    deploys = [d for d in p.deploys if d.vertex == 1]
    assert len(deploys[0].subtasks) == 1, "the first one does not wait"
    assert len(deploys) <= n * 0.01 / 0.1 + 2
    assert p.run().status == "FINISHED" and sum(len(d.subtasks) for d in deploys) == n


class FewSlots(Slots):
    """Grants so many slots at a time."""

    def __init__(self, slots):
        self.free = slots

    def allocate_slots_for(self, option):
        n = min(self.free, len(option.subtasks))
        self.free -= n
        return ExecutionDeploymentOption(option.vertex, option.subtasks[:n], option.executions[:n])

    def ended(self, rows):
        self.free += len(rows)


def test_what_gets_no_slot_is_deployed_when_there_is_one():
    builder = GraphBuilder()
    builder.source([1] * 5, parallelism=5)
    builder.step((0, HASH), parallelism=3)
    p = Plane(Scheduler(Job(builder.graph, Options({}), Inputs(), DirectInputs()), FewSlots(2))).start()
    assert deployed(p, 0) == [0, 1]
    assert "subtasks 2, 3, 4 waiting for a slot" in waits_of(p.scheduler)[1]
    p.finish((0, 0, 0))
    assert deployed(p, 0) == [0, 1, 2]
    assert p.run().status == "FINISHED"


def test_forward_groups_share_one_parallelism_and_single_tasks_go_ahead():
    builder = GraphBuilder()
    builder.source([100] * 3, parallelism=3)
    builder.step((0, FORWARD))
    builder.step((1, FORWARD))
    p = plane(builder.graph).start()
    assert [p.parallelism(v) for v in range(3)] == [3, 3, 3]
    assert [d.reason for d in p.decisions("parallelism")] == [
        "3 subtasks, as its forward group; cut by count, before its inputs were there"
    ] * 2
    p.finish((0, 1, 0))
    assert deployed(p, 1) == [1] and deployed(p, 2) == []
    gate, ranges = p.deploys[-1].gates[0], p.deploys[-1].ranges[0]
    assert (gate.partitions.tolist(), gate.tokens.tolist(), ranges.rects.tolist()) == ([1], [1], [[1, 2, 0, 1]])
    p.finish((1, 1, 0))
    assert deployed(p, 2) == [1]


def test_the_first_decided_member_decides_for_its_forward_group():
    builder = GraphBuilder()
    builder.source([100] * 2, parallelism=2)
    builder.step((0, HASH))
    builder.step((1, FORWARD), (0, HASH), max_parallelism=3)
    p = plane(builder.graph, sizes=lambda _v, _s, _d, n: np.full(n, 100), data_volume_per_task=100).start()
    p.run(0)
    assert p.parallelism(1) == 3, "the smallest maximum of the group"
    p.run(1)
    assert p.parallelism(2) == 3


def test_policies_are_told_of_new_vertices_and_splits_are_assigned_with_them():
    told = []

    p = plane(two_steps(HASH, splits=2))
    p.scheduler.job.hooks.initialized.append(
        lambda new: told.append((list(new), [v.id for v in p.scheduler.graph.vertices if v.is_initialized]))
    )
    p.start().run()
    assert told == [([0], [0]), ([1], [0, 1])]
    assert [d.vertex for d in p.decisions("split assignment")] == [0]
    assert split_lists(p.deploys[0].splits) == [[0], [1]] and p.deploys[1].splits is None


def test_a_source_is_inferred_from_its_splits():
    builder = GraphBuilder()
    builder.source([10 * MIB] * 10)
    p = plane(builder.graph, data_volume_per_task="25 MiB").start()
    assert p.parallelism(0) == 4
    assert sorted(p.deploys[0].splits.indexes.tolist()) == list(range(10))
    assert p.deploys[0].input_bytes.sum() == 100 * MIB


def test_a_source_without_splits_has_one_idle_subtask():
    builder = GraphBuilder()
    builder.source([])
    assert plane(builder.graph).start().run().status == "FINISHED"


def test_parallelism_default_caps_what_is_decided_unless_the_maximum_is_set():
    sizes = lambda _v, _s, _d, n: np.full(n, 100)  # noqa: E731
    p = plane(two_steps(HASH), sizes=sizes, data_volume_per_task=1, parallelism__default=2).start().run()
    assert p.parallelism(1) == 2
    p = (
        plane(two_steps(HASH), sizes=sizes, data_volume_per_task=1, parallelism__default=2, max_parallelism=5)
        .start()
        .run()
    )
    assert p.parallelism(1) == 5


def test_inputs_keyed_together_get_equally_many_subpartitions():
    builder = GraphBuilder()
    builder.source([1]), builder.source([1])
    builder.step((0, HASH), (1, HASH))
    builder.step((0, HASH), parallelism=700)
    p = plane(builder.graph, max_parallelism=8).start()
    assert {d.inputs["dataset"]: d.result for d in p.decisions("subpartitions")} == {0: 700, 1: 700}
    p.run()
    assert p.status == "FINISHED" and p.parallelism(3) == 700


def test_a_diamond_with_a_result_read_twice():
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2)
    builder.step((0, HASH))
    builder.step((0, HASH), (1, REBALANCE))
    p = plane(builder.graph).start()
    p.run(0)
    assert deployed(p, 2) == []
    p.run()
    assert p.status == "FINISHED"
    released = [x.dataset for x in p.commands if isinstance(x, c.ReleasePartitions)]
    assert sorted(released) == [0, 1], "each once, after its last consumer"


def test_a_persistent_result_stays_and_is_named_at_the_end():
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2)
    builder.dataset(0, GLOBAL, persistent=True)
    p = plane(builder.graph).start().run()
    (gate,) = p.ended.persistent
    assert gate.dataset == 0 and gate.tokens.tolist() == [1, 2] and gate.num_subpartitions == 1


def test_what_cannot_be_decided_fails_the_job_with_a_sentence():
    p = plane(two_steps(HASH), sizes=lambda _v, _s, _d, n: np.full(n, -1)).start().run()
    assert p.status == "FAILED" and "is negative" in p.ended.cause.message
    assert p.ended.vertex == 1 and "'step 1' cannot be decided" in p.ended.cause.message


def test_bounds_that_exclude_each_other_are_refused_before_the_start():
    with pytest.raises(UsageError, match="power of two"):
        plane(two_steps(HASH), cut="by-count", min_parallelism=5, max_parallelism=7)


def test_an_empty_job_is_finished_at_once():
    assert plane(GraphBuilder().graph).start().status == "FINISHED"


def test_subtasks_of_a_vertex_are_deployed_by_one_command():
    p = plane(two_steps(HASH, splits=150, parallelism=90)).start().run()
    assert [(d.vertex, len(d.subtasks)) for d in p.deploys] == [(0, 150), (1, 90)]


def test_a_gate_descriptor_is_built_once_per_group():
    builder = GraphBuilder()
    builder.source([1] * 4, parallelism=4)
    builder.step((0, HASH)), builder.step((0, HASH))
    p = plane(builder.graph).start()
    p.run(0)
    assert p.deploys[1].gates[0] is p.deploys[2].gates[0]


# --- default scheduler ---------------------------------------------------------------------------------------


def static(graph, **options):
    return plane(graph, jobmanager__scheduler="Default", **options)


def test_default_initialises_everything_at_the_start():
    p = static(two_steps(HASH, parallelism=3)).start()
    assert [p.parallelism(v) for v in range(2)] == [2, 3] and deployed(p, 1) == []
    p.run()
    assert deployed(p, 1) == [0, 1, 2] and p.status == "FINISHED"


def test_default_seed_case_b1_goes_ahead_of_a2():
    p = static(two_steps(RESCALE, parallelism=2)).start()
    p.finish((0, 1, 0))
    assert deployed(p, 1) == [1]
    p.finish((0, 0, 0))
    assert deployed(p, 1) == [1, 0]


def test_default_cuts_by_bytes_once_sizes_are_known():
    def sizes(_v, _s, _d, n):
        return np.array([900] + [100] * (n - 1))

    builder = GraphBuilder()
    builder.source([1]), builder.step((0, HASH), parallelism=2), builder.step((0, HASH), parallelism=10)
    p = static(builder.graph, sizes=sizes).start()
    p.run(0)
    assert p.deploys[1].input_bytes.tolist() == [900, 900]


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, [5, 1, 5]), ({"parallelism__default": 3}, [3, 3, 3]), ({"data_volume_per_task": 100}, [5, 1, 5])],
)
def test_default_parallelisms(options, expected):
    """The user's or the forward group's, else parallelism.default, else what a source infers, else 1."""
    builder = GraphBuilder()
    builder.source([100] * 5), builder.step((0, HASH)), builder.step((0, FORWARD))
    p = static(builder.graph, **{"data_volume_per_task": 90, **options}).start()
    assert [p.parallelism(v) for v in range(3)] == expected
    assert p.run().status == "FINISHED"


# --- what is refused -----------------------------------------------------------------------------------------


def test_the_scheduler_is_chosen_by_option():
    graph = two_steps(HASH)
    assert any(isinstance(policy, AdaptiveGrowth) for policy in create_scheduler(graph, Options()).policies)
    with pytest.raises(UsageError, match="Adaptive is for streams"):
        create_scheduler(graph, Options({"jobmanager.scheduler": "Adaptive"}))


def test_a_pipelined_exchange_is_refused_with_a_reason():
    graph = two_steps(HASH)
    dataset = graph.datasets[0]
    graph.datasets[0] = type(dataset)(
        dataset.id, dataset.producer, dataset.ship, dataset.keys, ResultPartitionType.PIPELINED
    )
    with pytest.raises(UsageError, match="pipelined"):
        create_scheduler(graph, Options())


def test_conflicting_parallelisms_of_a_forward_group_are_refused_before_the_start():
    with pytest.raises(UsageError, match="forward"):
        create_scheduler(two_steps(FORWARD, parallelism=5), Options())


# --- records, story, waiting ----------------------------------------------------------------------------------


def test_everything_an_event_caused_carries_its_id():
    p = plane(two_steps(HASH))
    first = p.send(JobStarted(at=0.0, id=7))
    assert {x.record.event for x in first if isinstance(x, c.Record)} == {7}
    then = p.finish((0, 0, 0), (0, 1, 0))
    assert {x.record.event for x in then if isinstance(x, c.Record)} == {8}
    assert any("event 8: 2 subtasks -> FINISHED" in line for line in p.scheduler.story(0))
    assert any("event 7: attempt 0 -> SCHEDULED" in line for line in p.scheduler.story(0, 1))


def test_progress_adds_up():
    p = plane(two_steps(HASH)).start()
    p.finish((0, 0, 0))
    p.finish((0, 1, 0))
    last = [x for x in p.records if isinstance(x, MetricsSnapshot)][-1].vertices[0]
    expected = {"parallelism": 2, "numFinishedTasks": 2, "numRunningTasks": 0, "numRecordsIn": 6, "numRecordsOut": 14}
    assert expected.items() <= last.items()
    assert (last["numBytesIn"], last["numBytesStored"], last["numBytesProduced"]) == (8, 10, 2 * 10 * 512)


def test_a_waiting_job_says_what_it_waits_for():
    builder = GraphBuilder()
    builder.source([1] * 5, parallelism=5)
    builder.step((0, HASH)), builder.step((1, HASH))
    p = plane(builder.graph)
    assert waits_of(p.scheduler) == ["The job waits for its start."]
    p.start()
    assert waits_of(p.scheduler) == [
        "Vertex 0 'step 0' has subtasks 0, 1, 2, 3, 4 with Spark for 0 s, the longest is subtask 0.",
        "Vertex 1 'step 1' is not decided yet: it waits for 5 of 5 producers of result 0 (vertex 0 'step 0'): "
        "subtasks 0, 1, 2, 3, 4 under way for 0 s, the longest is subtask 0.",
        "Vertex 2 'step 2' is not decided yet: it waits for vertex 1 'step 1', which has not started.",
    ]
    p.finish((0, 0, 0), (0, 1, 0), (0, 2, 0))
    p.launch((0, 4, 0))
    p.now = 12.0
    p.launch((0, 3, 0))
    text = "\n".join(waits_of(p.scheduler))
    assert "Vertex 0 'step 0' has subtasks 3, 4 under way for 12 s, the longest is subtask 4 on host node-1." in text
    assert "waits for 2 of 5 producers of result 0" in text
    p.send(ExecutorChanged(at=p.now, executor="1", host="node-1", slots=2, added=True))
    p.send(ExecutorChanged(at=p.now, executor="1", host="node-1", slots=2, added=False))
    p.run(0)
    assert "Spark has no executor." in waits_of(p.scheduler)[0]


def test_a_producer_of_two_inputs_is_told_once():
    builder = GraphBuilder()
    builder.source([1])
    builder.step((0, HASH)), builder.step((1, HASH), (1, HASH))
    p = plane(builder.graph)
    p.start()
    wait = "Vertex 2 'step 2' is not decided yet: it waits for vertex 1 'step 1', which has not started."
    assert waits_of(p.scheduler).count(wait) == 1


def test_cancelled_before_the_start():
    p = plane(two_steps(HASH))
    p.send(CancelRequested(at=0.0))
    assert p.status == "CANCELED" and waits_of(p.scheduler) == []


def test_an_event_about_what_was_never_deployed_is_an_error_with_a_sentence():
    p = plane(two_steps(HASH)).start()
    p.tasks[0, 0, 5] = p.tasks[0, 0, 0]
    with pytest.raises(ValueError, match=r"subtasks \[0\], attempts \[5\] of vertex 0 'step 0', not all of which"):
        p.finish((0, 0, 5))


@pytest.mark.parametrize("together", [1, 2])
def test_a_launch_that_was_seen_is_when_the_execution_time_begins(together):
    """The worker of a task starts after Spark launched it, and only then can the task say what time it is."""
    p = plane(two_steps(HASH)).start()
    ids = np.arange(2)
    seen = ExecutionsDeploying(at=2.0, vertex=0, subtasks=ids, attempts=0 * ids, times=np.array([0.5, 1.5]))
    p.send(seen)
    p.now = 5.0
    reported = p.reports

    def with_times(tasks, token=None):
        return replace(reported(tasks, token), deployed_at=np.array([1.0, 1.0])[[task.subtask for task in tasks]])

    p.reports = with_times
    for keys in ([(0, 0, 0), (0, 1, 0)],) if together == 2 else ([(0, 0, 0)], [(0, 1, 0)]):
        p.finish(*keys)
    assert p.scheduler.executions.times(ExecutionState.DEPLOYING, np.arange(2)).tolist() == [0.5, 1.0]

"""Speculative execution (FLIP-168): who gets a mirror, where it goes, who wins, and what blocked nodes reject."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.scheduler_kit import (
    FaultInjection,
    GraphBuilder,
    PickingDetector,
    Plane,
    attempts_of,
    drive,
    ints,
    plane,
    random_graph,
    random_sizes,
    waits_of,
)

from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.events import ExecutionsDeploying, ExecutionsRejected
from firesteel.scheduler.kernel.records import MetricsSnapshot, StateChange
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption, Slots
from firesteel.scheduler.speculation.rejected_deployments import TOLD_SECONDS
from firesteel.scheduler.topology.executions import Execution

HASH = ShipStrategy.HASH


def job(n: int = 3, second: bool = False, **options) -> Plane:
    """A source of parallelism n, and a step behind it."""
    fields = options.pop("vertex", {})
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n, **fields)
    if second:
        builder.step((0, HASH), parallelism=n)
    return plane(builder.graph, speculative__enabled=True, **options).start()


def of(commands, kind):
    return [x for x in commands if isinstance(x, kind)]


def names(deploy: c.Deploy) -> list[tuple[int, int]]:
    return list(zip(deploy.subtasks.tolist(), deploy.attempts.tolist(), strict=True))


def metric(p: Plane, name: str) -> float:
    return p.scheduler.metrics.job.read()[name]


# --- mirrors -------------------------------------------------------------------------------------------------


def test_a_slow_execution_gets_a_mirror_away_from_its_node():
    p = job()
    for subtask in range(3):
        p.launch((0, subtask, 0))
    out = p.slow((0, 1, 0))
    (blocked,), (deploy,) = of(out, c.BlockNodes), of(out, c.Deploy)
    assert blocked.nodes == ("node-1",) and out.index(blocked) < out.index(deploy)
    assert names(deploy) == [(1, 1)] and deploy.placement == Placement(("node-1",), urgent=True)
    (decision,) = p.decisions("speculation")
    assert decision.result == [[1, 1]] and decision.inputs["nodes"] == ["node-1"] and decision.rule == "picked"
    assert decision.reason == (
        "attempt 1 of subtask 1 of 'step 0' has taken 1 s on node-1, others take 500 ms: attempt 2 is made beside it"
    )
    created = next(r for r in p.records if isinstance(r, StateChange) and r.state == "CREATED")
    assert created.beside and created.mirrors == [True]
    assert metric(p, "numSlowExecutionVertices") == metric(p, "numBlockedNodes") == 1


def test_both_run_and_the_first_to_finish_wins():
    p = job()
    p.launch((0, 1, 0)), p.slow((0, 1, 0)), p.launch((0, 1, 1), node="node-2")
    view = p.scheduler.graph.vertices[0][1]
    assert [e.attempt for e in view.current_executions] == [0, 1] and view.current_execution.attempt == 0
    assert "several attempts of subtask 1: attempt 1 on node-1 for " in "\n".join(waits_of(p.scheduler))
    assert "attempt 2 on node-2 for 0 s, a mirror" in "\n".join(waits_of(p.scheduler))
    (cancel,) = of(p.finish((0, 1, 1)), c.Cancel)
    assert cancel.attempts.tolist() == [0] and p.tasks[0, 1, 0].cancelled
    (decision,) = p.decisions("winner")
    assert decision.result == 1 and decision.inputs["nodes"] == ["node-2", "node-1"]
    assert "attempt 2 (a mirror, on node-2) of subtask 1 of 'step 0' finished first; attempt 1 (on node-1) had" in (
        decision.reason
    )
    assert metric(p, "numEffectiveSpeculativeExecutions") == 1 and metric(p, "numSlowExecutionVertices") == 0
    assert p.run().status == "FINISHED"


def test_a_mirror_that_loses_was_not_effective():
    p = job()
    p.launch((0, 1, 0)), p.slow((0, 1, 0))
    p.finish((0, 1, 0))
    assert metric(p, "numEffectiveSpeculativeExecutions") == 0 and p.tasks[0, 1, 1].cancelled
    assert p.run().status == "FINISHED"


def test_what_a_mirror_won_stays_counted_when_its_result_is_lost():
    p = job(second=True)
    p.slow((0, 1, 0)), p.finish((0, 1, 1)), p.run(0)
    p.lost.add((0, 1, *p.admitted[0, 1]))
    p.finish((1, 0, 0))
    assert metric(p, "numEffectiveSpeculativeExecutions") == 1
    assert p.run().status == "FINISHED"
    told = [r.job["numEffectiveSpeculativeExecutions"] for r in p.records if isinstance(r, MetricsSnapshot)]
    assert told == sorted(told) and told[-1] == 1


def test_the_snapshot_of_a_finished_vertex_counts_the_mirror_that_finished_it():
    p = job(second=True)
    p.finish((0, 0, 0)), p.finish((0, 2, 0))
    p.slow((0, 1, 0)), p.finish((0, 1, 1))
    last = [r for r in p.records if isinstance(r, MetricsSnapshot)][-1]
    assert last.vertices[0]["numFinishedTasks"] == 3 and last.job["numEffectiveSpeculativeExecutions"] == 1


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_mirrors_are_made_up_to_the_limit_and_no_further(limit):
    p = job(speculative__max_concurrent_executions=limit)
    p.slow((0, 1, 0))
    assert attempts_of(p.deploys[1:], 0) == [(1, k) for k in range(1, limit)]
    p.slow((0, 1, 0), *[(0, 1, k) for k in range(1, limit)])
    assert len(p.keys(0)) == 2 + limit
    if limit > 1:
        p.fail((0, 1, 1))
        p.slow((0, 1, 0))
        assert (0, 1, limit) in p.tasks, "a failed one makes room"
    assert p.run().status == "FINISHED"


def test_several_slow_subtasks_are_mirrored_by_one_command():
    p = job(n=6)
    (deploy,) = of(p.slow((0, 4, 0), (0, 1, 0)), c.Deploy)
    assert names(deploy) == [(1, 1), (4, 1)]


@pytest.mark.parametrize("vertex", [{"speculative": False}, {"supports_concurrent_attempts": False}])
def test_a_vertex_that_forbids_it_has_no_mirrors_and_its_slow_node_is_blocked(vertex):
    p = job(vertex=vertex)
    p.launch((0, 1, 0))
    out = p.slow((0, 1, 0))
    assert of(out, c.BlockNodes) and not of(out, c.Deploy)
    assert "is slow and gets no mirror" in p.decisions("speculation")[0].reason
    p.slow((0, 1, 0))
    assert len(p.decisions("speculation")) == 1, "said once"
    assert p.run().status == "FINISHED"


def test_nodes_are_not_blocked_where_the_duration_is_nothing():
    p = job(speculative__block_slow_node_duration="0 s")
    p.launch((0, 1, 0))
    out = p.slow((0, 1, 0))
    assert not of(out, c.BlockNodes) and of(out, c.Deploy)[0].placement == Placement(urgent=True)


def test_a_node_is_blocked_as_long_as_it_is_told_of_and_its_time_after():
    p = job(speculative__block_slow_node_duration="10 s")
    p.launch((0, 1, 0))
    p.slow((0, 1, 0))
    for _ in range(5):
        p.slow((0, 1, 0))
    assert len(p.decisions("blocklist")) == 1
    end = p.now + 10
    p.detector.slow = []
    while p.blocked:
        p.fire(min(p.timers, key=p.timers.__getitem__))
    assert p.now == pytest.approx(end) and [d.result for d in p.decisions("blocklist")] == [
        "blocked", "prolonged", "unblocked",
    ]  # fmt: skip


def test_speculation_that_is_off_places_nothing_and_has_no_metrics():
    builder = GraphBuilder()
    builder.source([1])
    p = plane(builder.graph).start()
    assert p.deploys[0].placement is None and set(p.scheduler.metrics.job.read()) == {"numRestarts"}
    assert not p.timers


def test_speculation_needs_the_adaptive_scheduler():
    with pytest.raises(UsageError, match="batch jobs under the adaptive batch scheduler"):
        job(jobmanager__scheduler="Default")


# --- slots ---------------------------------------------------------------------------------------------------


class FewSlots(Slots):
    """Grants as many as are free, and checks that each is given back once."""

    def __init__(self, slots: int) -> None:
        self.free, self.held = slots, set[int]()

    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        n = max(0, min(self.free, len(option.executions)))
        self.free -= n
        self.held |= set(option.executions[:n].tolist())
        return ExecutionDeploymentOption(option.vertex, option.subtasks[:n], option.executions[:n])

    def ended(self, rows) -> None:
        gone = self.held & set(rows.tolist())
        self.held -= gone
        self.free += len(gone)


def bounded(slots: int) -> tuple[Plane, FewSlots]:
    """Three subtasks, of which some wait for a slot."""
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3)
    allocator, detector = FewSlots(slots), PickingDetector()
    job = Job(builder.graph, Options({"speculative.enabled": True}), Inputs(), DirectInputs())
    scheduler = Scheduler(job, allocator, detector)
    return Plane(scheduler, detector=detector).start(), allocator


def test_a_mirror_without_a_slot_waits_and_goes_before_the_others():
    p, allocator = bounded(2)
    assert not of(p.slow((0, 0, 0)), c.Deploy)
    assert "further attempts of subtask 0 waiting for a slot" in "\n".join(waits_of(p.scheduler))
    assert names(*of(p.finish((0, 1, 0)), c.Deploy)) == [(0, 1)], "before subtask 2, which waits for longer"
    p.finish((0, 0, 0))
    assert allocator.free == 0 and len(allocator.held) == 2, "the loser keeps its slot until it is gone"
    p.confirm_cancel((0, 0, 1))
    assert p.run().status == "FINISHED" and allocator.free == 2 and not allocator.held


def test_a_mirror_that_waits_is_dropped_when_its_subtask_has_finished():
    p, allocator = bounded(3)
    p.slow((0, 0, 0))
    out = p.finish((0, 0, 0))
    assert not of(out, c.Deploy) and not of(out, c.Cancel)
    assert p.run().status == "FINISHED" and allocator.free == 3


def test_a_mirror_that_waits_takes_over_when_the_original_fails():
    p, _ = bounded(3)
    p.slow((0, 0, 0))
    (deploy,) = of(p.fail((0, 0, 0)), c.Deploy)
    assert names(deploy) == [(0, 1)] and p.status == "RUNNING"
    assert p.run().status == "FINISHED"


def test_a_mirror_that_waits_for_a_slot_waits_for_its_inputs_too():
    builder = GraphBuilder()
    builder.source([1, 1], parallelism=2)
    builder.step((0, HASH), parallelism=2)
    allocator, detector = FewSlots(2), PickingDetector()
    job = Job(builder.graph, Options({"speculative.enabled": True}), Inputs(), DirectInputs())
    p = Plane(Scheduler(job, allocator, detector), detector=detector).start()
    p.run(0)
    p.slow((1, 0, 0))
    allocator.free -= 2
    p.fail((1, 0, 0)), p.lost.add((0, 0, *p.admitted[0, 0]))
    p.finish((1, 1, 0))  # misses a partition: its producer runs again, and the mirror of the other has no slot yet
    allocator.free += 2
    p.fire("restart-1")
    assert not p.keys(1) and p.keys(0), "its input is not there"
    assert p.run().status == "FINISHED"


def test_a_mirror_that_alone_is_left_and_waits_is_named():
    p, allocator = bounded(3)
    allocator.free = -9
    p.slow((0, 0, 0)), p.fail((0, 0, 0)), p.finish((0, 1, 0)), p.finish((0, 2, 0))
    assert waits_of(p.scheduler) == ["Vertex 0 'step 0' has further attempts of subtask 0 waiting for a slot."]


# --- blocked nodes -------------------------------------------------------------------------------------------


def test_first_deployments_keep_their_turn_and_restarts_do_not():
    p = job(second=True, restart_strategy__fixed_delay__delay="0 s")
    assert p.deploys[0].placement == Placement()
    p.launch((0, 1, 0)), p.slow((0, 1, 0)), p.run(0)
    assert p.deploys[-1].placement == Placement(("node-1",))
    p.fail((1, 2, 0))
    assert p.deploys[-1].placement == Placement(("node-1",), urgent=True) and names(p.deploys[-1]) == [(2, 1)]


def test_an_execution_that_is_handed_back_is_replaced_at_once():
    p = job()
    p.launch((0, 1, 0)), p.slow((0, 1, 0))
    (deploy,) = of(p.reject((0, 2, 0), node="node-1"), c.Deploy)
    assert names(deploy) == [(2, 1)] and deploy.placement == Placement(("node-1",), urgent=True)
    assert p.scheduler.metrics.num_restarts.value == 0 and p.status == "RUNNING"
    replaced = Execution(p.scheduler.executions, int(p.scheduler.graph.vertices[0].newest[2]))
    assert not replaced.is_mirror
    assert "in the place of one that blocked node node-1 rejected" in "\n".join(p.scheduler.story(0, 2))
    assert p.send(p.sent[-1]) == [], "told twice"
    p.reject((0, 1, 1))
    assert Execution(p.scheduler.executions, int(p.scheduler.graph.vertices[0].newest[1])).is_mirror
    assert p.run().status == "FINISHED"


def test_the_original_and_its_mirror_handed_back_in_one_event():
    p = job()
    p.slow((0, 1, 0))
    deploys = of(p.reject((0, 1, 0), (0, 1, 1)), c.Deploy)
    assert sorted(name for deploy in deploys for name in names(deploy)) == [(1, 2), (1, 3)]
    assert p.run().status == "FINISHED"


def test_an_exclusive_vertex_has_one_attempt_after_another_though_handed_back():
    p = job(vertex={"supports_concurrent_attempts": False})
    p.reject((0, 1, 0))
    assert p.keys(0) == [(0, 0, 0), (0, 1, 1), (0, 2, 0)] and p.run().status == "FINISHED"


def test_after_so_many_returns_in_a_row_an_execution_stays_where_it_is_started():
    p = job(firesteel__speculative__max_rejections=2)
    p.launch((0, 0, 0)), p.slow((0, 0, 0))
    p.reject((0, 1, 0))
    assert p.deploys[-1].placement.may_reject
    p.launch((0, 1, 1), node="node-2")
    p.fail((0, 1, 1))
    p.fire("restart-1")
    p.reject((0, 1, 2))
    assert p.deploys[-1].placement.may_reject, "one that began ends the row"
    p.reject((0, 1, 3))
    assert p.deploys[-1].placement == Placement(("node-0",), urgent=True, may_reject=False)
    (decision,) = p.decisions("placement")
    assert "were rejected 2 times in a row" in decision.reason and decision.inputs["subtasks"] == [1]
    out = p.launch((0, 1, 4), running=False, node="node-0")
    assert not of(out, c.SetTimer), "it is left alone"
    assert "runs on node-0, though blocked: it was rejected too often" in p.decisions("placement")[-1].reason
    assert p.run().status == "FINISHED"


def test_nothing_is_handed_back_where_no_return_is_allowed():
    assert job(firesteel__speculative__max_rejections=0).deploys[0].placement == Placement(may_reject=False)


def test_a_blocked_node_is_used_again_when_nothing_else_exists():
    p = job(second=True)
    p.executor(0, "node-0")
    p.launch((0, 0, 0))
    out = p.slow((0, 0, 0))
    assert of(out, c.BlockNodes) == [] and of(out, c.Deploy)[0].placement == Placement(urgent=True, may_reject=False)
    assert p.decisions("blocklist")[-1].result == "used"
    p.launch((0, 0, 1), running=False, node="node-0")
    assert "runs on node-0, though blocked: no other node is known" in p.decisions("placement")[-1].reason
    p.executor(1, "node-1")
    assert p.blocked == ("node-0",)
    p.run(0)
    assert p.deploys[-1].placement == Placement(("node-0",))
    assert p.run().status == "FINISHED"


def test_an_execution_that_says_nothing_on_a_blocked_node_is_replaced():
    p = job()
    p.launch((0, 0, 0)), p.slow((0, 0, 0))
    p.now += TOLD_SECONDS
    p.launch((0, 1, 0), running=False, node="node-0")
    out = p.fire("silent-1")
    (cancel,), (deploy,) = of(out, c.Cancel), of(out, c.Deploy)
    assert (cancel.subtasks.tolist(), cancel.attempts.tolist()) == ([1], [0]) and names(deploy) == [(1, 1)]
    assert "nothing heard from it for 2 s since it was launched on blocked node node-0" in "\n".join(
        p.scheduler.story(0, 1)
    )
    assert p.run().status == "FINISHED"


def test_nobody_is_silent_on_a_blocked_node_that_is_used_since_there_is_no_other():
    """Their programs run, and Spark tells of nothing but their launch."""
    p = job(n=4)
    p.executor(0, "node-0")
    p.launch((0, 0, 0), running=False, node="node-0"), p.slow((0, 0, 0))
    p.launch((0, 1, 0), running=False, node="node-0")
    assert not any(timer.startswith("silent") for timer in p.timers)
    assert "subtask 1 of 'step 0' runs on node-0, though blocked: no other node is known" in (
        p.decisions("placement")[-1].reason
    )
    p.executor(1, "node-1")
    assert p.blocked == ("node-0",)
    p.now += TOLD_SECONDS
    p.launch((0, 2, 0), running=False, node="node-0")
    p.executor(1, "node-1", added=False)
    assert not of(p.fire("silent-1"), c.Cancel), "it may have begun when it found nothing blocked"
    assert p.run().status == "FINISHED"


def test_a_launch_before_the_block_that_is_told_of_after_it_is_no_silence():
    p = job()
    p.launch((0, 0, 0)), p.slow((0, 0, 0))
    columns = {"subtasks": ints(1), "attempts": ints(0), "nodes": ["node-0"]}
    p.send(ExecutionsDeploying(at=p.tick(), vertex=0, **columns, times=np.array([0.5])))
    assert not any(timer.startswith("silent") for timer in p.timers)
    assert p.run().status == "FINISHED"


def test_silence_does_not_count_as_a_return():
    p = job(firesteel__speculative__max_rejections=1)
    p.launch((0, 0, 0)), p.slow((0, 0, 0))
    p.now += TOLD_SECONDS
    for attempt in range(3):
        p.launch((0, 1, attempt), running=False, node="node-0")
        p.fire(f"silent-{attempt + 1}")
        assert p.deploys[-1].placement.may_reject, "nothing ever runs on a node that stands still"
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize(
    "case", ["began", "finished", "rejected", "unblocked", "launched before", "not told yet", "exclusive"]
)
def test_an_execution_that_is_heard_of_or_was_there_before_goes_on(case):
    p = job(vertex={"supports_concurrent_attempts": case != "exclusive"}, block_slow_node_duration="10 s")
    if case == "launched before":
        p.launch((0, 1, 0), running=False, node="node-0")
    p.launch((0, 0, 0)), p.slow((0, 0, 0))
    p.detector.slow = []
    p.now += 0 if case == "not told yet" else TOLD_SECONDS
    if case != "launched before":
        p.launch((0, 1, 0), running=False, node="node-0")
    if case == "began":
        p.launch((0, 1, 0), node="node-0")
    elif case == "finished":
        p.finish((0, 1, 0))
    elif case == "rejected":
        p.reject((0, 1, 0))
    elif case == "unblocked":
        p.fire("blocklist")
    if "silent-1" in p.timers:
        assert not of(p.fire("silent-1"), c.Cancel)
    else:
        assert case in ("launched before", "not told yet", "exclusive")
    assert p.run().status == "FINISHED"


def test_a_return_that_comes_after_the_end_of_its_execution_changes_nothing():
    p = job()
    p.finish((0, 1, 0))
    late = ExecutionsRejected(at=p.tick(), vertex=0, subtasks=ints(1), attempts=ints(0), nodes=["node-1"])
    assert p.send(late) == []
    p.slow((0, 0, 0)), p.finish((0, 0, 0))
    p.reject((0, 0, 1))
    assert p.scheduler.executions.counts[ExecutionState.CANCELING] == 0, "a loser that never began is gone"
    assert p.run().status == "FINISHED"


# --- all of it -----------------------------------------------------------------------------------------------

FAULTS = FaultInjection(
    user=0.03, worker=0.02, storage=0.02, uncounted=0.03, lose=0.03, double=0.05, other_token=0.05, foreign_cancel=0.02,
    executors=0.05, publishing=0.5, slow=0.15, reject=0.15, lost=0.05,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_every_disturbed_job_with_mirrors_finishes(seed):
    rng = random.Random(seed)
    options = {
        "speculative__enabled": True,
        "speculative__max_concurrent_executions": rng.choice([1, 2, 3]),
        "firesteel__speculative__max_rejections": rng.choice([0, 1, 5]),
        "restart_strategy__fixed_delay__attempts": 10_000,
        "max_parallelism": 4,
    }
    p = drive(plane(random_graph(rng), sizes=random_sizes(rng), **options), rng, FAULTS)
    assert p.status == "FINISHED", p.ended

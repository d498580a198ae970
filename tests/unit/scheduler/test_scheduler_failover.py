"""What runs again after a failure, which commit wins, what is released, and how a job ends."""

from dataclasses import replace

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, attempts_of, discarded, ints, plane, waits_of

from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.failover.restart_strategies import FixedDelayRestart
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.events import (
    CancelRequested,
    ExecutionReports,
    ExecutionsCancelled,
    ExecutionsFailed,
    ExecutionsFinished,
    FailureCause,
    FailureKind,
    PartitionReports,
    PartitionsLost,
    SinksCommitted,
    TimerFired,
)
from firesteel.scheduler.kernel.records import OutputGone, StateChange
from firesteel.scheduler.topology.executions import Execution

HASH, RESCALE, FORWARD, GLOBAL = ShipStrategy.HASH, ShipStrategy.RESCALE, ShipStrategy.FORWARD, ShipStrategy.GLOBAL
REBALANCE = ShipStrategy.REBALANCE


def chain(*ships, n=3, last=None, **options):
    """A source and a step per ship, all of parallelism n."""
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n, has_sink=not ships and bool(last))
    for number, ship in enumerate(ships):
        builder.step((number, ship), parallelism=n, has_sink=bool(last) and number == len(ships) - 1)
    return plane(builder.graph, **options)


def lose(p, vertex, subtask, dataset):
    """The object a winner wrote is lost; returns its name."""
    attempt, token = p.admitted[vertex, subtask]
    p.lost.add((dataset, subtask, attempt, token))
    return dataset, subtask, attempt, token


def of(commands, kind):
    return [x for x in commands if isinstance(x, kind)]


# --- restarts ------------------------------------------------------------------------------------------------


def test_a_failed_task_is_its_own_region_and_waits_for_the_delay():
    p = chain(HASH).start()
    p.run(0)
    out = p.fail((1, 1, 0))
    (timer,) = of(out, c.SetTimer)
    assert timer.at == pytest.approx(p.now + 1.0) and not of(out, c.Deploy) and not of(out, c.Cancel)
    assert p.status == "RESTARTING"
    p.finish((1, 0, 0))
    assert len(p.deploys) == 2, "held back until the timer fires"
    p.fire(timer.timer)
    assert attempts_of(p.deploys, 1)[3:] == [(1, 1)] and p.status == "RUNNING"
    p.send(TimerFired(at=p.now, timer=timer.timer))
    assert p.run().status == "FINISHED"


def test_a_set_up_is_tried_again_only_where_another_node_may_do_better():
    p = chain().start()
    p.executor(1, "node-1")
    p.fail((0, 0, 0), kind=FailureKind.SET_UP)
    assert p.status == "FAILING"
    assert "there is no other node" in p.decisions("failover")[-1].reason
    p = chain().start()
    p.executor(1, "node-1")
    p.executor(2, "node-2")
    p.launch((0, 0, 0), node="node-1")
    p.fail((0, 0, 0), kind=FailureKind.SET_UP)
    assert p.status == "RESTARTING"
    p.fire(next(iter(p.timers)))
    p.launch((0, 0, 1), node="node-2")
    p.fail((0, 0, 1), kind=FailureKind.SET_UP)
    assert p.status == "FAILING"
    assert "has failed so on every node" in p.decisions("failover")[-1].reason


def test_restarts_are_counted_and_the_job_fails_with_place_and_cause():
    p = chain(HASH).start()
    p.run(0)
    for attempt in range(3):
        p.fail((1, 2, attempt))
        p.fire(next(iter(p.timers)))
    out = p.fail((1, 2, 3))
    assert p.status == "FAILING" and len(of(out, c.Cancel)) == 1
    assert p.run().status == "FAILED"
    assert (p.ended.vertex, p.ended.subtask, p.ended.cause.message) == (1, 2, "USER failure")
    assert "restarts" in p.decisions("failover")[-1].reason


def test_no_restarts_when_the_strategy_is_none():
    p = chain(HASH, restart_strategy__type="none").start()
    p.fail((0, 0, 0))
    assert p.status == "FAILING"


def test_fatal_failures_are_not_tried_again():
    p = chain(HASH).start()
    p.fail((0, 0, 0), kind=FailureKind.FATAL)
    assert p.status == "FAILING" and p.run().status == "FAILED"


def test_uncounted_siblings_are_sent_again_at_once_without_a_charge_but_not_for_ever():
    p = chain(n=2, restart_strategy__type="none").start()
    for attempt in range(10):
        p.fail((0, 0, attempt), (0, 1, attempt), kind=FailureKind.WORKER, counted=False)
        assert p.status == "RUNNING" and p.keys(0) == [(0, 0, attempt + 1), (0, 1, attempt + 1)]
    p.fail((0, 0, 10), kind=FailureKind.WORKER, counted=False)
    assert p.status == "FAILING"


def test_one_dead_executor_is_charged_once():
    p = chain(n=6, restart_strategy__fixed_delay__attempts=1).start()
    for subtask in range(4):
        p.fail((0, subtask, 0), kind=FailureKind.WORKER)
    assert p.status == "RESTARTING"
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("kind", [FailureKind.WORKER, FailureKind.STORAGE])
@pytest.mark.parametrize("delay", ["0 s", "1 s"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_subtasks_that_kill_their_workers_again_and_again_end_the_job(kind, delay, n):
    """Each dies while the restart of another one is pending: none may excuse the next for ever."""
    p = chain(n=n, restart_strategy__fixed_delay__delay=delay).start()
    for _ in range(40 * n):
        if p.status == "FAILING":
            break
        p.fail(min(p.tasks, key=lambda key: key[2]), kind=kind)
        if p.timers and (len(p.tasks) < 2 or p.now % 0.03 < 0.01):
            p.fire(min(p.timers, key=p.timers.__getitem__))
    assert p.status == "FAILING" and "used up" in p.decisions("failover")[-1].reason
    assert max(attempt for _, attempt in attempts_of(p.deploys, 0)) <= 4
    assert p.run().status == "FAILED"


def test_a_late_event_does_not_turn_time_back():
    p = chain(HASH).start()
    p.run(0)
    p.now += 100
    p.launch((1, 0, 0))
    late = ExecutionsFailed(
        at=1.0, vertex=1, subtasks=ints(1), attempts=ints(0), cause=FailureCause(FailureKind.USER, "x")
    )
    p.tasks.pop((1, 1, 0))
    (timer,) = of(p.send(late), c.SetTimer)
    assert timer.at == pytest.approx(p.now + 1.0)


def test_a_lost_partition_restarts_its_producer_and_the_unfinished_consumers():
    p = chain(HASH).start()
    p.run(0)
    p.finish((1, 0, 0))
    name = lose(p, 0, 2, 0)
    out = p.finish((1, 1, 0))
    assert discarded(*of(out, c.DiscardExecutions)) == [(0, 2, 0, name[3])]
    (cancel,) = of(out, c.Cancel)
    assert (cancel.vertex, cancel.subtasks.tolist()) == (1, [2])
    p.fire(next(iter(p.timers)))
    assert attempts_of(p.deploys, 0)[3:] == [(2, 1)] and len(attempts_of(p.deploys, 1)) == 3
    p.finish((0, 2, 1))
    assert attempts_of(p.deploys, 1)[3:] == [(1, 1), (2, 1)], "subtask 0 stays finished"
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("ship", [REBALANCE, RESCALE])
def test_finished_readers_of_a_partition_that_is_shared_by_order_read_it_again(ship):
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2)
    builder.step((0, ship), parallelism=4), builder.step((1, HASH), parallelism=2)
    p = plane(builder.graph, subpartition_factor=1).start()
    p.run(0)
    p.finish((1, 0, 0)), p.finish((1, 3, 0))
    lose(p, 0, 0, 0)
    p.finish((1, 1, 0))
    decision = p.decisions("failover")[-1]
    shared = {REBALANCE: [0, 1, 2, 3], RESCALE: [0, 1]}[ship]
    again = 1 if ship is RESCALE or p.scheduler.graph.vertices[1].ranges[0].of(3)[0, 0] == 1 else 2
    assert decision.inputs["invalidated"] == {"1": again} and "finished before: what they read" in decision.reason
    assert decision.result["0"] == 1 and decision.result["1"] <= len(shared)
    assert p.run().status == "FINISHED"


def test_who_reads_its_rows_anew_changes_what_it_gave_to_others():
    builder = GraphBuilder()
    builder.source([1], parallelism=1)
    builder.step((0, RESCALE), parallelism=2), builder.step((1, HASH), parallelism=2)
    p = plane(builder.graph).start()
    p.run(0), p.run(1)
    assert {name[0] for name in p.released} == {0}
    p.finish((2, 0, 0))
    lose(p, 1, 1, 1)
    p.finish((2, 1, 0))
    decision = p.decisions("failover")[-1]
    assert decision.result == {"0": 1, "1": 2, "2": 2} and decision.inputs["invalidated"] == {"1": 1, "2": 1}
    assert p.run().status == "FINISHED"


def test_a_partition_that_one_subtask_reads_alone_takes_no_finished_reader_along():
    builder = GraphBuilder()
    builder.source([1] * 4, parallelism=4)
    builder.step((0, RESCALE), parallelism=2), builder.step((1, HASH), parallelism=2)
    p = plane(builder.graph).start()
    p.run(0), p.run(1)
    p.finish((2, 0, 0))
    lose(p, 1, 1, 1)
    p.finish((2, 1, 0))
    assert p.decisions("failover")[-1].result == {"0": 2, "1": 1, "2": 1}
    assert p.run().status == "FINISHED"


def test_what_was_decided_stays_decided():
    p = chain(HASH).start()
    p.run(0)
    before = p.deploys[-1].ranges[0]
    lose(p, 0, 0, 0)
    p.finish((1, 1, 0))
    p.run()
    assert (
        p.deploys[-1].ranges[0].rects.tolist() == before.select(p.deploys[-1].subtasks).rects.tolist()
        and p.status == "FINISHED"
    )
    assert len(p.decisions("parallelism")) == 1


def test_released_inputs_are_produced_again_transitively():
    p = chain(HASH, HASH, HASH).start()
    p.run(0), p.run(1), p.run(2)
    assert {name[0] for name in p.released} == {0, 1}
    lose(p, 2, 1, 2)
    p.finish((3, 0, 0))
    decision = p.decisions("failover")[-1]
    assert decision.result == {"0": 3, "1": 3, "2": 1, "3": 3}
    assert p.run().status == "FINISHED"
    assert [len(attempts_of(p.deploys, v)) for v in range(4)] == [6, 6, 4, 6]


def test_a_lost_disk_is_survived_though_it_held_more_partitions_than_there_are_restarts():
    p = chain(HASH, n=8).start()
    p.run(0)
    for subtask in range(8):
        lose(p, 0, subtask, 0)
    assert p.run().status == "FINISHED"
    first, rest = p.decisions("failover")
    assert (first.result, rest.result) == ({"0": 1, "1": 8}, {"0": 7})
    assert "7 objects of data set 0 are not in the store any more" in rest.inputs["cause"]
    assert len(attempts_of(p.deploys, 1)) == 16, "one more attempt each"


def test_a_lost_disk_is_survived_though_nobody_can_list_what_is_left():
    p = chain(HASH, n=8).start()
    p.run(0)
    for subtask in range(8):
        lose(p, 0, subtask, 0)
    while p.ended is None:
        p.verify.clear()
        p.run(0) if p.keys(0) else p.run(1) if p.keys(1) else p.run()
    assert p.status == "FINISHED" and len(p.decisions("failover")) >= 2


def test_readers_that_miss_their_partitions_all_at_once_have_the_others_looked_for_once():
    p = chain(FORWARD, n=8).start()
    p.run(0)
    for subtask in range(8):
        p.fail((1, subtask, 0), kind=FailureKind.PARTITION, bad=lose(p, 0, subtask, 0))
    assert [asked.partitions.tolist() for asked in p.verify] == [[1, 2, 3, 4, 5, 6, 7]]
    for timer in list(p.timers):
        p.fire(timer)
    p.run(0)
    p.now += 10
    reader = p.keys(1)[0]
    p.fail(reader, kind=FailureKind.PARTITION, bad=lose(p, 0, reader[1], 0))
    assert len(p.verify) == 1, "and again later"
    assert p.run().status == "FINISHED"


def test_who_reads_a_result_keeps_the_names_it_was_told_when_a_partition_is_produced_anew():
    p = chain(HASH, n=3).start()
    p.run(0)
    (gate,) = p.deploys[-1].gates
    before = gate.attempts.tolist(), gate.tokens.tolist()
    p.fail((1, 0, 0), kind=FailureKind.PARTITION, bad=lose(p, 0, 1, 0))
    for timer in list(p.timers):
        p.fire(timer)
    p.run(0)
    (again,) = p.deploys[-1].gates
    assert (gate.attempts.tolist(), gate.tokens.tolist()) == before and not gate.tokens.flags.writeable
    assert again.attempts.tolist() == [0, 1, 0] and (gate.tokens != again.tokens).tolist() == [False, True, False]
    assert p.run().status == "FINISHED"


def test_a_lost_partition_that_the_failed_subtask_does_not_read_is_produced_anew():
    p = chain(FORWARD, FORWARD).start()
    p.run(0), p.run(1)
    name = lose(p, 1, 1, 1)
    p.fail((2, 0, 0), kind=FailureKind.PARTITION, bad=name)
    assert p.decisions("failover")[-1].result == {"0": 1, "1": 1, "2": 2}
    assert p.run().status == "FINISHED"


def test_news_of_lost_partitions_that_were_produced_anew_changes_nothing():
    p = chain(HASH).start()
    p.run(0)
    lose(p, 0, 1, 0)
    p.finish((1, 0, 0))
    (asked,) = p.verify
    assert asked.partitions.tolist() == [0, 2]
    old = PartitionsLost(at=p.tick(), dataset=0, partitions=ints(1, 0), attempts=ints(0, 5), tokens=ints(2, 1))
    assert not of(p.send(old), c.SetTimer)
    assert p.run().status == "FINISHED"


def test_a_partition_that_is_lost_again_and_again_fails_the_job():
    p = chain(HASH).start()
    while p.ended is None:
        p.run(0)
        if p.keys(1):
            lose(p, 0, 1, 0)
            p.finish(p.keys(1)[0])
        for key in [k for k, task in p.tasks.items() if task.cancelled]:
            p.confirm_cancel(key)
        for timer in list(p.timers):
            p.fire(timer)
    assert p.status == "FAILED" and len(p.decisions("failover")) == 5


def test_pointwise_blocks_restart_alone():
    p = chain(FORWARD, FORWARD).start()
    p.run(0), p.run(1)
    lose(p, 1, 1, 1)
    p.finish((2, 1, 0))
    assert p.decisions("failover")[-1].result == {"0": 1, "1": 1, "2": 1}
    assert p.run().status == "FINISHED"


def test_a_partition_that_was_produced_anew_meanwhile_only_sends_the_consumer_again():
    p = chain(HASH, restart_strategy__fixed_delay__attempts=1).start()
    p.run(0)
    bad = (0, 2, 0, 9999)
    out = p.fail((1, 1, 0), kind=FailureKind.PARTITION, bad=bad)
    assert not of(out, c.SetTimer) and attempts_of(p.deploys, 1)[3:] == [(1, 1)]
    assert (
        len(attempts_of(p.deploys, 0)) == 3
        and "not counted by the restart strategy" in p.decisions("failover")[-1].reason
    )


def test_a_partition_failure_that_names_nothing_we_know_is_charged_like_any_other():
    p = chain(HASH, restart_strategy__type="none").start()
    p.run(0)
    p.fail((1, 1, 0), kind=FailureKind.PARTITION, bad=(7, 0, 0, 0))
    assert p.status == "FAILING"


def test_stale_failures_change_nothing():
    p = chain(HASH, restart_strategy__fixed_delay__attempts=1).start()
    p.run(0)
    lose(p, 0, 0, 0)
    p.finish((1, 0, 0))
    assert p.tasks[1, 1, 0].cancelled
    out = p.finish((1, 1, 0))  # it fails too, over the same partition
    assert not of(out, c.SetTimer) and p.status == "RESTARTING"
    assert p.run().status == "FINISHED"


def test_sizes_of_a_restarted_producer_are_taken_in_anew():
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2), builder.step((0, FORWARD)), builder.step((0, HASH))
    p = plane(builder.graph, max_parallelism=4, subpartition_factor=1).start()
    p.finish((0, 0, 0))
    lose(p, 0, 0, 0)
    p.finish((1, 0, 0))
    info = p.scheduler.graph.result(1).info
    assert info.num_bytes_produced == 0 and not info.recorded.any()
    p.run()
    assert p.status == "FINISHED" and info.num_bytes_produced == 2 * 4 * 10


def test_a_cancel_that_came_from_somebody_else_is_a_failure():
    p = chain().start()
    p.tasks.pop((0, 1, 0))
    p.send(ExecutionsCancelled(at=p.tick(), vertex=0, subtasks=ints(1), attempts=ints(0)))
    assert p.status == "RESTARTING" and p.run().status == "FINISHED"


def exclusive(**options):
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2)
    builder.step((0, HASH), parallelism=2, has_sink=True, supports_concurrent_attempts=False)
    return plane(builder.graph, **options).start()


def test_a_vertex_that_forbids_it_has_never_two_attempts_of_a_subtask_at_once():
    p = exclusive(restart_strategy__fixed_delay__delay="0 s")
    p.run(0)
    lose(p, 0, 0, 0)
    p.finish((1, 0, 0))
    p.finish((0, 0, 1))
    assert sorted(p.tasks) == [(1, 0, 1), (1, 1, 0)] and p.tasks[1, 1, 0].cancelled
    assert "an earlier attempt of subtask 1 being cancelled" in "\n".join(waits_of(p.scheduler))
    p.confirm_cancel((1, 1, 0))
    assert sorted(p.tasks) == [(1, 0, 1), (1, 1, 1)]
    p.finish((1, 0, 1), (1, 1, 1))
    assert p.commit is not None


def test_sinks_are_not_published_beside_an_attempt_that_may_still_write():
    p = exclusive()
    p.run(0)
    # Cancelled, and its next attempt was decided against by nobody: it comes when the old one is gone.
    lose(p, 0, 0, 0)
    p.finish((1, 0, 0))
    p.fire(next(iter(p.timers)))
    p.finish((0, 0, 1)), p.finish((1, 0, 1))
    assert p.commit is None and p.keys(1) == [(1, 1, 0)]
    p.lost.clear()
    p.finish((1, 1, 0))  # too late: it is discarded, and its successor runs
    assert p.keys(1) == [(1, 1, 1)]
    p.finish((1, 1, 1))
    assert p.commit is not None


# --- first valid commit wins -----------------------------------------------------------------------------------


def test_a_doubled_finish_is_a_no_op():
    p = chain(HASH).start()
    p.finish((0, 0, 0))
    assert p.send(p.sent[-1]) == []


def test_sparks_own_retry_with_another_token_loses():
    p = chain(HASH).start()
    p.finish((0, 0, 0), keep=True)
    (discard,) = of(p.finish((0, 0, 0)), c.DiscardExecutions)
    assert discarded(discard) == [(0, 0, 0, 2)]
    assert p.send(p.sent[-1]) == [], "once is enough"
    assert p.run().status == "FINISHED"
    assert p.deploys[-1].gates[0].tokens[0] == 1


def test_the_same_subtask_twice_in_one_event():
    p = chain(HASH).start()
    task = p.tasks.pop((0, 0, 0))
    reports = p.reports([task, task])
    p.written |= {(0, 0, 0, 1), (0, 0, 0, 2)}
    p.read[0, 0, 1] = {}
    p.admitted[0, 0] = (0, 1)
    event = ExecutionsFinished(at=p.tick(), vertex=0, subtasks=ints(0, 0), attempts=ints(0, 0), reports=reports)
    assert [name[3] for name in discarded(*of(p.send(event), c.DiscardExecutions))] == [2]
    assert p.run().status == "FINISHED"


def test_a_cancelled_execution_that_finishes_late_is_discarded():
    p = chain(HASH).start()
    p.run(0)
    lose(p, 0, 0, 0)
    p.finish((1, 0, 0))
    p.lost.clear()
    out = p.finish((1, 1, 0))
    assert [name[2] for name in discarded(*of(out, c.DiscardExecutions))] == [0]
    assert p.run().status == "FINISHED"


def with_mirror(**options):
    """A second current execution of subtask 0."""
    p = chain(HASH, n=2, speculative__enabled=True, **options).start()
    p.slow((0, 0, 0))
    return p, [Execution(p.scheduler.executions, row) for row in (0, 2)]


def test_two_attempts_of_a_subtask_in_one_event_give_one_winner():
    p, (original, mirror) = with_mirror()
    discards = of(p.finish((0, 0, 0), (0, 0, 1)), c.DiscardExecutions)
    assert discarded(*discards) == [(0, 0, 1, 2)]
    assert (original.state.name, mirror.state.name) == ("FINISHED", "CANCELED")
    assert p.scheduler.graph.vertices[0].num_finished == 1
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("first", [0, 1])
def test_the_other_attempt_is_cancelled_when_one_has_won(first):
    p, executions = with_mirror()
    (cancel,) = of(p.finish((0, 0, first)), c.Cancel)
    assert (cancel.subtasks.tolist(), cancel.attempts.tolist()) == ([0], [1 - first])
    assert [e.state.name for e in executions] == ["FINISHED", "CANCELING"][:: 1 - 2 * first]
    assert p.run().status == "FINISHED" and p.deploys[-1].gates[0].attempts.tolist() == [first, 0]


def test_a_failure_beside_another_attempt_stays_local():
    p, (original, mirror) = with_mirror()
    out = p.fail((0, 0, 0))
    assert not of(out, c.Cancel) and not of(out, c.Deploy) and p.status == "RUNNING"
    assert (original.state.name, mirror.state.name) == ("FAILED", "SCHEDULED")
    decision = p.decisions("failover")[-1]
    assert (
        decision.result == {}
        and "another attempt can still finish, so nothing runs again (for the restart" in decision.reason
    )
    assert p.scheduler.metrics.num_restarts.value == 0
    assert p.run().status == "FINISHED"
    assert attempts_of(p.deploys, 0) == [(0, 0), (1, 0), (0, 1)]


def test_the_last_attempt_that_fails_takes_its_subtask_along():
    p, _ = with_mirror()
    p.fail((0, 0, 1)), p.fail((0, 0, 0))
    assert p.status == "RESTARTING" and p.decisions("failover")[-1].result == {"0": 1}
    p.run()
    assert p.status == "FINISHED" and attempts_of(p.deploys, 0)[3:] == [(0, 2)]


def test_all_attempts_of_a_subtask_that_fail_in_one_event_are_one_failure():
    p, (original, mirror) = with_mirror(restart_strategy__fixed_delay__attempts=1)
    p.fail((0, 0, 0), (0, 0, 1))
    assert (original.state.name, mirror.state.name) == ("FAILED", "FAILED") and p.status == "RESTARTING"
    assert p.run().status == "FINISHED" and attempts_of(p.deploys, 0)[3:] == [(0, 2)]


def test_some_subtasks_of_an_event_start_anew_and_others_go_on():
    p, _ = with_mirror(restart_strategy__fixed_delay__delay="0 s")
    p.fail((0, 0, 0), (0, 1, 0))
    assert p.keys(0) == [(0, 0, 1), (0, 1, 1)] and p.decisions("failover")[-1].result == {"0": 1}
    assert p.run().status == "FINISHED"


def test_a_failure_that_stays_local_counts_like_any_other():
    p, _ = with_mirror(restart_strategy__fixed_delay__attempts=1)
    p.fail((0, 0, 0))
    assert p.status == "RUNNING"
    out = p.fail((0, 1, 0))
    assert p.status == "FAILING" and of(out, c.Cancel)[0].attempts.tolist() == [1]
    assert p.run().status == "FAILED"


def test_a_fatal_failure_ends_the_job_though_another_attempt_runs():
    p, _ = with_mirror()
    p.fail((0, 0, 0), kind=FailureKind.FATAL)
    assert p.status == "FAILING" and p.run().status == "FAILED"


def test_a_lost_partition_is_produced_anew_though_another_attempt_of_its_reader_runs():
    p = chain(HASH, n=2, speculative__enabled=True).start()
    p.run(0)
    p.slow((1, 0, 0))
    p.fail((1, 0, 0), kind=FailureKind.PARTITION, bad=lose(p, 0, 1, 0))
    assert p.decisions("failover")[-1].result == {"0": 1, "1": 2}
    assert [key for key, task in p.tasks.items() if task.cancelled] == [(1, 1, 0), (1, 0, 1)]
    assert p.run().status == "FINISHED"


# --- executors that are lost ------------------------------------------------------------------------------------


def test_the_first_loss_of_an_executor_costs_neither_a_restart_nor_a_delay():
    p = chain(n=3, restart_strategy__type="none").start()
    p.fail((0, 0, 0), (0, 2, 0), kind=FailureKind.LOST)
    assert p.status == "RUNNING" and p.keys(0) == [(0, 0, 1), (0, 1, 0), (0, 2, 1)]
    assert "the first time in a row" in p.decisions("failover")[-1].reason
    p.fail((0, 2, 1), kind=FailureKind.LOST)
    assert p.status == "FAILING"


def test_the_losses_of_one_executor_are_charged_once():
    p = chain(n=4, restart_strategy__fixed_delay__attempts=1).start()
    p.fail(*p.keys(0), kind=FailureKind.LOST)
    for key in p.keys(0):
        p.fail(key, kind=FailureKind.LOST)
    assert p.status == "RESTARTING" and p.run().status == "FINISHED"


def test_a_loss_after_another_failure_is_the_first_in_a_row_again():
    p = chain(n=1, restart_strategy__fixed_delay__delay="0 s", restart_strategy__fixed_delay__attempts=2).start()
    for attempt, kind in enumerate([FailureKind.LOST, FailureKind.USER, FailureKind.LOST, FailureKind.USER]):
        p.fail((0, 0, attempt), kind=kind)
        assert p.status == "RUNNING", attempt
    p.fail((0, 0, 4), kind=FailureKind.LOST), p.fail((0, 0, 5), kind=FailureKind.LOST)
    assert p.status == "FAILED"


def test_subtasks_that_lose_their_executors_again_and_again_end_the_job():
    p = chain(n=3).start()
    for _ in range(100):
        if p.tasks:
            p.fail(min(p.tasks, key=lambda key: key[2]), kind=FailureKind.LOST)
        elif p.timers:
            p.fire(min(p.timers, key=p.timers.__getitem__))
    assert p.status == "FAILED" and len(p.decisions("failover")) <= 3 * 5


def test_a_mirror_that_is_lost_with_its_executor_makes_room():
    p, (original, mirror) = with_mirror(restart_strategy__type="none")
    p.fail((0, 0, 1), kind=FailureKind.LOST)
    assert p.status == "RUNNING" and (original.state.name, mirror.state.name) == ("SCHEDULED", "FAILED")
    p.slow((0, 0, 0))
    assert p.keys(0) == [(0, 0, 0), (0, 0, 2), (0, 1, 0)]
    p.fail((0, 0, 2), kind=FailureKind.LOST)
    assert p.status == "FAILING", "the second in a row of this subtask"


# --- release -------------------------------------------------------------------------------------------------


def test_partitions_go_with_the_last_consumer_and_not_before():
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2)
    builder.step((0, HASH), parallelism=2), builder.step((0, HASH), parallelism=2)
    p = plane(builder.graph).start()
    p.run(0), p.run(1)
    p.finish((2, 0, 0))
    assert not p.released
    (release,) = of(p.finish((2, 1, 0)), c.ReleasePartitions)
    assert release.partitions.tolist() == [0, 1] and release.tokens.tolist() == [1, 2]


def test_what_nobody_consumes_goes_with_its_producer():
    builder = GraphBuilder()
    builder.source([1])
    builder.dataset(0, GLOBAL)
    p = plane(builder.graph).start()
    p.run()
    assert len(of(p.commands, c.ReleasePartitions)) == 1 and p.status == "FINISHED"


# --- the end -------------------------------------------------------------------------------------------------


def test_sinks_are_published_once_all_vertices_have_finished():
    p = chain(HASH, last=True).start()
    p.run(0)
    p.fail((1, 1, 0))
    p.run()
    assert p.status == "RUNNING" and p.commit is not None
    assert waits_of(p.scheduler) == ["The job waits for its sinks to be published."]
    assert [attempt for attempt, _ in p.commit.winners[1]] == [0, 1, 0]
    p.send(CancelRequested(at=p.tick()))  # too late
    p.answer_commit()
    assert p.status == "FINISHED"
    assert p.send(SinksCommitted(at=p.tick())) == []


def test_sinks_that_fail_fail_the_job():
    p = chain(last=True).start()
    p.fail_commit = True
    p.run()
    p.answer_commit()
    assert p.status == "FAILED" and p.ended.cause.message == "disk full"


def test_a_cancel_that_came_while_sinks_are_published_counts_if_that_fails():
    p = chain(last=True).start()
    p.fail_commit = True
    p.run()
    p.send(CancelRequested(at=p.tick()))
    assert p.decisions("cancel")[0].result == "put off" and p.status == "RUNNING"
    p.answer_commit()
    assert p.status == "CANCELED"


def test_earlier_attempts_that_are_being_cancelled_are_named_though_the_restart_is_off():
    p = chain(HASH).start()
    p.run(0)
    lose(p, 0, 0, 0)
    p.finish((1, 0, 0))
    p.send(CancelRequested(at=p.tick()))
    assert p.status == "CANCELLING"
    assert waits_of(p.scheduler) == ["Vertex 1 'step 1' has an earlier attempt of subtasks 1, 2 being cancelled."]
    assert p.run().status == "CANCELED"


@pytest.mark.parametrize("sizes", [[], [PartitionReports.of(0, [ints(1)])]])
def test_a_report_that_does_not_fit_fails_the_job_and_leaves_no_half_state(sizes):
    p = chain(HASH).start()
    p.tasks.pop((0, 1, 0))
    reports = ExecutionReports.of(ints(7), nodes=["node-1"], partitions=sizes)
    out = p.send(ExecutionsFinished(at=p.tick(), vertex=0, subtasks=ints(1), attempts=ints(0), reports=reports))
    assert p.status == "FAILING" and len(of(out, c.Cancel)) == 1
    assert not p.scheduler.graph.vertices[0].num_finished and not p.scheduler.graph.result(0).num_available
    assert p.run().status == "FAILED"
    assert "'step 0' on node-1 reports" in p.ended.cause.message and "data set 0" in p.ended.cause.message


def test_cancel_waits_for_what_runs():
    p = chain(HASH).start()
    p.finish((0, 0, 0))
    (cancel,) = of(p.send(CancelRequested(at=p.tick())), c.Cancel)
    assert cancel.subtasks.tolist() == [1, 2] and p.status == "CANCELLING"
    assert "being cancelled" in waits_of(p.scheduler)[0]
    p.confirm_cancel((0, 1, 0))
    assert p.ended is None
    p.finish((0, 2, 0))
    assert p.status == "CANCELED" and p.commands[-1] is p.ended
    assert [name[1] for name in discarded(*of(p.commands, c.DiscardExecutions))] == [2]


def test_the_first_cause_stays():
    p = chain().start()
    p.fail((0, 1, 0), kind=FailureKind.FATAL)
    p.fail((0, 0, 0), kind=FailureKind.USER)
    p.send(CancelRequested(at=p.tick()))
    assert p.run().status == "FAILED"
    assert p.ended.cause.kind is FailureKind.FATAL and p.ended.subtask == 1


def test_nothing_is_deployed_while_the_job_fails():
    p = chain(HASH).start()
    p.fail((0, 1, 0), kind=FailureKind.FATAL)
    deployed = len(p.deploys)
    p.run()
    assert len(p.deploys) == deployed


def test_the_records_tell_where_and_when_and_what_became_of_the_objects():
    p = chain(HASH, n=2).start()
    p.now = 5.0
    p.launch((0, 1, 0))
    reports = replace(
        p.reports([p.tasks[0, s, 0] for s in (0, 1)]),
        deployed_at=np.array([1.0, 2.0]),
        running_at=np.full(2, 2.0),
        finished_at=np.full(2, 3.0),
    )
    for subtask in (0, 1):
        p.tasks.pop((0, subtask, 0))
        p.admitted[0, subtask] = (0, subtask + 1)
        p.read[0, subtask, subtask + 1] = {}
        p.written.add((0, subtask, 0, subtask + 1))
    p.send(ExecutionsFinished(at=p.tick(), vertex=0, subtasks=ints(0, 1), attempts=ints(0, 0), reports=reports))
    running, finished = (
        next(r for r in p.records if isinstance(r, StateChange) and r.state == state)
        for state in ("RUNNING", "FINISHED")
    )
    assert (running.hosts, running.nodes, running.times) == (["node-1"], [0], [])
    assert sorted(finished.hosts[k] for k in finished.nodes) == ["node-0", "node-1"]
    assert (finished.times, finished.deployed, finished.running) == ([3.0, 3.0], [1.0, 2.0], [2.0, 2.0])
    assert finished.tokens == [1, 2]
    p.finish((1, 0, 0), keep=True), p.finish((1, 0, 0)), p.finish((1, 1, 0))
    gone = [(r.vertex, r.dataset, r.subtasks, r.tokens, r.reason) for r in p.records if isinstance(r, OutputGone)]
    assert gone == [(1, None, [0], [4], "discarded: it came too late"), (0, 0, [0, 1], [1, 2], "released")]
    assert p.status == "FINISHED"


def test_every_failover_leaves_a_decision_and_a_story():
    p = chain(HASH).start()
    p.run(0)
    p.fail((1, 1, 0))
    decision = p.decisions("failover")[0]
    assert decision.inputs["subtasks"] == [1] and decision.result == {"1": 1}
    assert decision.reason == (
        "subtask 1 of 'step 1' failed (user function): 1 subtask to run again, restart 1 of 3, after 1 s"
    )
    story = "\n".join(p.scheduler.story(1, 1))
    assert "attempt 0 -> FAILED (USER failure)" in story and "attempt 1 -> CREATED (restart)" in story


@pytest.mark.parametrize(
    ("attempts", "why"),
    [(0, "restart-strategy.fixed-delay.attempts allows none"), (1, "the only restart of "), (2, "all 2 restarts of ")],
)
def test_that_no_restart_is_left_is_said_in_numbers_that_read_well(attempts, why):
    strategy = FixedDelayRestart(attempts, 90.0)
    for used in range(1, attempts + 1):
        assert strategy.count_failure(0.0).reason == f"restart {used} of {attempts}, after 1 min 30 s"
    assert strategy.count_failure(0.0).delay is None and strategy.count_failure(0.0).reason.startswith(why)

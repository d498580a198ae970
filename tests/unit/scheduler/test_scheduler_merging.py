"""Merging small outputs before they are read: when it pays, who waits, and what becomes of merged objects."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, plane, waits_of

from firesteel.errors import MERGED_ATTEMPT
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.exchange import merging
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.scheduler import create_scheduler

HASH, REBALANCE, BROADCAST = ShipStrategy.HASH, ShipStrategy.REBALANCE, ShipStrategy.BROADCAST
SLOW = {"firesteel__merge__request_time": "1 h"}


@pytest.fixture(autouse=True)
def worth_it(monkeypatch):
    """Eight consumers save little: whatever costs less than it saves is merged."""
    monkeypatch.setattr(merging, "WORTH", 1.0)
    monkeypatch.setattr(merging, "WHOLE_BYTES", 0)


def exchange(producers=8, consumers=8, ship=HASH, again=0):
    builder = GraphBuilder()
    builder.source([100] * producers, parallelism=producers)
    for _ in range(1 + again):
        builder.step((0, ship), parallelism=consumers)
    return builder.graph


def started(graph=None, **options):
    """All producers have finished."""
    p = plane(graph or exchange(), **{**SLOW, **options}).start()
    p.finish(*p.keys(0))
    return p


def merged_gates(p, vertex=1):
    return [d.gates[0].merged for d in p.deploys if d.vertex == vertex]


def of_kind(p, kind):
    return [command for command in p.commands if isinstance(command, kind)]


def merged_of(p):
    merged = p.scheduler.graph.result(0).merged
    return [] if merged is None else list(zip(merged.first.tolist(), merged.end.tolist(), strict=True))


def test_consumers_wait_for_a_merge_and_are_told_of_its_objects():
    p = started()
    assert p.merges[0].bounds.tolist() == [0, 8]
    assert p.keys(1) == [] and "being merged for" in waits_of(p.scheduler)[0]
    p.answer_merge()
    assert len(p.keys(1)) == 8
    (merged,) = merged_gates(p)
    assert (merged.first.tolist(), merged.end.tolist()) == ([0], [8])
    p.run()
    assert p.status == "FINISHED" and len(of_kind(p, c.ReleaseMerged)) == 1
    kinds = [type(command) for command in p.commands]
    assert abs(kinds.index(c.ReleaseMerged) - kinds.index(c.ReleasePartitions)) <= 2  # both when the consumers are done


def test_the_decision_is_on_record_with_its_reason():
    p = started()
    (decision,) = p.decisions("merge")
    assert decision.inputs["requests"] == 56 and decision.inputs["stored_bytes"] == 40
    assert decision.result == 1 and "8 objects become 1" in decision.reason
    p.answer_merge()
    (outcome,) = p.decisions("merged")
    assert outcome.result == 1 and outcome.reason.startswith("1 group of data set 0 merged, ")
    assert outcome.reason.endswith(" after it was asked for.")


def test_it_is_on_record_too_that_merging_does_not_pay():
    p = started(firesteel__merge__request_time="1 ms")
    assert not p.merges and len(p.keys(1)) == 8
    (decision,) = p.decisions("merge")
    assert decision.result == "not merged"
    assert decision.reason == (
        "56 slices of 1 B on average, under 256 KiB, but merging saves only 51.9 ms for 516 ms, less than twice its price: "
        "they are read as they are."
    )


@pytest.mark.parametrize("options", [{"firesteel__merge__threshold": 0}, {"firesteel__merge__request_time": "0 s"}])
def test_nothing_is_merged_or_said_where_it_is_off_or_the_storage_was_not_measured(options):
    p = started(**options)
    assert not p.merges and not p.decisions("merge") and len(p.keys(1)) == 8


def test_slices_that_are_large_enough_are_not_worth_a_word():
    p = started(exchange(8, 2), firesteel__merge__threshold=2)
    assert not p.merges and not p.decisions("merge")


@pytest.mark.parametrize("ship", [REBALANCE, BROADCAST])
def test_only_what_is_partitioned_by_key_is_merged(ship):
    assert not started(exchange(ship=ship)).merges


def test_groups_reach_the_threshold_and_keep_the_slots_busy():
    # 40 bytes in 56 slices (no more than there are rows): two partitions make more than one byte
    assert started(firesteel__merge__threshold=1).merges[0].bounds.tolist() == [0, 2, 4, 6, 8]
    graph = exchange()
    options = Options({"firesteel.merge.request-time": "1 h"})
    scheduler = create_scheduler(graph, options, Inputs(slots=3))
    p = plane(graph, **SLOW)
    p.scheduler = scheduler
    p.start()
    p.finish(*p.keys(0))
    assert p.merges[0].bounds.tolist() == [0, 2, 5, 8]


def test_a_wide_cluster_does_not_merge_in_pairs_only():
    """Merging ten at a time takes longer than two at a time, but reading 50 objects each longer still."""
    graph = exchange(100, 100)
    p = plane(graph, **SLOW)
    p.scheduler = create_scheduler(graph, p.scheduler.options, Inputs(slots=100))
    p.rows = 1000
    p.start().finish(*p.keys(0))
    (decision,) = p.decisions("merge")
    assert 5 <= decision.result <= 20


def test_a_local_storage_needs_many_slices_before_merging_pays():
    def pays(n):
        p = plane(exchange(n, n), firesteel__merge__request_time="0.1 ms").start()
        p.rows = 1000
        p.finish(*p.keys(0))
        return bool(p.merges)

    assert not pays(50)
    assert pays(400)


def test_objects_that_a_worker_fetches_once_and_keeps_are_not_merged(monkeypatch):
    monkeypatch.setattr(merging, "WHOLE_BYTES", 1 << 10)
    p = started()
    (decision,) = p.decisions("merge")
    assert (decision.inputs["slices"], decision.inputs["requests"]) == (56, 8)
    assert decision.result == "not merged"


def test_groups_that_failed_are_read_from_their_own_objects():
    p = started(firesteel__merge__threshold=1)
    p.answer_merge(failed=[1, 3])
    assert merged_of(p) == [(0, 2), (4, 6)]
    assert "2 groups not (disk full)" in p.decisions("merged")[0].reason
    p.run()
    assert p.status == "FINISHED"


def test_an_answer_that_comes_twice_changes_nothing():
    p = started()
    event = p.answer_merge()
    assert not any(isinstance(x, c.ReleaseMerged | c.Deploy) for x in p.send(event))
    p.run()
    assert p.status == "FINISHED"


def test_consumers_go_ahead_when_a_merge_takes_too_long_and_the_late_answer_is_thrown_away():
    p = started()
    p.fire(next(timer for timer in p.timers if timer.startswith("merge-")))
    assert len(p.keys(1)) == 8 and merged_gates(p) == [None]
    assert "took longer than" in p.decisions("merged")[0].reason
    event = p.answer_merge()
    assert p.merged == {} and len(of_kind(p, c.ReleaseMerged)) == 1
    p.send(event)
    assert len(of_kind(p, c.ReleaseMerged)) == 1
    p.run()
    assert p.status == "FINISHED"


def test_a_timer_that_fires_after_the_answer_changes_nothing():
    p = started()
    p.answer_merge()
    p.fire(next(timer for timer in p.timers if timer.startswith("merge-")))
    assert len(p.decisions("merged")) == 1 and merged_of(p) == [(0, 8)]


def lose(p, partition):
    """A consumer misses the object of a producer."""
    key = p.keys(1)[0]
    gate = p.tasks[key].deploy.gates[0]
    bad = (0, partition, int(gate.attempts[partition]), int(gate.tokens[partition]))
    p.fail(key, kind=e.FailureKind.PARTITION, bad=bad)
    return bad


def test_a_lost_partition_takes_the_merged_object_that_holds_it_along():
    p = started(firesteel__merge__threshold=1)
    p.answer_merge()
    lose(p, 5)
    assert merged_of(p) == [(0, 2), (2, 4), (6, 8)]
    assert [x.merged.first.tolist() for x in of_kind(p, c.ReleaseMerged)] == [[4]]
    p.run()
    assert p.status == "FINISHED" and not p.merges


def test_a_partition_that_is_lost_while_it_is_merged_is_not_read_merged():
    graph = exchange(again=1)  # the second consumer runs already when the first one's input is merged
    p = plane(graph, **SLOW, firesteel__merge__threshold=1).start()
    p.finish(*p.keys(0))
    p.send(
        e.PartitionsLost(
            at=p.tick(),
            dataset=0,
            partitions=np.array([3]),
            attempts=np.array([0]),
            tokens=p.scheduler.graph.result(0).tokens[[3]],
        )
    )
    for timer in [timer for timer in p.timers if timer.startswith("restart-")]:
        p.fire(timer)
    p.finish(*p.keys(0))
    assert p.keys(1) == [] and p.merges
    p.answer_merge()
    assert merged_of(p) == [(0, 2), (4, 6), (6, 8)]
    assert "1 group of partitions produced anew" in p.decisions("merged")[0].reason
    assert len(p.keys(1)) == 8
    p.run()
    assert p.status == "FINISHED"


def test_a_reader_that_misses_a_merged_object_reads_the_originals_and_is_not_charged():
    p = started(firesteel__merge__threshold=1, restart_strategy__fixed_delay__attempts=0)
    p.answer_merge()
    token = int(p.scheduler.graph.result(0).merged.tokens[1])
    key = p.keys(1)[2]
    p.fail(key, kind=e.FailureKind.PARTITION, bad=(0, 2, MERGED_ATTEMPT, token))
    assert merged_of(p) == [(0, 2), (4, 6), (6, 8)]
    assert p.keys(1)[2] == (1, 2, 1) and not p.verify
    assert "the partitions that were merged are there still" in p.decisions("failover")[0].reason
    assert not of_kind(p, c.ReleaseMerged), "others may read it still"
    other = p.keys(1)[3]
    p.fail(other, kind=e.FailureKind.PARTITION, bad=(0, 2, MERGED_ATTEMPT, token))
    p.run()
    assert p.status == "FINISHED"


def test_two_consumers_of_one_result_are_served_by_one_merge():
    p = plane(exchange(again=1), **SLOW).start()
    p.finish(*p.keys(0))
    assert len(p.merges) == 1 and p.decisions("merge")[0].inputs["requests"] == 56  # no more than there are rows
    p.run()
    assert p.status == "FINISHED" and len(of_kind(p, c.MergePartitions)) == 1
    assert [len(m.first) for v in (1, 2) for m in merged_gates(p, v)] == [1, 1]


@pytest.mark.parametrize("scheduler", ["AdaptiveBatch", "Default"])
@pytest.mark.parametrize("releasing", ["true", "false"])
def test_every_merged_object_is_released_once(scheduler, releasing):
    p = started(
        jobmanager__scheduler=scheduler,
        jobmanager__partition__release_during_job_execution=releasing,
        firesteel__merge__threshold=1,
    )
    p.run()
    assert p.status == "FINISHED" and p.merged == {}
    assert sum(len(x.merged.first) for x in of_kind(p, c.ReleaseMerged)) == 4


def test_a_persistent_result_is_described_without_its_merged_objects():
    builder = GraphBuilder()
    builder.source([100] * 8, parallelism=8)
    builder.dataset(0, HASH, persistent=True)
    builder.step((0, HASH), parallelism=8)
    p = started(builder.graph)
    p.run()
    assert p.status == "FINISHED" and p.merged == {}
    assert [gate.merged for gate in p.ended.persistent] == [None]


def test_a_job_is_cancelled_while_it_merges():
    p = started()
    p.send(e.CancelRequested(at=p.tick()))
    assert p.status == "CANCELED"
    assert p.scheduler.handle(e.TimerFired(at=1e6, timer="merge-1")) == []

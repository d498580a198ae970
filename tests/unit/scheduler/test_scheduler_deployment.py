"""Deployment descriptors: built and encoded once per consumed group, a blob when many consumers need them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, ints, plane

from firesteel.model.descriptors import decode_gate, encode_executions
from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e

HASH, RESCALE, BROADCAST = ShipStrategy.HASH, ShipStrategy.RESCALE, ShipStrategy.BROADCAST


def two_steps(producers, consumers, ship=HASH, threshold=1, **options):
    graph = GraphBuilder()
    source = graph.source([10] * producers, parallelism=producers)
    graph.step((source, ship), parallelism=consumers)
    return plane(graph.graph, offload_threshold=threshold, subpartition_factor=1, **options).start()


def of(p, kind):
    return [command for command in p.commands if isinstance(command, kind)]


def test_a_blob_is_stored_before_the_deployment_that_names_it_and_dropped_with_its_partitions():
    p = two_steps(4, 3)
    p.run(0)
    (stored,) = of(p, c.StoreBlob)
    deploy = p.deploys[-1]
    assert p.commands.index(stored) < p.commands.index(deploy)
    (gate,) = deploy.gates
    assert gate.offloaded and gate.encoded.digest == stored.digest
    assert decode_gate(stored.data).tokens.tolist() == gate.tokens.tolist()
    p.run(1)
    (dropped,) = of(p, c.DropBlobs)
    assert dropped.digests == (stored.digest,)
    assert p.commands.index(dropped) < p.commands.index(of(p, c.ReleasePartitions)[0])
    assert p.status == "FINISHED"


def test_the_size_times_the_consumers_of_the_group_decides():
    size = len(two_steps(4, 3, threshold=1 << 30).run(0).deploys[-1].gates[0].encoded.data)
    assert of(two_steps(4, 3, threshold=3 * size).run(0), c.StoreBlob)
    p = two_steps(4, 3, threshold=3 * size + 1).run(0)
    assert not of(p, c.StoreBlob) and not p.deploys[-1].gates[0].offloaded


def test_a_restart_of_one_consumer_names_the_same_blob():
    p = two_steps(4, 3)
    p.run(0)
    p.fail((1, 2, 0))
    p.fire(min(p.timers))
    first, again = p.deploys[-2:]
    assert again.subtasks.tolist() == [2]
    assert again.gates[0] is first.gates[0]
    assert len(of(p, c.StoreBlob)) == 1


def lose(p, partition):
    """Consumer 0 cannot read this partition; the producer runs again, and then the consumers."""
    attempt, token = p.admitted[0, partition]
    bad = (0, partition, attempt, token)
    p.lost.add(bad)
    p.fail((1, 0, 0), kind=e.FailureKind.PARTITION, bad=bad)
    p.run()


def test_older_versions_stay_until_the_partitions_go():
    """A reader that was told of one may wait for its turn yet: not every new version restarts all of them."""
    p = two_steps(4, 3)
    p.run(0)
    lose(p, 1)
    first, second = of(p, c.StoreBlob)
    assert [command.digests for command in of(p, c.DropBlobs)] == [(first.digest, second.digest)]
    assert p.status == "FINISHED"


def test_of_a_pointwise_edge_older_blobs_stay_while_other_groups_may_read_them():
    p = two_steps(4, 4, RESCALE, max_parallelism=4)
    p.run(0)
    before = [d for d in p.deploys if d.vertex == 1]
    stored = len(of(p, c.StoreBlob))
    lose(p, 0)
    dropped = [digest for command in of(p, c.DropBlobs) for digest in command.digests]
    assert len(of(p, c.DropBlobs)) <= 1
    assert sorted(dropped) == sorted(command.digest for command in of(p, c.StoreBlob))
    assert before and stored <= 1 and p.status == "FINISHED"


@pytest.mark.parametrize("ending", ["cancel", "fail"])
def test_no_blob_outlives_its_job(ending):
    p = two_steps(4, 3)
    p.run(0)
    if ending == "cancel":
        p.send(e.CancelRequested(at=p.tick()))
    else:
        p.fail((1, 0, 0), kind=e.FailureKind.FATAL)
    p.run()
    assert p.ended is not None and p.commands[-1] is p.ended
    assert len(of(p, c.DropBlobs)) == 1


def test_the_decision_is_recorded():
    p = two_steps(4, 3)
    p.run(0)
    (decision,) = p.decisions("offload")
    assert decision.inputs["consumers"] == 3
    assert decision.reason == (
        f"The descriptor of 4 partitions takes {decision.inputs['bytes']} B and goes to 3 consumers, so it is stored once and "
        "fetched by every executor."
    )


def test_descriptors_are_encoded_once_and_only_when_their_size_may_matter(monkeypatch):
    calls = []
    real = c.encode_gate
    monkeypatch.setattr(c, "encode_gate", lambda columns: calls.append(columns) or real(columns))
    two_steps(4, 3, threshold=1 << 30).run()
    assert not calls
    p = two_steps(4, 3)
    p.run(0)
    p.fail((1, 2, 0))
    p.run()
    assert len(calls) == 1


def test_one_of_ten_thousand_consumers_of_ten_thousand_producers_is_told_in_a_few_bytes():
    n = 10_000
    offsets = np.arange(n + 1, dtype=np.int32)
    rects = np.column_stack([np.zeros(n), np.full(n, n), 2 * np.arange(n), 2 * np.arange(n) + 2]).astype(np.int32)
    gate = c.GateDescriptor(0, 2 * n, np.zeros(n, np.int64), np.arange(n), False, offloaded=True)
    deploy = c.Deploy(1, n, np.arange(n), np.zeros(n, np.int64), (gate,), (c.InputRanges(offsets, rects),), {})
    own = encode_executions(deploy.subtasks, deploy.attempts, [(r.offsets, r.rects) for r in deploy.ranges])
    assert max(map(len, own)) + len(gate.encoded.digest) <= 60
    assert ints(1).dtype == np.int64

"""Range exchanges in the control plane: ranges decided from sketches, kept for good, and carried to the readers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import json
from tests.scheduler_kit import GraphBuilder, ints, plane, reason_in, sketched, waits_of

from firesteel.masking import Masker
from firesteel.model.descriptors import decode_gate
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.order import Order, OrderColumn
from firesteel.scheduler.exchange.key_ranges import decide_ranges, explain
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.decisions import Sketched

RANGE, HASH = ShipStrategy.RANGE, ShipStrategy.HASH


def two_steps(producers=3, sizes=None, parallelism=None, buffer_bytes=1 << 20, **options):
    builder = GraphBuilder()
    source = builder.source([100] * producers, parallelism=producers)
    builder.step((source, RANGE), **({} if parallelism is None else {"parallelism": parallelism}))
    chosen = {"max_parallelism": 8, "data_volume_per_task": 100, "subpartition_factor": 1, **options}
    return plane(builder.graph, sizes=sizes, size_buffer_bytes=buffer_bytes, **chosen).start()


def three_steps(sizes):
    """Vertex 1 reads the ranges of vertex 0; vertex 2 does too, and reads vertex 1: it is undecided while that one runs."""
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3)
    builder.step((0, RANGE), parallelism=2), builder.step((0, RANGE), (1, HASH))
    options = {"max_parallelism": 4, "subpartition_factor": 1, "restart_strategy__fixed_delay__delay": "0 s"}
    return plane(builder.graph, sizes=sizes, **options).start()


def of(commands, kind):
    return [command for command in commands if isinstance(command, kind)]


def gate_of(p, vertex=1):
    return next(deploy for deploy in p.deploys if deploy.vertex == vertex).gates[0]


@pytest.mark.parametrize("scheduler", ["AdaptiveBatch", "Default"])
@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
def test_ranges_are_decided_when_all_producers_have_finished(scheduler, cut):
    p = two_steps(parallelism=4, jobmanager__scheduler=scheduler, firesteel__decider__cut=cut)
    p.finish(*p.keys(0)[:2])
    assert not p.decisions("key ranges") and not p.keys(1)
    p.finish(*p.keys(0))
    (decision,) = p.decisions("key ranges", 1)
    assert decision.rule == "merged sketches" and decision.result["ranges"] == 4
    assert decision.inputs["sketches"] == 3 and decision.inputs["bytes"] == 3 * 4 * 10
    gate = gate_of(p)
    assert len(gate.boundaries) == 3 and decode_gate(gate.encoded.data).boundaries == gate.boundaries
    assert p.run().status == "FINISHED"


def test_parallelism_and_cuts_come_from_the_bytes_of_the_ranges():
    """One key in the middle is as heavy as all others together: who reads its range reads little else."""

    def sizes(_v, _s, _d, n):
        row = np.full(n, 10, np.int64)
        row[n // 2] = 70
        return row

    p = two_steps(sizes=sizes)
    p.finish(*p.keys(0))
    info = p.scheduler.graph.result(0).info
    assert info.subpartition_bytes.sum() == info.partition_bytes.sum() == 3 * 140
    (decision,) = p.decisions("parallelism", 1)
    assert decision.inputs["bytes"] == [420] and decision.result["parallelism"] > 3
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("written", ["nothing", "one row"])
def test_an_empty_input_is_one_range(written):
    row = {"nothing": ints(*[0] * 8), "one row": ints(5, *[0] * 7)}[written]
    p = two_steps(producers=1, sizes=lambda _v, _s, _d, n: row[:n])
    p.finish(*p.keys(0))
    assert p.parallelism(1) == 1 and p.scheduler.graph.result(0).info.subpartition_bytes.sum() == row.sum()
    assert p.run().status == "FINISHED"


def test_ranges_stay_when_a_producer_runs_again():
    """Its new sketch gives new sizes for the same ranges; who was told the keys is told them again."""
    more = []
    p = three_steps(lambda _v, s, _d, n: np.full(n, 10 + (5 if s == 0 and more else 0), np.int64))
    p.run(0)
    info, before = p.scheduler.graph.result(0).info, gate_of(p).boundaries
    assert len(before) == 3 and info.subpartition_bytes.sum() == 3 * 40
    more.append(True)
    p.lost.add((0, 0, *p.admitted[0, 0]))
    p.finish(p.keys(1)[0])
    assert info.subpartition_bytes.sum() == 2 * 40, "its share is taken back"
    p.finish((0, 0, 1))
    assert info.subpartition_bytes.sum() == 2 * 40 + 60
    p.verify.clear()
    assert p.run().status == "FINISHED"
    assert {gate.boundaries for d in p.deploys for gate in d.gates if gate.dataset == 0} == {before}
    assert len(p.decisions("key ranges")) == 1


def test_a_producer_lost_before_the_ranges_are_decided_tells_anew():
    p = two_steps(parallelism=2, buffer_bytes=0, restart_strategy__fixed_delay__delay="0 s")
    p.finish(*p.keys(0)[:2])
    attempt, token = p.admitted[0, 0]
    p.lost.add((0, 0, attempt, token))
    p.send(e.PartitionsLost(at=p.tick(), dataset=0, partitions=ints(0), attempts=ints(attempt), tokens=ints(token)))
    assert not p.load, "no sum holds its share: nothing is read back"
    p.finish(*p.keys(0))
    (asked,) = p.load
    assert (asked.partitions.tolist(), asked.attempts.tolist()) == ([0, 1, 2], [1, 0, 0])
    p.answer_load()
    assert p.scheduler.graph.result(0).info.subpartition_bytes.sum() == 60 and len(p.decisions("key ranges")) == 1
    assert p.run().status == "FINISHED"


def test_sketches_wait_in_the_scratch_files_and_leave_when_all_is_decided():
    p = two_steps(parallelism=2, buffer_bytes=0)
    p.finish(*p.keys(0))
    (asked,) = p.load
    assert asked.partitions.tolist() == [0, 1, 2] and not p.keys(1) and not p.decisions("key ranges")
    assert "are being read back" in waits_of(p.scheduler)[0]
    p.answer_load()
    info = p.scheduler.graph.result(0).info
    (decision,) = p.decisions("key ranges")
    assert decision.inputs["sketches"] == 3 and info.kept_row_bytes == 0 and of(p.commands, c.DropSizes)
    assert p.run().status == "FINISHED"


def test_a_sketch_that_cannot_be_read_back_is_made_do_without():
    p = two_steps(parallelism=2, buffer_bytes=0)
    p.finish(*p.keys(0))
    p.stored_sizes.pop((0, 1, 0))
    p.answer_load()
    (decision,) = p.decisions("key ranges")
    assert decision.inputs["sketches"] == 2 and len(p.decisions("sizes")) == 1
    assert p.scheduler.graph.result(0).info.subpartition_bytes.sum() == 60
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("sketch", [None, b"damaged"])
def test_a_producer_without_a_sketch_fails_the_job(sketch):
    p = two_steps()
    written = p.reports([p.tasks[key] for key in p.keys(0)])
    bad = replace(written.partitions[0], sketches=None if sketch is None else [sketch] * 3)
    reports = replace(written, partitions=(bad,))
    all_three = {"subtasks": ints(0, 1, 2), "attempts": ints(0, 0, 0)}
    p.send(e.ExecutionsFinished(at=p.tick(), vertex=0, reports=reports, **all_three))
    assert p.ended.status is c.JobStatus.FAILED and "sketch" in p.ended.cause.message


def test_range_exchanges_are_never_merged():
    builder = GraphBuilder()
    builder.step((builder.source([100] * 9), RANGE))
    p = plane(builder.graph).start()
    merging = p.scheduler.merging
    assert isinstance(merging, Merging) and not merging.is_open
    assert p.run().status == "FINISHED" and not of(p.commands, c.MergePartitions)


def test_the_record_says_why_these_ranges():
    order = Order((OrderColumn("a"), OrderColumn("b", False)), split_equal=True)
    dataset = replace(_dataset(), order=order)
    ranges = decide_ranges([sketched(p, np.array([1000, 0, 3000])) for p in range(2)], 2)
    said = explain(dataset, ranges)
    columns = [("a", True), ("b", False)]
    assert said["inputs"] == Sketched(dataset=0, columns=columns, split_equal=True, sketches=2, bytes=8000)
    assert said["result"]["ranges"] == 2 and said["result"]["error"] == 4
    assert "2 ranges of a, b descending over 7.81 KiB, from the sketches of 2 producers" in reason_in(said)
    told = json.decode(json.encode(said))
    assert Masker({}, home="").value(told) == told, "nothing in it looks like a secret"
    assert "may be parted" in reason_in(said)
    assert "there is nothing" in reason_in(explain(dataset, decide_ranges([], 4)))


def _dataset():
    builder = GraphBuilder()
    builder.dataset(builder.source(), RANGE)
    return builder.graph.datasets[0]


def test_what_is_kept_of_a_producer_does_not_grow_with_the_ranges():
    """Ten keys each, and a hundred times the ranges."""
    kept = []
    for n in (10, 1000):
        p = two_steps(sizes=lambda _v, _s, _d, n: np.repeat([7, 0], [10, n - 10]), parallelism=n)
        p.finish(*p.keys(0)[:2])
        kept.append(p.scheduler.graph.result(0).info.kept_row_bytes)
    assert kept[0] == kept[1] < 1000

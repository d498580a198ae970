"""A step of known cost gets its parallelism by the time that its subtasks take, within all bounds."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, reason_in

from firesteel.errors import UsageError
from firesteel.model.costs import MeasuredStep, StepCost, StepCosts
from firesteel.model.job_graph import ShipStrategy, SourceInfo
from firesteel.options import Options
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.kernel.records import Decision, JobPlanned
from firesteel.scheduler.parallelism import Bounds, ConsumedResult, decide_source, decide_vertex
from firesteel.scheduler.parallelism.asked import bounds_asked
from firesteel.scheduler.parallelism.replay import recalled
from firesteel.scheduler.parallelism.vertex_decider import Decider
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.simulation.what_if import compare

KIB, MIB = 1 << 10, 1 << 20


def bounds(rate=None, runs=2, **changes) -> Bounds:
    """``rate``: bytes a second."""
    values = {"minimum": 1, "maximum": 128, "fixed": None, "data_volume": 64 * MIB, "max_slices": 32768, "slots": 8}
    cost = None if rate is None else StepCost(1 / rate, runs)
    base = {"cut": "by-bytes", "least_volume": 4 * MIB, "cost": cost, "target_seconds": 0.25}
    return Bounds(**values | base | changes)


def even(mib, units=256, producers=16):
    sizes = np.full(units, int(mib * MIB) // units, np.int64)
    return ConsumedResult(
        0, ShipStrategy.HASH, True, producers, units, subpartition_bytes=sizes, total_bytes=int(sizes.sum())
    )


def broadcast(mib):
    return ConsumedResult(1, ShipStrategy.BROADCAST, False, 2, 1, total_bytes=mib * MIB, is_broadcast=True)


def test_the_reason_says_what_was_measured():
    plan = decide_vertex([even(8)], bounds(190 * KIB, slots=12))
    assert (plan.parallelism, plan.decision["rule"], plan.decision["bounds"]) == (12, "task duration", [])
    assert reason_in(plan.decision).startswith(
        "12 subtasks: 8 MiB at 190 KiB/s measured in 2 earlier runs, 3.6 s each, bounded by nothing; "
    )


@pytest.mark.parametrize(
    ("mib", "rate", "changes", "parallelism"),
    [
        (1, MIB, {}, 4),  # a second in all, a quarter each
        (8, MIB, {}, 8),  # no more than the slots, which a fixed cost of each subtask could make wait twice
        (8, MIB, {"maximum": 5}, 5),
        (8, MIB, {"vertex_maximum": 3}, 3),
        (8, MIB, {"fixed": 2}, 2),
        (8, MIB, {"cut": "by-count"}, 1),
        (8, MIB, {"target_seconds": 0.0}, 1),
        (8, MIB, {"target_seconds": 4.0}, 2),
        (12, 1024 * MIB, {}, 2),  # cheap, but slots would stand idle: as ever
        (12, None, {}, 2),
        (2048, 320 * MIB, {}, 16),  # 32 subtasks of 0.2 s: 16 of 0.4 s in two whole waves
        (2048, 640 * MIB, {}, 8),
        (2048, 640 * MIB, {"slots": 64}, 64),  # one wave already
        (2048, 1 << 40, {}, 8),  # four times the volume each, and not more
        (2048, 1 << 40, {"slots": 1}, 8),
        (2048, 1 << 40, {"slots": 1, "minimum": 20}, 20),
        (2048, 1 << 40, {"slots": 1, "max_slices": 256}, 16),
        (2048, 64 * MIB, {}, 32),  # a second each: as the volume asks for
        (600, 64 * MIB, {}, 16),
        (9 * 64, 640 * MIB, {"least_volume": 0}, 8),
    ],
)
def test_what_it_comes_to(mib, rate, changes, parallelism):
    assert decide_vertex([even(mib)], bounds(rate, **changes)).parallelism == parallelism


def test_a_broadcast_that_each_subtask_reads_again_has_to_pay():
    costly = bounds(4 * MIB)
    assert decide_vertex([even(8), broadcast(1)], costly).parallelism == 8
    assert decide_vertex([even(8), broadcast(60)], costly).parallelism == 2


@pytest.mark.parametrize(
    ("mib", "rebuilt", "slots", "parallelism", "of_source"),
    [
        (
            3 * 1024,
            100,
            2,
            8,
            2,
        ),  # of rows by keys, at most four volumes each; of rows that only pass, 64 times the 100 MiB
        (3 * 1024, 100, 8, 8, 8),
        (3 * 1024, 100, 100, 100, 100),  # no slot is idle for it
        (3 * 1024, 10, 2, 16, 6),  # 15 of 4 x (64 - 10) MiB, and 5 of 640 MiB, in whole waves
        (3 * 1024, 3, 2, 14, 14),  # 192 MiB are less than four volumes: by the time that subtasks take
        (200, 100, 2, 2, 2),
        (3 * 1024, 2000, 1, 1, 1),
    ],
)
def test_what_each_subtask_hashes_anew_is_a_small_part_of_its_work(mib, rebuilt, slots, parallelism, of_source):
    given = bounds(480 * MIB, slots=slots, rebuilt=rebuilt * MIB)
    plan = decide_vertex([even(mib), broadcast(rebuilt)], given)
    assert plan.parallelism == parallelism
    source = decide_source(SourceInfo(np.full(mib // 4, 4 * MIB, np.int64)), given)
    assert source.parallelism == of_source
    if (parallelism, of_source) == (8, 8):
        assert "384 MiB each, because each hashes 100 MiB of build sides" in reason_in(plan.decision)
        assert "384 MiB each, because each hashes 100 MiB of build sides" in reason_in(source.decision)
        assert decide_vertex(*recalled(plan.decision["inputs"])).parallelism == parallelism


def test_a_step_that_nobody_measured_and_the_engine_computes_gets_larger_subtasks():
    given = bounds(1024 * MIB, runs=0, slots=2)
    source = decide_source(SourceInfo(np.full(512, 4 * MIB, np.int64)), given)
    assert source.parallelism == 8
    assert "2 GiB at 1 GiB/s as DuckDB computes, 250 ms each" in reason_in(source.decision)


def test_one_heavy_subpartition_is_no_reason_for_more():
    sizes = np.array([8 * MIB, 0, 0, 0], np.int64)
    heavy = ConsumedResult(0, ShipStrategy.HASH, True, 4, 4, subpartition_bytes=sizes, total_bytes=8 * MIB)
    assert decide_vertex([heavy], bounds(MIB)).parallelism == 1


def test_a_source_gets_slots_for_a_costly_step_behind_it_and_fewer_waves_for_a_cheap_one():
    small = SourceInfo(np.full(16, MIB // 4, np.int64))
    assert decide_source(small, bounds()).parallelism == 4
    plan = decide_source(small, bounds(MIB, runs=1))
    assert (plan.parallelism, plan.decision["rule"]) == (8, "task duration")
    assert reason_in(plan.decision) == (
        "8 source subtasks: 4 MiB at 1 MiB/s measured in 1 earlier run, 500 ms each, bounded by nothing"
    )
    assert plan.decision["inputs"]["cost"] == {"seconds_per_byte": 1 / MIB, "runs": 1}
    large = SourceInfo(np.full(512, 4 * MIB, np.int64))
    assert decide_source(large, bounds()).parallelism == 32
    assert decide_source(large, bounds(320 * MIB)).parallelism == 16
    assert decide_source(large, bounds(640 * MIB), 5).parallelism == 5


def test_the_least_that_was_measured_counts():
    runs = [MeasuredStep(100, 5.0, 10), MeasuredStep(200, 4.0, 50), MeasuredStep(0, 1.0), MeasuredStep(50, 0.0)]
    assert StepCost.of(runs) == StepCost(0.02, 2, 0.2)
    assert StepCost.of(runs[2:]) is None


def test_a_users_decider_is_asked_and_told_of_it():
    """The parallelism that it is given is the one by duration."""
    seen = []

    def decide(step):
        seen.append(step.parallelism)
        return 3

    globals()["decide"] = decide
    decider = Decider(Options({"firesteel.decider.function": f"{__name__}:decide"}), DirectInputs())
    assert decider.decide([even(8)], bounds(MIB), "step").parallelism == 3
    assert seen == [8]


def test_a_record_gives_the_same_decision_again_and_others_by_what_if():
    plan = decide_vertex([even(8)], bounds(MIB))
    inputs, allowed = recalled(plan.decision["inputs"])
    assert decide_vertex(inputs, allowed).decision == plan.decision
    records = [
        JobPlanned(at=0.0, job_id="j", job_name="n", vertices=[{"id": 0, "name": "s"}], datasets=[], options={}),
        Decision(at=0.0, what="parallelism", vertex=0, name="s", **plan.decision),
    ]

    def would_be(**values):
        (one,) = compare(records, {key.replace("_", "-"): value for key, value in values.items()})
        return one.would_be.parallelism

    assert would_be(target_task_duration="4 s") == 2
    assert would_be(bytes_per_second="4 MiB") == 8
    assert would_be(bytes_per_second="1 GiB") == 1
    assert would_be(slots=32) == 32


def test_a_cost_can_be_asked_about():
    asked = bounds_asked({"bytes-per-second": "1 MiB", "slots": 8}, Options())
    assert asked.cost == StepCost(1 / MIB)
    assert decide_vertex([even(8)], asked).parallelism == 8
    for wrong in ("fast", 0, "-1 MiB"):
        with pytest.raises(UsageError, match="bytes-per-second"):
            bounds_asked({"bytes-per-second": wrong}, Options())


def costed(graph, rate):
    """Gives each vertex an identity, and all of them the same cost."""
    for vertex in graph.vertices:
        vertex.step = f"step-{vertex.id}"
    return StepCosts({vertex.step: StepCost(1 / rate) for vertex in graph.vertices})


def test_a_job_uses_it_for_steps_alone_in_their_forward_group():
    builder = GraphBuilder()
    source = builder.source([100] * 8)
    alone = builder.step((source, ShipStrategy.HASH))
    leader = builder.step((alone, ShipStrategy.HASH))
    builder.step((leader, ShipStrategy.FORWARD))
    costs = costed(builder.graph, 100.0)
    p = Plane(create_scheduler(builder.graph, Options(), Inputs(slots=4, costs=costs))).start()
    p.run()
    rules = [d.rule for d in (*p.decisions("source parallelism"), *p.decisions("parallelism"))]
    assert rules == ["task duration", "task duration", "by-bytes", "forward group"]


def test_of_steps_of_the_engine_those_that_hash_rows_by_keys_get_less_to_do():
    builder = GraphBuilder()
    source = builder.source([4 * MIB] * 128)
    builder.step((source, ShipStrategy.HASH))
    for vertex in builder.graph.vertices:
        vertex.by_engine = True
    scheduler = create_scheduler(builder.graph, Options(), Inputs(slots=2))
    p = Plane(scheduler, sizes=lambda _v, _s, _d, n: np.full(n, 256 * MIB // n, np.int64)).start()
    p.run()
    assert [d.result for d in p.decisions("source parallelism")] == [2], "512 MiB at 1 GiB/s take 0.5 s"
    assert [d.result["parallelism"] for d in p.decisions("parallelism")] == [10], (
        "they take 3.5 s: what the volume asks for, in falling waves"
    )

"""Slots that would stand idle are filled, as long as each subtask is worth its start."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, plane, reason_in

from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.parallelism import Bounds, ConsumedResult, bounds_within, decide_vertex
from firesteel.scheduler.parallelism.asked import bounds_asked, bounds_changed
from firesteel.scheduler.parallelism.replay import recalled

MIB = 1 << 20
HASH, BROADCAST = ShipStrategy.HASH, ShipStrategy.BROADCAST


def bounds(**changes) -> Bounds:
    values = {"minimum": 1, "maximum": 128, "fixed": None, "data_volume": 64 * MIB, "max_slices": 32768} | changes
    return Bounds(**{"cut": "by-bytes", "slots": 16, "least_volume": 4 * MIB, **values})


def keyed(sizes, partitions=16):
    sizes = np.array(sizes, dtype=np.int64)
    return ConsumedResult(0, HASH, True, partitions, len(sizes), subpartition_bytes=sizes, total_bytes=int(sizes.sum()))


def even(mib, subpartitions=256, partitions=16):
    return keyed(np.full(subpartitions, mib * MIB // subpartitions), partitions)


def broadcast(mib):
    return ConsumedResult(2, BROADCAST, False, 2, 1, total_bytes=mib * MIB, is_broadcast=True)


def test_360_mib_fill_16_slots_and_the_reason_says_so():
    plan = decide_vertex([even(360)], bounds())
    assert (plan.parallelism, plan.decision["rule"], plan.decision["bounds"]) == (16, "idle slots", [])
    assert reason_in(plan.decision) == (
        "16 subtasks: 360 MiB over 64 MiB each makes 6, and some of 16 slots would stand idle, bounded by nothing; "
        "largest range 22.5 MiB, smallest 22.5 MiB"
    )


@pytest.mark.parametrize(
    ("mib", "changes", "parallelism"),
    [
        (360, {"least_volume": 0}, 6),  # never
        (360, {"slots": 1}, 6),  # nobody knows of any
        (360, {"cut": "by-count"}, 8),  # the design's formula: the power of two closest to 6
        (360, {"maximum": 10}, 10),
        (360, {"vertex_maximum": 9}, 9),
        (360, {"fixed": 6}, 6),
        (20, {}, 4),  # 4 MiB each and 256 KiB for 16 producers, and not one more
        (22, {}, 5),
        (3, {}, 1),
        (0, {}, 1),
        (16 * 64, {}, 16),
        (17 * 64, {}, 32),  # a last wave of one would leave 15 idle
        (17 * 64, {"least_volume": 39 * MIB}, 26),  # 27 would have as large ones: ten subpartitions
        (60 * 64, {}, 64),
        (200, {"minimum": 20}, 32),
    ],
)
def test_as_many_as_leave_no_slot_idle_and_have_enough_to_do(mib, changes, parallelism):
    plan = decide_vertex([even(mib)], bounds(**changes))
    assert plan.parallelism == parallelism
    by_volume = decide_vertex([even(mib)], bounds(**{**changes, "slots": 1}))
    assert (plan.decision["rule"] == "idle slots") == (plan.parallelism > by_volume.parallelism)


def test_no_more_subtasks_than_make_the_largest_range_smaller():
    assert decide_vertex([keyed([60 * MIB, 10 * MIB, 10 * MIB, 10 * MIB])], bounds()).parallelism == 2
    assert decide_vertex([keyed([40 * MIB, 10 * MIB, 30 * MIB])], bounds()).parallelism == 2
    assert decide_vertex([keyed([40 * MIB, 20 * MIB, 30 * MIB])], bounds()).parallelism == 3
    assert decide_vertex([keyed([MIB])], bounds(least_volume=1)).parallelism == 1, "there is nothing to part"


def test_many_producers_are_opened_again_by_each_subtask():
    assert decide_vertex([even(360, partitions=1000)], bounds(max_slices=1 << 30)).parallelism == 16
    assert decide_vertex([even(360, partitions=2000)], bounds(max_slices=1 << 30)).parallelism == 10
    assert decide_vertex([even(360, partitions=10_000)], bounds(max_slices=1 << 30)).parallelism == 6


def test_broadcasts_are_read_again_by_each_subtask():
    assert decide_vertex([even(96), broadcast(8)], bounds()).parallelism == 12, "8 MiB each, beside 8 MiB"
    assert decide_vertex([even(96), broadcast(200)], bounds()).parallelism == 4, (
        "as the volume asks, of which half is left"
    )


def test_the_slots_bound_is_kept_as_well_as_the_slices():
    plan = decide_vertex([even(360)], bounds(max_slices=16 * 20))
    assert (plan.parallelism, plan.decision["rule"]) == (16, "idle slots")
    assert plan.decision["result"]["slices"] <= 16 * 20


def test_a_record_is_decided_again_alike_and_with_other_slots():
    plan = decide_vertex([even(360)], bounds())
    found = recalled(plan.decision["inputs"])
    assert found is not None
    inputs, again = found
    assert decide_vertex(inputs, again).decision == plan.decision
    assert decide_vertex(inputs, bounds_changed(again, {"slots": 32})).parallelism == 32
    assert decide_vertex(inputs, bounds_changed(again, {"least-volume-per-slot": 0})).parallelism == 6


def test_a_record_of_an_older_version_knows_no_slots():
    told = decide_vertex([even(360)], bounds()).decision["inputs"]
    told["allowed"] = {k: v for k, v in told["allowed"].items() if k not in ("slots", "least_volume")}
    found = recalled(told)
    assert found is not None and decide_vertex(*found).parallelism == 6


def test_a_request_may_say_how_many_slots_there_are():
    assert bounds_asked({"slots": 16}, Options()).slots == 16
    assert bounds_asked({}, Options()).slots == 1
    with pytest.raises(UsageError, match="Option 'slots' = 0 must be at least 1"):
        bounds_asked({"slots": 0}, Options())


def test_it_is_on_by_default():
    assert bounds_within(Options(), None).least_volume > 0


# --- in a job -----------------------------------------------------------------------------------------------------


def job(**options):
    builder = GraphBuilder()
    builder.source([1] * 4, parallelism=4)
    builder.step((0, HASH))
    sizes = lambda _v, _s, _d, n: np.full(n, 90 * MIB // n)  # noqa: E731
    return plane(builder.graph, sizes=sizes, **options).start()


def test_a_job_sees_the_slots_that_are_there_when_it_decides():
    p = job()
    p.worker("w1", slots=8)
    p.worker("w2", slots=8)
    p.run(0)
    assert p.parallelism(1) == 16
    (decision,) = p.decisions("parallelism")
    assert decision.inputs["allowed"]["slots"] == 16 and decision.rule == "idle slots"
    p = job()
    p.worker("w1", slots=8)
    p.worker("w2", slots=8)
    p.worker("w2", added=False)
    p.run(0)
    assert p.parallelism(1) == 8


def test_a_job_without_the_rule_goes_by_volume():
    p = job(least_volume_per_slot=0)
    p.worker("w1", slots=16)
    p.run(0)
    assert p.parallelism(1) == 6 and p.decisions("parallelism")[0].rule == "by-bytes"

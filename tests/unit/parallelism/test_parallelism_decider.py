"""The decider against numbers worked out by hand from FLIP-187."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.scheduler_kit import reason_in

from firesteel.errors import UsageError
from firesteel.model.job_graph import JobVertex, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.parallelism import Bounds, ConsumedResult, bounds_for, decide_vertex, global_maximum
from firesteel.scheduler.parallelism.model import SlotBound, closest_power_of_two
from firesteel.scheduler.parallelism.replay import pack_numbers, recalled, unpack_numbers

MIB = 1 << 20


def bounds(**changes):
    values = {
        "minimum": 1,
        "maximum": 128,
        "fixed": None,
        "data_volume": 64 * MIB,
        "max_slices": 32768,
        "cut": "by-bytes",
    } | changes
    return Bounds(**values)


def keyed(sizes, partitions=1, ship=ShipStrategy.HASH):
    sizes = np.array(sizes, dtype=np.int64)
    return ConsumedResult(0, ship, True, partitions, len(sizes), subpartition_bytes=sizes, total_bytes=int(sizes.sum()))


def celled(rows, ship=ShipStrategy.RESCALE):
    cells = np.array(rows, dtype=np.int64)
    return ConsumedResult(1, ship, False, *cells.shape, cells=cells, total_bytes=int(cells.sum()))


def broadcast(size, partitions=2):
    return ConsumedResult(2, ShipStrategy.BROADCAST, False, partitions, 1, total_bytes=size, is_broadcast=True)


def forward(sizes):
    cells = np.array(sizes, dtype=np.int64)[:, np.newaxis]
    return ConsumedResult(3, ShipStrategy.FORWARD, False, len(sizes), 1, cells=cells, total_bytes=int(cells.sum()))


def rects(plan, input_index=0):
    ranges = plan.ranges[input_index]
    return [ranges.of(k).tolist() for k in range(plan.parallelism)]


def subpartitions(plan, input_index=0):
    return [tuple(r[0][2:]) if r else None for r in rects(plan, input_index)]


# --- no more subtasks than help ------------------------------------------------------------------------------------


def test_70_equal_pieces_within_20_subtasks_need_18():
    plan = decide_vertex([keyed([MIB] * 70)], bounds(maximum=20, data_volume=MIB))
    assert plan.parallelism == 18 and plan.decision["result"]["largest"] == 4 * MIB
    assert plan.decision["bounds"] == ["max-parallelism 20, where 18 have as small a largest range"]


def test_two_producers_of_138_subpartitions_within_100_subtasks_need_69():
    cells = np.full((2, 138), MIB, dtype=np.int64)
    hashed = ConsumedResult(0, ShipStrategy.HASH, True, 2, 138, cells=cells)
    plan = decide_vertex([hashed], bounds(maximum=100, data_volume=2 * MIB - 1))
    assert plan.parallelism == 138 // 2 and plan.decision["result"]["largest"] == 4 * MIB
    assert [end - begin for begin, end in subpartitions(plan)] == [2] * 69


def test_every_subtask_that_helps_is_taken():
    plan = decide_vertex([keyed([MIB] * 80)], bounds(maximum=20, data_volume=MIB))
    assert plan.parallelism == 20 and plan.decision["bounds"] == ["max-parallelism 20"]
    plan = decide_vertex([keyed([MIB] * 70)], bounds(minimum=19, maximum=20, data_volume=MIB))
    assert plan.parallelism == 19, "the minimum stays the minimum"
    plan = decide_vertex([keyed([MIB] * 70)], bounds(vertex_maximum=20, data_volume=MIB))
    assert plan.decision["bounds"] == ["the step's max parallelism 20, where 18 have as small a largest range"]
    plan = decide_vertex([keyed([MIB] * 70)], bounds(fixed=20, data_volume=MIB))
    assert plan.parallelism == 20, "it was set"


# --- by count ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "power"),
    [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 4), (6, 8), (7, 8), (11, 8), (12, 16), (23, 16), (24, 32)],
)
def test_power_of_two_ties_go_up(n, power):
    assert closest_power_of_two(n) == power


@pytest.mark.parametrize(
    ("mib", "broadcast_mib", "parallelism"),
    [
        (64, 0, 1),
        (65, 0, 2),
        (192, 0, 4),  # 3 -> 4
        (320, 0, 4),  # 5 -> 4
        (384, 0, 8),  # 6 -> 8
        (741, 0, 16),  # 12, between 8 and 16
        (192, 16, 4),  # 192 / 48
        (192, 32, 8),  # 192 / 32 = 6
        (192, 1000, 8),  # no more than half the volume is taken by broadcasts
        (0, 0, 1),
        (10**6, 0, 128),
    ],
)
def test_seed_formula(mib, broadcast_mib, parallelism):
    inputs = [keyed([mib * MIB] + [0] * 511)] + ([broadcast(broadcast_mib * MIB)] if broadcast_mib else [])
    assert decide_vertex(inputs, bounds(cut="by-count")).parallelism == parallelism


def test_seed_formula_halves_an_odd_volume_exactly():
    # 3 - min(9, 1.5) = 1.5; ceil(6 / 1.5) = 4.
    plan = decide_vertex([keyed([6, 0, 0, 0]), broadcast(9)], bounds(cut="by-count", data_volume=3))
    assert plan.parallelism == 4


def test_seed_formula_kth_consumer_range():
    # floor(k * 7 / 3): 0, 2, 4, 7
    plan = decide_vertex([keyed([1] * 7, partitions=5)], bounds(cut="by-count", fixed=3))
    assert rects(plan) == [[[0, 5, 0, 2]], [[0, 5, 2, 4]], [[0, 5, 4, 7]]]


def test_by_count_rounds_bounds_to_powers_of_two():
    plan = decide_vertex([keyed([10_000 * MIB])], bounds(cut="by-count", maximum=100))
    assert plan.parallelism == 64
    assert plan.decision["bounds"] == ["max-parallelism 100 (64 as a power of two)"]
    plan = decide_vertex([keyed([1])], bounds(cut="by-count", minimum=5))
    assert plan.parallelism == 8
    assert plan.decision["bounds"] == ["min-parallelism 5 (8 as a power of two)"]


def test_by_count_the_steps_own_maximum_and_its_slots_are_powers_of_two_as_well():
    plan = decide_vertex([keyed([10_000 * MIB] + [0] * 99)], bounds(cut="by-count", vertex_maximum=100))
    assert plan.parallelism == 64
    assert plan.decision["bounds"] == ["the step's max parallelism 100 (64 as a power of two)"]
    plan = decide_vertex([keyed([1] * 8)], bounds(cut="by-count", minimum=8, slots_maximum=SlotBound(6, "default")))
    assert plan.parallelism == 4
    assert plan.decision["bounds"] == ["min-parallelism 8, cut to the 6 slots of group 'default' (4 as a power of two)"]


def test_by_count_empty_interval_is_a_configuration_error():
    with pytest.raises(UsageError, match=r"No power of two lies between min-parallelism 5 and max-parallelism 7"):
        decide_vertex([keyed([1])], bounds(cut="by-count", minimum=5, maximum=7))


def test_by_count_more_consumers_than_subpartitions_leaves_some_without_input():
    plan = decide_vertex([keyed([5, 5])], bounds(cut="by-count", fixed=5))
    assert [r for r in subpartitions(plan) if r] == [(0, 1), (1, 2)]
    assert plan.input_bytes.sum() == 10


def test_pointwise_by_count_with_more_producers():
    plan = decide_vertex([celled([[1, 2]] * 5)], bounds(cut="by-count", fixed=2))
    assert rects(plan) == [[[0, 2, 0, 2]], [[2, 5, 0, 2]]]
    assert plan.input_bytes.tolist() == [6, 9]


def test_pointwise_by_count_with_fewer_producers():
    # producer 0 serves ceil(0*5/2)..ceil(5/2)-1 = 0..2, producer 1 serves 3..4
    plan = decide_vertex([celled([[1, 2, 3, 4], [5, 6, 7, 8]])], bounds(cut="by-count", fixed=5))
    assert rects(plan) == [[[0, 1, 0, 1]], [[0, 1, 1, 2]], [[0, 1, 2, 4]], [[1, 2, 0, 2]], [[1, 2, 2, 4]]]
    assert plan.input_bytes.tolist() == [1, 2, 7, 11, 15]


def test_rebalance_by_count_reads_subpartitions_of_all_producers():
    plan = decide_vertex([celled([[1, 2], [3, 4]], ShipStrategy.REBALANCE)], bounds(cut="by-count", fixed=2))
    assert rects(plan) == [[[0, 2, 0, 1]], [[0, 2, 1, 2]]]


# --- by bytes ----------------------------------------------------------------------------------------------------


def test_by_bytes_takes_no_powers_of_two():
    plan = decide_vertex([keyed([64 * MIB] * 11)], bounds())
    assert plan.parallelism == 11
    assert plan.decision["bounds"] == []


def test_by_bytes_balances_what_the_limit_allows():
    # 3 ranges within 10: greedy alone would give 9, 9, 3.
    plan = decide_vertex([keyed([3] * 7)], bounds(data_volume=10))
    assert plan.input_bytes.tolist() == [6, 6, 9]


def test_broadcast_discount_lowers_the_limit():
    inputs = [keyed([16 * MIB] * 12), broadcast(16 * MIB)]
    plan = decide_vertex(inputs, bounds())
    assert plan.parallelism == 4
    assert rects(plan, 1) == [[[0, 2, 0, 1]]] * 4
    assert plan.input_bytes.tolist() == [64 * MIB] * 4
    assert decide_vertex([inputs[0], broadcast(900 * MIB)], bounds()).parallelism == 6


def test_a_giant_subpartition_is_its_own_range_and_named():
    plan = decide_vertex([keyed([10 * MIB, 70 * MIB, 10 * MIB, 10 * MIB])], bounds())
    assert subpartitions(plan) == [(0, 1), (1, 2), (2, 4)]
    assert plan.decision["bounds"] == ["largest subpartition 70 MiB"]
    assert plan.decision["result"] | {"slices": 0} == {
        "parallelism": 3,
        "largest": 70 * MIB,
        "smallest": 10 * MIB,
        "slices": 0,
    }


def test_several_keyed_inputs_are_walked_together():
    left, right = keyed([5, 1, 1, 5], partitions=3), keyed([1, 5, 5, 1], partitions=4)
    plan = decide_vertex([left, right], bounds(data_volume=12))
    assert plan.parallelism == 2
    assert rects(plan, 0) == [[[0, 3, 0, 2]], [[0, 3, 2, 4]]]
    assert rects(plan, 1) == [[[0, 4, 0, 2]], [[0, 4, 2, 4]]]


def test_keyed_inputs_of_different_width_are_refused():
    with pytest.raises(UsageError, match=r"input 0 has 2, input 1 has 3"):
        decide_vertex([keyed([1, 1]), keyed([1, 1, 1])], bounds())


def test_a_run_of_cells_becomes_three_rectangles():
    plan = decide_vertex([celled([[1, 1, 1]] * 5)], bounds(fixed=3))
    assert rects(plan) == [
        [[0, 1, 0, 3], [1, 2, 0, 2]],
        [[1, 2, 2, 3], [2, 3, 0, 3], [3, 4, 0, 1]],
        [[3, 4, 1, 3], [4, 5, 0, 3]],
    ]


def test_a_run_inside_one_producer_is_one_rectangle():
    plan = decide_vertex([celled([[4, 4, 4, 4]], ShipStrategy.REBALANCE)], bounds(data_volume=4))
    assert rects(plan) == [[[0, 1, k, k + 1]] for k in range(4)]


def test_inputs_of_different_kinds_share_one_line():
    plan = decide_vertex([keyed([4, 4], partitions=3), celled([[4], [4]])], bounds(data_volume=8))
    assert plan.parallelism == 2
    assert rects(plan, 0) == [[[0, 3, 0, 2]], []]
    assert rects(plan, 1) == [[], [[0, 2, 0, 1]]]


@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
def test_global_input_is_never_split(cut):
    plan = decide_vertex([keyed([500 * MIB], partitions=9, ship=ShipStrategy.GLOBAL)], bounds(cut=cut, minimum=4))
    assert plan.parallelism == 1
    assert rects(plan) == [[[0, 9, 0, 1]]]
    assert plan.decision["rule"] == "global"


@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
def test_forward_input_gives_its_producers_parallelism(cut):
    plan = decide_vertex([forward([5, 0, 7])], bounds(cut=cut))
    assert plan.parallelism == 3
    assert rects(plan) == [[[k, k + 1, 0, 1]] for k in range(3)]
    assert plan.input_bytes.tolist() == [5, 0, 7]
    assert plan.decision["rule"] == "forward group"


def test_forward_beside_a_keyed_input_cuts_that_into_as_many():
    plan = decide_vertex([forward([1, 1]), keyed([3, 3, 3, 3])], bounds())
    assert subpartitions(plan, 1) == [(0, 2), (2, 4)]
    assert plan.input_bytes.tolist() == [7, 7]


def test_forward_inputs_that_disagree_are_refused():
    with pytest.raises(UsageError, match="forward inputs have 2, 3 partitions"):
        decide_vertex([forward([1, 1]), forward([1, 1, 1])], bounds())
    with pytest.raises(UsageError, match="fixed to 4"):
        decide_vertex([forward([1, 1])], bounds(fixed=4))


def test_fixed_parallelism_above_the_units_leaves_the_last_without_input():
    plan = decide_vertex([keyed([5, 5])], bounds(fixed=4))
    assert subpartitions(plan) == [(0, 1), (1, 2), None, None]
    assert plan.decision["rule"] == "fixed"
    assert reason_in(plan.decision).startswith("4 subtasks, as set; 10 B cut by-bytes")


@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
def test_empty_input_takes_the_minimum(cut):
    assert decide_vertex([keyed([0] * 512, partitions=1000)], bounds(cut=cut)).parallelism == 1
    plan = decide_vertex([keyed([0] * 512)], bounds(cut=cut, minimum=4))
    assert subpartitions(plan) == [(0, 128), (128, 256), (256, 384), (384, 512)]
    assert plan.decision["bounds"] == ["min-parallelism 4"]


@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
def test_only_broadcast_inputs_take_the_minimum(cut):
    plan = decide_vertex([broadcast(900 * MIB)], bounds(cut=cut, minimum=2))
    assert plan.parallelism == 2
    assert plan.input_bytes.tolist() == [900 * MIB] * 2


def test_maximum_is_a_bound_hit():
    plan = decide_vertex([keyed([64 * MIB] * 512)], bounds())
    assert plan.parallelism == 128
    assert plan.decision["bounds"] == ["max-parallelism 128"]
    assert reason_in(plan.decision).endswith(
        "32 GiB over 64 MiB each, bounded by max-parallelism 128; largest range 256 MiB, smallest 256 MiB"
    )


def test_the_steps_own_maximum_cuts_both_bounds_and_is_named():
    plan = decide_vertex([keyed([64 * MIB] * 512)], bounds(vertex_maximum=6))
    assert (plan.parallelism, plan.decision["bounds"]) == (6, ["the step's max parallelism 6"])
    plan = decide_vertex([keyed([1] * 512)], bounds(minimum=8, vertex_maximum=6))
    assert (plan.parallelism, plan.decision["bounds"]) == (
        6,
        ["min-parallelism 8, cut to the step's max parallelism 6"],
    )
    plan = decide_vertex([keyed([64 * MIB] * 512)], bounds(minimum=8, vertex_maximum=6, cut="by-count"))
    assert (plan.parallelism, plan.decision["bounds"]) == (4, ["the step's max parallelism 6 (4 as a power of two)"])


def test_slices_make_more_subtasks():
    plan = decide_vertex([keyed([1] * 16, partitions=10)], bounds(max_slices=40))
    assert plan.parallelism == 4
    assert plan.decision["result"]["slices"] == 40
    assert plan.decision["bounds"] == ["max-slices-per-subtask 40"]


def test_broadcast_partitions_count_as_slices():
    plan = decide_vertex([keyed([1] * 16, partitions=10), broadcast(1, partitions=20)], bounds(max_slices=40))
    assert plan.parallelism == 8
    assert plan.decision["result"]["slices"] == 40


def test_slices_beyond_the_maximum_take_the_maximum_and_say_so():
    plan = decide_vertex([keyed([1] * 16, partitions=10)], bounds(max_slices=40, maximum=3))
    assert plan.parallelism == 3
    assert plan.decision["bounds"] == ["max-slices-per-subtask 40 (cannot be met within parallelism 3, left out)"]


def test_slices_that_no_parallelism_can_meet_are_left_out():
    plan = decide_vertex([keyed([1] * 16, partitions=50)], bounds(max_slices=40))
    assert plan.parallelism == 1
    assert plan.decision["bounds"] == ["max-slices-per-subtask 40 (cannot be met by any parallelism, left out)"]


def test_slices_bind_a_fixed_parallelism_where_it_can_meet_them():
    giant = keyed([100, 1, 1, 1, 1, 1], partitions=2)
    assert subpartitions(decide_vertex([giant], bounds(fixed=2))) == [(0, 1), (1, 6)]
    plan = decide_vertex([giant], bounds(fixed=2, max_slices=8))
    assert subpartitions(plan) == [(0, 2), (2, 6)]
    assert plan.decision["bounds"] == ["max-slices-per-subtask 8"]
    plan = decide_vertex([giant], bounds(fixed=2, max_slices=4))
    assert plan.decision["bounds"] == ["max-slices-per-subtask 4 (cannot be met with parallelism 2, left out)"]


def test_reason_is_the_sentence_of_the_decision():
    plan = decide_vertex([keyed([MIB] * 741)], bounds())
    assert reason_in(plan.decision) == (
        "12 subtasks: 741 MiB over 64 MiB each, bounded by nothing; largest range 62 MiB, smallest 61 MiB"
    )
    plan = decide_vertex([keyed([16 * MIB] * 3), broadcast(16 * MIB)], bounds())
    assert reason_in(plan.decision) == (
        "1 subtask: 48 MiB over 48 MiB each (64 MiB less 16 MiB for 16 MiB broadcast), bounded by nothing; "
        "largest range 48 MiB, smallest 48 MiB"
    )
    assert plan.decision["inputs"]["limit"] == 48 * MIB


def test_fixed_by_count_needs_no_sizes():
    unknown = ConsumedResult(0, ShipStrategy.HASH, True, 3, 8)
    plan = decide_vertex([unknown], bounds(fixed=4, cut="by-count"))
    assert subpartitions(plan) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert plan.input_bytes is None


def test_sums_near_two_to_the_53_are_exact():
    big = 2**53
    plan = decide_vertex([keyed([big, big + 1, big, 1])], bounds(data_volume=big + 1))
    assert plan.input_bytes.tolist() == [big, big + 1, big + 1]


def test_impossible_sizes_are_refused():
    with pytest.raises(UsageError, match="-1 bytes is negative"):
        decide_vertex([keyed([1, -1])], bounds())
    with pytest.raises(UsageError, match="4 EiB"):
        decide_vertex([keyed([2**62, 2**62])], bounds())
    with pytest.raises(UsageError, match="shape"):
        decide_vertex([ConsumedResult(0, ShipStrategy.HASH, True, 1, 3, np.array([1, 2]))], bounds())
    with pytest.raises(UsageError, match="Both must be at least 1"):
        decide_vertex([keyed([1])], bounds(data_volume=0))
    with pytest.raises(UsageError, match="without inputs"):
        decide_vertex([], bounds())


def test_ranges_are_int32_columns():
    ranges = decide_vertex([celled([[1, 2], [3, 4]])], bounds(fixed=3)).ranges[0]
    assert (ranges.offsets.dtype, ranges.rects.dtype) == (np.int32, np.int32)
    assert ranges.rects.shape[1] == 4


# --- bounds ------------------------------------------------------------------------------------------------------


def vertex(**changes):
    return JobVertex(0, "count", "uid", **changes)


def test_effective_global_maximum():
    assert global_maximum(Options()) == (128, "max-parallelism")
    assert global_maximum(Options({"parallelism.default": 2})) == (2, "parallelism.default")
    assert global_maximum(Options({"parallelism.default": 2, "max-parallelism": 9})) == (9, "max-parallelism")


def test_bounds_of_a_vertex():
    found = bounds_for(vertex(max_parallelism=16), Options({"min-parallelism": 2, "data-volume-per-task": "16 MiB"}))
    assert (found.minimum, found.maximum, found.vertex_maximum, found.fixed) == (2, 128, 16, None)
    assert (found.data_volume, found.max_slices, found.cut) == (16 * MIB, 32768, "by-bytes")
    assert found.interval() == (2, 16)


def test_a_set_parallelism_wins_over_the_forward_group():
    assert bounds_for(vertex(parallelism=7), Options({"max-parallelism": 4}), 7).fixed_rule == "fixed"
    found = bounds_for(vertex(), Options(), 7)
    assert (found.fixed, found.fixed_rule) == (7, "forward group")
    assert decide_vertex([keyed([1] * 8)], found).decision["rule"] == "forward group"


def test_bounds_that_exclude_each_other_name_both_keys():
    with pytest.raises(UsageError, match="min-parallelism 9 and max-parallelism 4"):
        bounds_for(vertex(), Options({"min-parallelism": 9, "max-parallelism": 4}))
    with pytest.raises(UsageError, match=r"min-parallelism 9 and parallelism\.default 4"):
        bounds_for(vertex(), Options({"min-parallelism": 9, "parallelism.default": 4}))
    with pytest.raises(UsageError, match="step 'count' has parallelism 9, above its max parallelism 4"):
        bounds_for(vertex(parallelism=9, max_parallelism=4), Options())


def test_a_cut_by_bytes_can_be_made_again_from_its_record():
    inputs = [keyed([5, 1, 7, 2]), celled([[1, 2], [3, 4]], ShipStrategy.REBALANCE)]
    plan = decide_vertex(inputs, bounds(data_volume=6))
    seen = plan.decision["inputs"]["sizes"]
    assert seen == [[5, 1, 7, 2], [1, 2, 3, 4]]
    again = decide_vertex(
        [keyed(seen[0]), celled(np.reshape(seen[1], (2, 2)), ShipStrategy.REBALANCE)], bounds(data_volume=6)
    )
    assert again.decision == plan.decision


def recalled_plan(inputs, limits):
    """Decided, written down, read back and decided again."""
    plan = decide_vertex(inputs, limits)
    read = json.loads(json.dumps(plan.decision["inputs"]))
    results, found = recalled(read)
    again = decide_vertex(results, found)
    assert again.decision == plan.decision
    assert [r.rects.tolist() for r in again.ranges] == [r.rects.tolist() for r in plan.ranges]
    return read


def test_a_decision_can_be_made_again_from_its_record_alone():
    rng = np.random.default_rng(1)
    many = rng.integers(0, 300 * MIB, 5000)
    for cut in ("by-bytes", "by-count"):
        limits = bounds(cut=cut, maximum=64)
        read = recalled_plan([keyed(many, partitions=7), broadcast(5 * MIB)], limits)
        assert "sizes" not in read and len(read["packed_sizes"][0]) < 32_000
        recalled_plan([keyed([5, 1, 7, 2]), celled([[1, 2], [3, 4]], ShipStrategy.REBALANCE)], limits)
        recalled_plan([celled([[1, 2], [3, 4]]), forward([3, 5])], limits)
        recalled_plan([keyed([5, 1, 7, 2])], replace(limits, fixed=3, vertex_maximum=5))
    assert recalled(decide_vertex([keyed([1] * 70_000)], bounds()).decision["inputs"]) is None, "too many to keep"


def test_packed_numbers():
    for numbers in ([], [0], [255, 0], [256], [1 << 33, 1], [(1 << 62) - 1]):
        assert unpack_numbers(pack_numbers(numbers)).tolist() == numbers
    for text in ("", "4", "3:AAAA", "4:AAAA"):
        with pytest.raises(ValueError, match="no packed numbers"):
            unpack_numbers(text)

"""Groups against the edges they stand for, sizes of results, numbers of subpartitions."""

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, ints, plane, reason_in

from firesteel.model.job_graph import IntermediateDataSet, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.exchange.result_info import (
    BlockingResultInfo,
    PointwiseBlockingResultInfo,
    blocking_result_info,
)
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.kernel.events import PartitionReports
from firesteel.scheduler.parallelism.subpartitions import SubpartitionCounts
from firesteel.scheduler.topology.groups import EdgeGroups

HASH, RESCALE, FORWARD = ShipStrategy.HASH, ShipStrategy.RESCALE, ShipStrategy.FORWARD
BROADCAST, GLOBAL, REBALANCE = ShipStrategy.BROADCAST, ShipStrategy.GLOBAL, ShipStrategy.REBALANCE


def blocks(*spans):
    """InputRanges of consumers that read partitions [first, end) whole."""
    rects = [(first, end, 0, 1) for first, end in spans if end > first]
    offsets = np.concatenate(([0], np.cumsum([end > first for first, end in spans])))
    return InputRanges(offsets.astype(np.int32), np.array(rects, np.int32).reshape(-1, 4))


def none(n):
    return np.zeros(n, np.bool_)


def groups(edge):
    return [edge[k] for k in range(len(edge))]


# --- groups --------------------------------------------------------------------------------------------------


def test_all_to_all_is_one_pair():
    edge = EdgeGroups.all_to_all(0, 1, 5, none(4))
    assert len(edge) == 1 and edge[0].consumers.end == 5 and (edge[0].first, edge[0].end) == (0, 4)
    assert edge.became_available(ints(0, 2)).tolist() == []
    assert not edge.ready(ints(0, 4)).any()
    assert edge.became_available(ints(1, 3)).tolist() == [0]
    assert edge.ready(ints(0, 4)).all() and edge.consumers(ints(0)).tolist() == [0, 1, 2, 3, 4]
    edge.became_unavailable(ints(2))
    assert edge[0].unavailable == 1


def test_pointwise_is_one_pair_per_block():
    edge = EdgeGroups.pointwise(0, 1, blocks((0, 2), (2, 3), (2, 3), (3, 5)), none(5))
    assert [(g.first, g.end, g.consumers.first, g.consumers.end) for g in groups(edge)] == [
        (0, 2, 0, 1),
        (2, 3, 1, 3),
        (3, 5, 3, 4),
    ]
    assert edge.became_available(ints(1, 2)).tolist() == [1]
    assert edge.ready(ints(0, 1, 2, 3)).tolist() == [False, True, True, False]
    assert edge.groups_of_partitions(ints(2, 4)).tolist() == [1, 2]
    assert edge.partitions(edge.groups_of_consumers(ints(1, 3))).tolist() == [2, 3, 4]


def test_blocks_may_share_a_producer_and_consumers_may_be_idle():
    edge = EdgeGroups.pointwise(0, 1, blocks((0, 2), (1, 3), (0, 0)), none(3))
    assert edge.ready(ints(0, 1, 2)).tolist() == [False, False, True]
    assert edge.became_available(ints(1)).tolist() == []
    assert edge.became_available(ints(0)).tolist() == [0]
    assert edge.consumers(edge.groups_of_partitions(ints(1))).tolist() == [0, 1]


def test_a_single_block_that_reads_less_than_everything_counts_only_its_own():
    edge = EdgeGroups.pointwise(0, 1, blocks((1, 2)), none(3))
    assert edge.became_available(ints(0)).tolist() == []
    assert edge.became_available(ints(1)).tolist() == [0]


def test_a_group_made_late_counts_what_is_there_already():
    available = np.array([True, False, True])
    assert EdgeGroups.all_to_all(0, 1, 2, available)[0].unavailable == 1
    assert [g.unavailable for g in groups(EdgeGroups.pointwise(0, 1, blocks((0, 1), (1, 3)), available))] == [0, 1]


@pytest.mark.parametrize("n", [100, 1000])
def test_groups_hold_no_product(n):
    assert EdgeGroups.all_to_all(0, 1, n, none(n)).elements == 5
    spans = [(k, k + 2) for k in range(n - 1)]
    assert EdgeGroups.pointwise(0, 1, blocks(*spans), none(n)).elements <= 10 * n


# --- sizes ---------------------------------------------------------------------------------------------------


def info_of(ship, producers, n):
    return blocking_result_info(IntermediateDataSet(0, 0, ship), producers, n)


def record(info, partitions, given, attempt=0):
    info.record(partitions, np.full(len(partitions), attempt), given)


def reports(*sizes, rows=1, stored=1):
    """One report per list of sizes."""
    return PartitionReports.of(0, [ints(*row) for row in sizes], rows, stored)


def test_sizes_are_folded_on_arrival_and_erased_on_restart():
    info = info_of(HASH, 3, 2)
    record(info, ints(0, 2), reports([10, 1], [0, 300], rows=ints(4, 6), stored=ints(3, 5)))
    assert info.subpartition_bytes.tolist() == [10, 301] and info.partition_bytes.tolist() == [11, 0, 300]
    assert (info.num_bytes_produced, info.rows, info.stored_bytes) == (311, 10, 8)
    info.erase(ints(2))
    assert info.subpartition_bytes.tolist() == [10, 1] and info.num_bytes_produced == 11
    info.erase(ints(2))
    record(info, ints(2, 1), reports([5, 5], [70_000, 0]))
    assert info.subpartition_bytes.tolist() == [70_015, 6]


def test_a_second_report_replaces_the_first():
    info = info_of(HASH, 1, 2)
    record(info, ints(0), reports([10, 1]))
    record(info, ints(0), reports([3, 4]))
    assert info.subpartition_bytes.tolist() == [3, 4] and info.num_bytes_produced == 7


def test_a_broadcast_counts_once():
    info = info_of(BROADCAST, 2, 1)
    record(info, ints(0, 1), reports([100], [50]))
    assert info.is_broadcast and info.num_bytes_produced == 150


def test_after_the_decision_restarts_leave_the_sums_alone():
    info = info_of(HASH, 2, 2)
    record(info, ints(0, 1), reports([10, 1], [20, 2]))
    info.forget_rows()
    assert info.kept_row_bytes == 0
    info.erase(ints(1))
    record(info, ints(1), reports([9, 9]))
    assert info.subpartition_bytes.tolist() == [30, 3] and info.partition_bytes.tolist() == [11, 18]


def test_cells_are_what_was_reported():
    info = info_of(RESCALE, 3, 2)
    record(info, ints(2, 0), reports([1, 2], [1 << 40, 300]))
    assert info.cells().tolist() == [[1 << 40, 300], [0, 0], [1, 2]]
    assert info.cells().dtype == np.int64


def test_the_kind_of_info_follows_the_pattern():
    assert type(info_of(HASH, 1, 1)) is BlockingResultInfo
    assert isinstance(info_of(RESCALE, 1, 1), PointwiseBlockingResultInfo)
    assert info_of(REBALANCE, 1, 1).needs_cells and not info_of(BROADCAST, 1, 1).needs_cells


# --- subpartitions -------------------------------------------------------------------------------------------


def counts(graph, maximum=8, **known):
    """``known``: v3=5 means that vertex 3 has parallelism 5."""
    fixed = {int(k[1:]): n for k, n in known.items()}
    return SubpartitionCounts(graph, Options({"subpartition-factor": 4}), lambda v: fixed.get(v.id), lambda _v: maximum)


def counted(builder, dataset, producers, **known):
    return counts(builder.graph, **known).count(builder.graph.datasets[dataset], producers)


@pytest.mark.parametrize(
    ("ship", "expected"), [(HASH, 32), (REBALANCE, 28), (RESCALE, 7), (FORWARD, 1), (BROADCAST, 1), (GLOBAL, 1)]
)
def test_maximum_times_factor_unless_the_consumer_is_known(ship, expected):
    builder = GraphBuilder()
    builder.step((builder.source(), ship))
    assert counted(builder, 0, 5) == expected


def test_a_rebalanced_result_has_cells_for_its_target_not_for_all_producers_times_that():
    builder = GraphBuilder()
    builder.step((builder.source(), REBALANCE))
    assert [counted(builder, 0, n) for n in (1, 4, 8, 32, 1000)] == [32, 32, 16, 4, 4]


@pytest.mark.parametrize(("ship", "expected"), [(HASH, 6), (RESCALE, 2), (FORWARD, 1)])
def test_a_known_consumer(ship, expected):
    builder = GraphBuilder()
    builder.step((builder.source(), ship))
    assert counted(builder, 0, 5, v1=6) == expected


def test_co_partitioned_data_sets_have_equally_many_through_chains_of_joins():
    builder = GraphBuilder()
    a, b, d = builder.source(), builder.source(), builder.source()
    builder.step((a, HASH), (b, HASH))
    builder.step((b, HASH), (d, HASH))
    for dataset in range(3):
        assert counted(builder, dataset, 1, v3=100) == 100
    explained = counts(builder.graph, v3=100).explain(builder.graph.datasets[2], 1)
    assert explained["result"] == 100 and explained["inputs"].co_partitioned_with == [0, 1]


def many(*, known=0, splits=20_000, **step):
    """A source that may have very many subtasks, and a step that asks for 40,000 subpartitions."""
    builder = GraphBuilder()
    source = builder.source([1] * splits, **({"parallelism": known} if known else {}))
    builder.step((source, HASH), **step)
    fixed = {"v0": known} if known else {}
    if "parallelism" in step:
        fixed["v1"] = step["parallelism"]
    made = counts(builder.graph, maximum=step.get("max_parallelism", 10_000), **fixed)
    return made.explain(builder.graph.datasets[0], 5)


def test_above_10_000_producers_there_are_few_subpartitions():
    explained = many(known=10_001)
    assert (explained["result"], explained["rule"]) == (4096, "many producers")
    assert "bounded by 4096, as there may be over 10000 producers" in reason_in(explained)
    assert many(known=10_000)["result"] == 40_000
    assert many(known=10_001, parallelism=5_000) == many(known=10_000, parallelism=5_000)
    assert many(known=10_001, parallelism=5_000)["result"] == 5_000, "the consumer's parallelism is known"


def test_how_many_producers_there_may_be():
    assert many(max_parallelism=10_001)["rule"] == "many producers"
    assert many(max_parallelism=10_001, splits=10_000)["result"] == 40_004, "no more than it has splits"
    builder = GraphBuilder()
    builder.step((builder.source([1] * 20_000), REBALANCE))
    assert counts(builder.graph, maximum=20_000).count(builder.graph.datasets[0], 20_000) == 16
    # One of two that are consumed together is enough.
    builder = GraphBuilder()
    builder.step((builder.source([1]), HASH), (builder.source([1] * 20_000), HASH))
    assert counts(builder.graph, maximum=20_000).count(builder.graph.datasets[0], 1) == 4096


def by_count(*consumers, maximum=100, factor=2, producers=1):
    """The record of a result that these steps read, cut by count."""
    builder = GraphBuilder()
    builder.source([1] * producers)
    for fields in consumers:
        builder.step((0, HASH), **fields)
    options = Options({"cut": "by-count", "subpartition-factor": factor})
    known = lambda v: v.parallelism if v.parallelism > 0 else None  # noqa: E731
    made = SubpartitionCounts(builder.graph, options, known, lambda _v: maximum)
    return made.explain(builder.graph.datasets[0], producers)


def test_by_count_the_maximum_is_a_power_of_two_before_it_is_multiplied():
    told = by_count({})
    assert told["result"] == 128
    assert reason_in(told) == (
        "128 subpartitions: consumer vertex 1 asks for 128 (its maximum 100, 64 as a power of two, x 2)"
    )
    assert reason_in(by_count({}, maximum=64)).endswith("(its maximum 64 x 2)")
    assert by_count({}, factor=3)["result"] == 192, "64 and all that divides it divides 192"


def test_by_count_a_known_parallelism_beside_makes_a_multiple():
    told = by_count({}, {"parallelism": 150})
    assert told["result"] == 192
    assert reason_in(told).endswith("made a multiple of 64, which any parallelism decided by count divides")
    assert by_count({"parallelism": 150})["result"] == 150, "nothing is decided"


def test_by_count_many_producers_leave_a_subpartition_for_each_subtask():
    assert by_count({}, maximum=20_000, producers=20_000)["result"] == 16_384
    assert by_count({}, maximum=3_000, producers=20_000)["result"] == 4_096


def test_an_excessive_maximum_is_warned_about():
    builder = GraphBuilder()
    builder.step((builder.source(), HASH))
    assert not plane(builder.graph, max_parallelism=8192).start().decisions("warning")
    (warning,) = plane(builder.graph, max_parallelism=8193).start().decisions("warning")
    assert "32772 subpartitions" in warning.reason and "max-parallelism" in warning.reason

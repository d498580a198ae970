"""Source inference and split assignment."""

import numpy as np
import pytest
from tests.scheduler_kit import reason_in

from firesteel.model.job_graph import SourceInfo
from firesteel.scheduler.parallelism import Bounds, decide_source

MIB = 1 << 20


def split_lists(splits):
    return [splits.of(k).tolist() for k in range(splits.parallelism)]


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


def info(sizes, **changes):
    return SourceInfo(np.array(sizes, dtype=np.int64), **changes)


@pytest.mark.parametrize(
    ("mib", "default", "changes", "parallelism", "bound"),
    [
        ([64] * 10, None, {}, 10, []),
        ([16] * 10, None, {}, 3, []),
        ([500, 500], None, {}, 2, ["the number of splits"]),
        ([64] * 200, None, {}, 128, ["max-parallelism 128"]),
        ([64] * 200, 5, {}, 5, ["default-source-parallelism 5"]),
        ([64] * 200, 150, {}, 150, ["default-source-parallelism 150"]),
        ([64] * 200, 50, {"vertex_maximum": 7}, 7, ["the step's max parallelism 7"]),
        ([0] * 4, None, {}, 4, ["the number of splits"]),
        ([0] * 400, 6, {}, 6, ["default-source-parallelism 6"]),
        ([], None, {"minimum": 3}, 1, []),
        ([16] * 10, None, {"slots": 6}, 6, []),
        ([1] * 3, None, {"slots": 8}, 3, []),
        ([0.001] * 16, None, {"slots": 8}, 1, []),
        ([1] * 30, 4, {"slots": 8}, 4, ["default-source-parallelism 4"]),
    ],
)
def test_inferred_from_bytes_and_splits(mib, default, changes, parallelism, bound):
    plan = decide_source(info([int(m * MIB) for m in mib]), bounds(**changes), default)
    assert plan.parallelism == parallelism
    assert plan.decision["bounds"] == bound
    assert plan.splits.indexes.tolist() == list(range(len(mib)))
    assert plan.splits.parallelism == parallelism


def test_what_is_set_wins_over_what_is_inferred():
    plan = decide_source(info([64 * MIB] * 10, inferred_parallelism=9), bounds(fixed=3), 2)
    assert (plan.parallelism, plan.decision["rule"]) == (3, "fixed")


def test_the_sources_own_answer_wins_over_bytes():
    plan = decide_source(info([64 * MIB] * 10, inferred_parallelism=4), bounds())
    assert (plan.parallelism, plan.decision["rule"]) == (4, "inferred by the source")
    plan = decide_source(info([64 * MIB] * 10, inferred_parallelism=400), bounds())
    assert (plan.parallelism, plan.decision["bounds"]) == (128, ["max-parallelism 128"])
    assert decide_source(info([64 * MIB] * 10, inferred_parallelism=0), bounds()).parallelism == 10


def test_a_parallelism_by_nature_wins_over_all():
    plan = decide_source(info([1] * 6, fixed_parallelism=6), bounds(fixed=2, maximum=4))
    assert plan.parallelism == 6
    assert split_lists(plan.splits) == [[k] for k in range(6)]
    assert plan.decision["bounds"] == ["the source itself, which fixes 6 where 2 was set"]


def test_splits_stay_in_order_and_even():
    plan = decide_source(info([5, 1, 1, 1, 4, 4]), bounds(fixed=3))
    assert split_lists(plan.splits) == [[0, 1], [2, 3, 4], [5]]
    assert plan.input_bytes.tolist() == [6, 6, 4]
    assert plan.assignment["result"] == {"cuts": [0, 2, 5, 6], "largest": 6, "smallest": 4}


def test_more_subtasks_than_splits_leaves_the_last_without():
    plan = decide_source(info([3, 3]), bounds(fixed=4))
    assert split_lists(plan.splits) == [[0], [1], [], []]
    assert plan.input_bytes.tolist() == [3, 3, 0, 0]


def test_reasons_are_sentences_with_numbers():
    plan = decide_source(info([64 * MIB] * 10), bounds())
    assert reason_in(plan.decision) == "10 source subtasks: 640 MiB in 10 splits over 64 MiB each, bounded by nothing"
    assert reason_in(plan.assignment) == (
        "10 splits in order over 10 subtasks, 1 each; largest share 64 MiB, smallest 64 MiB"
    )
    assert reason_in(decide_source(info([]), bounds()).decision) == (
        "1 source subtask: there is nothing to read, bounded by nothing"
    )


def test_splits_are_columns_of_which_a_deployment_gets_its_own():
    splits = decide_source(SourceInfo(np.full(6, MIB)), bounds(fixed=4)).splits
    assert split_lists(splits) == [[0, 1], [2], [3, 4], [5]]
    assert split_lists(splits.select(np.array([3, 1]))) == [[5], [2]]
    assert split_lists(splits.select(np.array([0, 1, 2, 3]))) == split_lists(splits)
    assert split_lists(splits.select(np.array([1, 0, 3, 2]))) == [[2], [0, 1], [5], [3, 4]]
    assert split_lists(splits.select(np.array([], np.int64))) == []


def test_a_record_does_not_list_very_many_cuts():
    assert len(decide_source(SourceInfo(np.ones(4000)), bounds(fixed=4000)).assignment["result"]["cuts"]) == 4001
    assert "cuts" not in decide_source(SourceInfo(np.ones(5000)), bounds(fixed=5000)).assignment["result"]

"""Bounds of what is divided: how heavy a subpartition has to be, and that there are subtasks for what is left."""

from __future__ import annotations

import numpy as np
import pytest

from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.parallelism.model import ConsumedResult
from firesteel.scheduler.parallelism.skew import skew_of


def sides(heavy: int, other: int = 10, count: int = 16) -> list[ConsumedResult]:
    """A join whose left side has one subpartition of these bytes and others of ``other``; the right side has next to nothing."""
    sizes = np.full(count, other, np.int64), np.ones(count, np.int64)
    sizes[0][5] = heavy
    return [
        ConsumedResult(
            n, ShipStrategy.HASH, True, 3, count, each, total_bytes=int(each.sum()), divisible=n == 0, indivisible=""
        )
        for n, each in enumerate(sizes)
    ]


@pytest.mark.parametrize(("heavy", "is_divided"), [(110, False), (190, True), (240, True), (1000, True)])
def test_heavy_is_a_quarter_more_than_a_subtask_should_get(heavy, is_divided):
    found = skew_of(sides(heavy), subtasks=16, target=100, slots=8)
    assert (found.division is not None) == is_divided


@pytest.mark.parametrize("subtasks", range(2, 14))
def test_a_subtask_is_left_for_what_is_not_divided(subtasks):
    found = skew_of(sides(5000), subtasks=subtasks, target=100, slots=64)
    parts = found.num_subtasks
    assert parts + 1 <= subtasks and (parts >= 2 or subtasks < 3), "and no more are left than that"
    assert subtasks < 3 or parts >= subtasks - 2

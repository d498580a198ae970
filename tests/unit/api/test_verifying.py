"""How the check of accelerated queries compares rows, and which queries it draws."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from firesteel.api.acceleration.verifying import Comparison, is_drawn


def differs(ours: dict, theirs: dict, **how) -> str:
    return Comparison(**how).difference(pa.table(ours), pa.table(theirs))


def test_rows_are_compared_as_a_multiset():
    rows = {"a": [3, 1, None, 1], "t": ["x", "y", "z", "y"]}
    other = {"a": [1, None, 3, 1], "t": ["y", "z", "x", "y"]}
    assert differs(rows, other) == ""
    once = {"a": [1, None, 3, 3], "t": ["y", "z", "x", "x"]}
    assert differs(rows, once) == "The first rows that differ: Firesteel: a = 1, t = y; Spark: a = 3, t = x."
    fewer = {"a": [1, None, 3], "t": ["y", "z", "x"]}
    assert differs(rows, fewer) == (
        "Firesteel gives 4 rows, Spark 3. The first rows that differ: Firesteel: a = 1, t = y; Spark: no such row."
    )


def test_columns_of_one_name_and_nested_ones_are_compared():
    ours = pa.table([pa.array([[1, None], []]), pa.array([b"x", None])], ["v", "v"])
    theirs = pa.table([pa.array([[], [1, None]]), pa.array([None, b"x"])], ["v", "v"])
    assert Comparison().difference(ours, theirs) == ""
    assert "v = [1, NULL]" in Comparison().difference(ours, theirs.slice(0, 1))


@pytest.mark.parametrize("close", [False, True])
def test_zeros_and_nan_are_themselves(close):
    assert differs({"x": [0.0, math.nan, math.inf]}, {"x": [math.inf, -0.0, math.nan]}, close=close) == ""
    assert differs({"x": [math.nan]}, {"x": [None]}, close=close)
    assert differs({"x": [math.inf]}, {"x": [-math.inf]}, close=close)


def test_only_sums_of_floating_point_numbers_may_differ_in_their_last_digits():
    ours, theirs = {"k": [1, 2], "x": [0.1 + 0.2, 1e300]}, {"k": [2, 1], "x": [1e300 * (1 + 1e-12), 0.3]}
    assert "x = 0.30000000000000004" in differs(ours, theirs)
    assert differs(ours, theirs, close=True) == ""
    assert differs({"x": [1.0]}, {"x": [1.0 + 1e-8]}, close=True)
    # two sums whose last digits would sort them the other way round, beside sums that differ
    apart = {"x": [0.3, 0.1 + 0.2], "y": [1.0, 2.0]}, {"x": [0.1 + 0.2, 0.3], "y": [1.0, 2.0]}
    assert differs(*apart, close=True) == ""


def test_sorted_rows_come_in_the_order_of_their_keys():
    ours, theirs = {"k": [1, 1, 2], "v": ["a", "b", "c"]}, {"k": [1, 1, 2], "v": ["b", "a", "c"]}
    assert differs(ours, theirs, keys=[0]) == ""
    turned = {"k": [2, 1, 1], "v": ["c", "a", "b"]}
    assert differs(turned, theirs) == ""
    assert "Firesteel: k = 2, v = c; Spark: k = 1, v = b" in differs(turned, theirs, keys=[0])


def test_rows_that_tie_with_the_last_one_of_a_limit_may_be_others():
    ours, theirs = {"k": [1, 2, 2], "v": ["a", "b", "c"]}, {"k": [1, 2, 2], "v": ["a", "c", "d"]}
    assert differs(ours, theirs, keys=[0])
    assert differs(ours, theirs, keys=[0], cut=True) == ""
    assert differs(ours, {"k": [1, 2, 2], "v": ["z", "c", "d"]}, keys=[0], cut=True)


def test_a_share_of_the_queries_is_drawn_and_the_same_ones_by_the_same_mark():
    drawn = [number for number in range(1, 10_001) if is_drawn("report.py:1", number, 0.01)]
    assert 60 < len(drawn) < 140
    assert drawn == [number for number in range(1, 10_001) if is_drawn("report.py:1", number, 0.01)]
    assert drawn != [number for number in range(1, 10_001) if is_drawn("report.py:2", number, 0.01)]
    assert all(is_drawn("m", number, 1.0) for number in range(100))
    assert not any(is_drawn("m", number, 0.0) for number in range(100))

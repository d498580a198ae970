"""Ranges for files of partitions: they end where partitions end, and part only what makes several files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.model.sketches import LONG_KEY, Boundaries, Sketch, bytes_between
from firesteel.scheduler.exchange.key_ranges import file_boundaries


def sketches(*partitions, producers=4):
    """``partitions``: the bytes that each producer has of each, values in their order."""
    found = []
    for producer in range(producers):
        each = [(number, nbytes) for number, nbytes in enumerate(partitions) if nbytes]
        keys = tuple(bytes([1, number, 0, 0]) + producer.to_bytes(4, "big") for number, _ in each)
        found.append(Sketch(keys, np.array([nbytes for _, nbytes in each], np.int64)))
    return found


def sizes(made, boundaries):
    total = sum(bytes_between(one, boundaries) for one in made)
    return total[total > 0].tolist()


def test_partitions_have_ranges_of_their_own_unless_they_are_small():
    made = sketches(25, 90, 5, 5, 20)
    found = file_boundaries(made, 16, 100)
    assert len(found) == 16
    assert sizes(made, found) == [100, 90, 90, 90, 90, 40, 80]
    assert found.keys[-1] == bytes([1, 4, 0, 0])


@pytest.mark.parametrize(("volume", "wanted"), [(100, [140]), (90, [70, 70]), (50, [35, 70, 35]), (36, [35] * 4)])
def test_the_nearest_number_of_files(volume, wanted):
    made = sketches(35)
    assert sizes(made, file_boundaries(made, 8, volume)) == wanted


def test_ranges_that_are_too_few_hold_more():
    made = sketches(25, 25, 25, 25)
    assert sizes(made, file_boundaries(made, 4, 25)) == [100] * 4
    assert sizes(made, file_boundaries(made, 3, 25)) == [200, 200]
    assert file_boundaries(made, 1, 25) == Boundaries(())


def test_nothing_is_one_range():
    assert file_boundaries([], 3, 10).keys == (b"", b"")


def test_long_values_are_not_looked_into():
    long = [Sketch((b"\x01" + b"x" * LONG_KEY + bytes([n]),), np.array([100])) for n in (1, 2)]
    assert sizes(long, file_boundaries(long, 4, 100)) == [100, 100]


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 40), st.integers(1, 500), st.integers(1, 5))
def test_any_partitions(partitions, n, volume, producers):
    made = sketches(*partitions, producers=producers)
    found = file_boundaries(made, n, volume)
    assert len(found) == n
    assert list(found.keys) == sorted(found.keys)
    assert sum(sizes(made, found)) == producers * sum(partitions)
    whole = {bytes([1, number, 0, 0]): producers * nbytes for number, nbytes in enumerate(partitions)}
    assert all(not key or key in whole or whole[key[:-4]] >= 1.5 * volume for key in found.keys)

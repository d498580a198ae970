"""Packed rows of sizes: what goes in comes out, in so many bytes; adding packed rows up is adding rows up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.model.sizes import ALWAYS_BYTES, budget, counts_of, fold, pack, unfold, unpack

COUNTS = st.sampled_from([0, 1, 2, 17, 1000, 3000])
LARGEST = st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 1 << 20, 100 << 20, 1 << 33, 1 << 50])


@st.composite
def rows_of_sizes(draw, counts=COUNTS):
    """Sizes below some largest one above some base, mixed with zeros and with a few outliers."""
    n, largest = draw(counts), draw(LARGEST)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    sizes = draw(st.sampled_from([0, 0, 7, 1 << 30])) + rng.integers(0, largest, n, np.int64, endpoint=True)
    sizes[rng.random(n) < draw(st.sampled_from([0.0, 0.0, 0.5, 0.99]))] = 0
    outliers = rng.random(n) < draw(st.sampled_from([0.0, 0.001, 0.05, 0.2]))
    sizes[outliers] = rng.integers(0, draw(LARGEST), int(outliers.sum()), np.int64, endpoint=True)
    return sizes


@given(rows_of_sizes())
@settings(max_examples=examples(150), deadline=None)
def test_packing_keeps_the_size_bound_and_the_error_bound(sizes):
    row, n = pack(sizes), len(sizes)
    assert len(row) <= budget(n) <= max(ALWAYS_BYTES, 2.5 * n) and counts_of([row]).tolist() == [n]
    off = np.abs(unpack(row) - sizes)
    span = int(sizes.max() - sizes.min()) if n else 0
    assert off.max(initial=0) <= span / 65_535
    if span < 1 << 16 or (n <= 1000 and span < 1 << 32):
        assert not off.any()


@given(st.integers(0, 40), st.sampled_from([1, 5, 300]), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_folding_is_adding_and_unfolding_takes_back(producers, n, data):
    rows = [pack(data.draw(rows_of_sizes(st.just(n)))) for _ in range(producers)]
    into = np.arange(n, dtype=np.int64)
    fold(rows, into)
    assert (into == np.arange(n) + sum((unpack(row) for row in rows), np.zeros(n, np.int64))).all()
    unfold(rows[1:], into)
    assert (into == np.arange(n) + (unpack(rows[0]) if rows else 0)).all()

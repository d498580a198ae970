"""Sketches of keys: how even the ranges are that are cut from them, and that they never err by more than they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.model import sketches
from firesteel.model.sketches import (
    Boundaries,
    Sketch,
    SketchBuilder,
    bytes_between,
    decode_sketch,
    encode_sketch,
    error_bound,
    merge_sketches,
)

ROW = 100


def key_of(numbers: np.ndarray, producer: int, *, split: bool) -> list[bytes]:
    suffix = producer.to_bytes(4, "big") if split else b""
    return [number.to_bytes(8, "big") + suffix for number in numbers.tolist()]


def sketched(numbers: np.ndarray, producer: int, producers: int, *, split: bool, region: int = 5_000) -> Sketch:
    """What a writer does: regions, each sorted, of each the keys at its targets."""
    builder = SketchBuilder(producer, producers)
    for begin in range(0, len(numbers), region):
        part = np.sort(numbers[begin : begin + region])
        places, weights = builder.targets(len(part) * ROW)
        builder.add(key_of(part[places // ROW], producer, split=split), weights)
    return builder.finish()


def truth(numbers: np.ndarray, producer: int, boundaries: Boundaries, *, split: bool) -> np.ndarray:
    values, counts = np.unique(numbers, return_counts=True)
    exact = Sketch(tuple(key_of(values, producer, split=split)), counts * ROW)
    return bytes_between(exact, boundaries)


def made(kind: str, producer: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng(producer)
    if kind == "uniform":
        return rng.integers(0, 1 << 40, rows)
    if kind == "zipf":
        return rng.zipf(1.3, rows).clip(max=1 << 40)
    if kind == "one heavy key":
        return np.where(rng.random(rows) < 0.6, 12345, rng.integers(0, 1 << 40, rows))
    if kind == "sorted":
        return np.arange(producer * rows, (producer + 1) * rows)
    return np.full(rows, 7)


KINDS = ("uniform", "zipf", "one heavy key", "sorted", "all equal")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", [True, False], ids=["split", "whole"])
def test_ranges_are_even_but_for_what_cannot_be_parted(kind, split):
    producers, rows, n = 16, 6_000, 32
    data = [made(kind, p, rows) for p in range(producers)]
    found = [sketched(numbers, p, producers, split=split) for p, numbers in enumerate(data)]
    boundaries = merge_sketches(found, n)
    estimated = np.sum([bytes_between(sketch, boundaries) for sketch in found], axis=0)
    real = np.sum([truth(numbers, p, boundaries, split=split) for p, numbers in enumerate(data)], axis=0)
    everything = np.concatenate(data)
    total = len(everything) * ROW
    assert estimated.sum() == real.sum() == total
    assert np.abs(estimated - real).max() <= error_bound(found)
    # the heaviest thing that cannot be parted: a key, or of a key what one producer has
    heaviest = max(np.unique(part, return_counts=True)[1].max() for part in (data if split else [everything])) * ROW
    assert real.max() <= max(total / n, heaviest) + 0.02 * total / n * 4
    assert np.abs(estimated - real).max() <= 0.08 * total / n


@pytest.mark.parametrize("kind", ["uniform", "zipf"])
def test_what_producers_of_like_data_leave_out_does_not_add_up(kind):
    """The same rows in each producer: with one phase for all, the errors would be as many times as large."""
    producers, n = 64, 200
    data = made(kind, 0, 10_000)
    found = [sketched(data, p, 1024, split=False) for p in range(producers)]
    assert len(found[0].keys) <= 64
    boundaries = merge_sketches(found, n)
    estimated = np.sum([bytes_between(sketch, boundaries) for sketch in found], axis=0)
    real = truth(data, 0, boundaries, split=False) * producers
    assert np.abs(estimated - real).max() <= error_bound(found) / 20


numbers = st.lists(st.integers(0, 300), min_size=0, max_size=400).map(lambda rows: np.array(rows, np.int64))


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(numbers, min_size=1, max_size=4), st.integers(1, 12), st.booleans(), st.integers(1, 80))
def test_no_estimate_is_further_off_than_the_sketch_says(data, n, split, region):
    found = [sketched(rows, p, 2000, split=split, region=region) for p, rows in enumerate(data)]
    boundaries = merge_sketches(found, n)
    assert len(boundaries) == n
    assert list(boundaries.keys) == sorted(boundaries.keys)
    for p, (sketch, rows) in enumerate(zip(found, data, strict=True)):
        real, said = truth(rows, p, boundaries, split=split), bytes_between(sketch, boundaries)
        assert sketch.total == said.sum() == real.sum() == len(rows) * ROW
        assert np.abs(np.cumsum(said) - np.cumsum(real)).max() <= sketch.error


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(max_size=90), unique=True), st.integers(0, 1 << 50))
def test_a_sketch_survives_its_way(keys, error):
    sketch = Sketch(tuple(sorted(keys)), np.arange(1, len(keys) + 1), error)
    back = decode_sketch(encode_sketch(sketch))
    assert (back.keys, back.weights.tolist(), back.error) == (sketch.keys, sketch.weights.tolist(), error)


@pytest.mark.parametrize("damage", [b"", b"\x02", b"\x01" * 16 + b"x"], ids=repr)
def test_bytes_that_are_no_sketch_are_refused(damage):
    with pytest.raises(ValueError, match="no sketch"):
        decode_sketch(damage)
    whole = encode_sketch(Sketch((b"a", b"b"), np.array([1, 2])))
    with pytest.raises(ValueError, match="no sketch"):
        decode_sketch(whole[:-3])


def test_a_sketch_of_many_regions_is_small():
    rng = np.random.default_rng(3)
    sketch = sketched(rng.integers(0, 1 << 60, 100_000), 0, 1, split=True, region=4_000)
    assert len(sketch.keys) <= sketches.MOST_ENTRIES
    assert len(encode_sketch(sketch)) < 20_000
    assert sketch.error < 4 * sketch.total / sketches.MOST_ENTRIES


def test_long_keys_are_cut_where_they_differ():
    keys = [b"p" * 500 + bytes([k]) + b"q" * 1000 for k in range(5)] + [b"z"]
    cut = sketches.shortened(keys)
    assert cut == sorted(set(cut))
    assert all(whole.startswith(one) for one, whole in zip(cut, keys, strict=True))
    assert max(map(len, cut)) <= 500 + sketches.LONG_KEY
    short = [b"a" * 64, b"b"]
    assert sketches.shortened(short) == short


def test_nothing_written_gives_ranges_all_the_same():
    boundaries = merge_sketches([SketchBuilder(0, 1).finish()], 4)
    assert boundaries.keys == (b"", b"", b"")
    assert [boundaries.low(0), boundaries.high(3)] == [None, None]
    assert bytes_between(sketches.EMPTY, boundaries).tolist() == [0, 0, 0, 0]


def test_one_range_has_no_boundaries():
    boundaries = merge_sketches([Sketch((b"a",), np.array([5]))], 1)
    assert (len(boundaries), boundaries.low(0), boundaries.high(0)) == (1, None, None)


def test_many_producers_are_allowed_fewer_entries_each():
    assert [sketches.budget(p) for p in (1, 64, 256, 1024, 10_000)] == [1024, 1024, 256, 64, 64]

"""Batches for a function: joined and cut to the size that was asked for, no row lost or moved."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.task.batches import DEFAULT_SIZE, MOST_BYTES, BatchSize, sized
from firesteel.task.program import MAX_RECORDS_PER_BATCH

LENGTHS = st.lists(st.integers(0, 40), max_size=12)


def batches(lengths, column=pa.array):
    first = 0
    for n in lengths:
        yield pa.record_batch({"n": column(range(first, first + n))})
        first += n


def numbers(found):
    return [n for batch in found for n in batch["n"].to_pylist()]


@settings(max_examples=examples(60), deadline=None)
@given(LENGTHS, st.integers(1, 50))
def test_by_rows_all_but_the_last_have_just_so_many(lengths, rows):
    found = list(sized(batches(lengths), BatchSize(rows=rows)))
    assert numbers(found) == list(range(sum(lengths)))
    assert all(batch.num_rows == rows for batch in found[:-1])
    assert all(0 < batch.num_rows <= rows for batch in found[-1:])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), max_size=8), st.integers(1, 400))
def test_by_bytes_as_many_rows_as_fit(texts, nbytes):
    made = [pa.record_batch({"n": ["x" * n for n in part]}) for part in texts]
    found = list(sized(iter(made), BatchSize(nbytes=nbytes)))
    assert numbers(found) == ["x" * n for part in texts for n in part]
    average = [batch.nbytes // batch.num_rows for batch in made]
    weights = [max(one, 1) for one, batch in zip(average, made, strict=True) for _ in range(batch.num_rows)]
    place = 0
    for number, batch in enumerate(found):
        own = sum(weights[place : place + batch.num_rows])
        assert own <= nbytes or batch.num_rows == 1
        place += batch.num_rows
        assert number == len(found) - 1 or own + weights[place] > nbytes


@settings(max_examples=examples(30), deadline=None)
@given(LENGTHS)
def test_by_default_small_ones_are_joined(lengths):
    found = list(sized(batches(lengths), DEFAULT_SIZE))
    assert numbers(found) == list(range(sum(lengths)))
    assert len(found) == (sum(lengths) > 0)


@pytest.mark.parametrize(("rows", "width"), [(25_000, 1), (1000, 1 << 18)])
def test_by_default_large_ones_are_cut(rows, width):
    text = "x" * width
    found = [b.num_rows for b in sized(iter([pa.record_batch({"n": [text] * rows})]), DEFAULT_SIZE)]
    assert sum(found) == rows
    assert max(found) * width <= MOST_BYTES
    assert max(found) <= MAX_RECORDS_PER_BATCH
    assert len(found) > 1


def test_a_batch_comes_as_soon_as_it_is_full():
    asked = []

    def source():
        for batch in batches([5, 5, 5]):
            asked.append(batch.num_rows)
            yield batch

    found = sized(source(), BatchSize(rows=5))
    next(found)
    assert asked == [5]


def test_dictionaries_count_by_their_indices():
    words = pa.array([f"word {n}" for n in range(100_000)]).dictionary_encode()
    parts = [pa.record_batch({"n": words.slice(k, 10)}) for k in range(0, 100, 10)]
    found = list(sized(iter(parts), BatchSize(nbytes=200)))
    assert [batch.num_rows for batch in found] == [50, 50]
    assert numbers(found) == [f"word {n}" for n in range(100)]


def test_rows_without_columns_keep_their_number():
    parts = [batch.select([]) for batch in batches([3, 4, 5])]
    assert [b.num_rows for b in sized(iter(parts), BatchSize(rows=5))] == [5, 5, 2]

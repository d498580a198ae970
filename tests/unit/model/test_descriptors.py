"""Deployment descriptors as bytes: what goes in comes out, and a gate of ten thousand partitions is small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from firesteel.model.arrays import compact
from firesteel.model.descriptors import (
    Encoded,
    GateColumns,
    decode_execution,
    decode_gate,
    encode_executions,
    encode_gate,
    most_bytes,
)

INT64 = np.iinfo(np.int64)


def column(n):
    anything = stn.arrays(np.int64, n, elements=st.integers(INT64.min, INT64.max))
    near = stn.arrays(np.int64, n, elements=st.integers(-3, 300)).map(lambda rest: rest + 7 * np.arange(n) + 10**12)
    return st.one_of(st.integers(-1, 5).map(lambda value: np.full(n, value, np.int64)), near, anything)


@st.composite
def gates(draw):
    n, m = draw(st.integers(0, 40)), draw(st.integers(0, 5))
    return GateColumns(
        draw(st.integers(0, 1000)),
        draw(st.integers(1, 1 << 40)),
        draw(column(n)),
        draw(column(n)),
        draw(st.booleans()),
        draw(st.none() | column(n)),
        draw(st.booleans()),
        draw(st.none() | st.tuples(column(m), column(m), column(m))),
        draw(st.none() | st.lists(st.binary(max_size=20), max_size=6).map(tuple)),
    )


@given(gates())
def test_a_gate_survives(gate):
    data = encode_gate(gate)
    again = decode_gate(data)
    assert len(data) <= most_bytes(gate)
    for name in GateColumns.__slots__:
        np.testing.assert_equal(getattr(again, name), getattr(gate, name))
    assert again.attempts.dtype == again.tokens.dtype == np.int64


@given(gates(), st.data())
def test_a_gate_that_was_cut_is_refused(gate, data):
    encoded = encode_gate(gate)
    with pytest.raises(ValueError, match="no gate descriptor"):
        decode_gate(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def task_attempt_ids(rng, n, window):
    """As Spark gives them: nearly in the order of the partitions, from some number on; a few tasks were run again."""
    tokens = np.empty(n, np.int64)
    tokens[np.argsort(np.arange(n) + rng.uniform(0, window, n))] = np.arange(n) + 123_456
    tokens[rng.choice(n, 20, replace=False)] = 123_456 + n + np.arange(20)
    return tokens


@pytest.mark.parametrize(("window", "most"), [(0, 1_000), (200, 12_000), (10_000, 20_000)])
def test_ten_thousand_partitions_take_a_few_bytes_each(window, most):
    rng, n = np.random.default_rng(7), 10_000
    attempts = np.zeros(n, np.int64)
    attempts[rng.choice(n, 20, replace=False)] = 1
    data = encode_gate(GateColumns(0, 20_000, attempts, task_attempt_ids(rng, n, window), False))
    assert len(data) <= most


def test_numbers_on_a_line_take_nothing():
    first, n = np.arange(0, 10_000, 100), 10_000
    merged = (first, first + 100, np.full(100, 5))
    gate = GateColumns(3, 8, np.zeros(n, np.int64), np.arange(n) + 40, False, np.arange(n), merged=merged)
    assert len(encode_gate(gate)) < 200


def test_equal_gates_have_one_name():
    gate = GateColumns(0, 1, np.arange(3), np.arange(3), False)
    assert Encoded.of(encode_gate(gate)) == Encoded.of(encode_gate(gate))
    assert Encoded.of(b"a").digest != Encoded.of(b"b").digest


@given(st.integers(0, 6), st.integers(0, 3), st.booleans(), st.data())
def test_executions_survive(n, num_gates, has_splits, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    subtasks, attempts = rng.integers(0, 1 << 20, (2, n))
    ranges = []
    for _ in range(num_gates):
        offsets = np.concatenate(([0], np.cumsum(rng.integers(0, 4, n)))).astype(np.int32)
        ranges.append((offsets, rng.integers(0, 1 << 30, (offsets[-1], 4)).astype(np.int32)))
    splits = [[f"split {k}", k] for k in range(n)] if has_splits else None
    nbytes = rng.integers(0, 1 << 50, n) if data.draw(st.booleans()) else None
    encoded = encode_executions(subtasks, attempts, ranges, splits, input_bytes=nbytes)
    assert len(encoded) == n
    for k, descriptor in enumerate(map(decode_execution, encoded)):
        assert (descriptor.subtask, descriptor.attempt) == (subtasks[k], attempts[k])
        assert descriptor.input_bytes == (0 if nbytes is None else nbytes[k])
        assert descriptor.splits == (() if splits is None else tuple(splits[k]))
        for rects, (offsets, all_rects) in zip(descriptor.rects, ranges, strict=True):
            np.testing.assert_array_equal(rects, all_rects[offsets[k] : offsets[k + 1]])


def test_a_column_of_equal_sizes_that_takes_no_memory_is_encoded_as_any_other():
    n = 2_000
    rows, nothing = np.arange(n), (np.zeros(n + 1, np.int64), np.zeros((0, 4), np.int32))
    told = [
        encode_executions(rows, rows, [nothing], input_bytes=column)
        for column in (np.full(n, 7), compact(np.full(n, 7)))
    ]
    assert told[0] == told[1] and decode_execution(told[0][5]).input_bytes == 7

"""Heavy keys on their way to the driver, and what is kept of many reports."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.model.heavy_keys import (
    LONGEST_VALUE,
    MOST_BYTES,
    MOST_HELD,
    MOST_KEYS,
    MOST_VALUES,
    HeavyKey,
    HeavyKeys,
    decode_heavy_keys,
    encode_heavy_keys,
    least_share,
    value_text,
)

VALUE = st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.dates())
TEXTS = st.lists(VALUE.map(value_text), max_size=MOST_VALUES + 3).map(tuple)
KEYS = st.lists(st.builds(HeavyKey, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 63) - 1), TEXTS), max_size=40)


@given(KEYS)
def test_a_report_says_what_it_was_told_as_far_as_it_has_room(keys):
    report = encode_heavy_keys(keys)
    assert len(report) <= MOST_BYTES and bool(report) == bool(keys)
    told = decode_heavy_keys(report)
    assert told == [key._replace(values=key.values[:MOST_VALUES]) for key in keys[: len(told)]]
    assert len(told) == min(len(keys), MOST_KEYS) or len(report) + 13 + MOST_VALUES * (LONGEST_VALUE + 1) > MOST_BYTES


@given(st.binary(min_size=1, max_size=60))
def test_other_bytes_are_refused(data):
    report = encode_heavy_keys([HeavyKey(3, 5, ("'a'", "7"))])
    for damaged in (report[:-1], report + b"x", b"\x07" + report[1:], report[:5] + data):
        if damaged != report:
            try:
                assert decode_heavy_keys(damaged)  # by chance it may be one
            except ValueError as error:
                assert "heavy keys" in str(error)


@given(VALUE)
def test_values_as_text_are_short(value):
    text = value_text(value)
    assert len(text.encode()) <= LONGEST_VALUE and text.isprintable()


def test_values_as_people_write_them():
    told = {
        None: "null",
        4711: "4711",
        "O'Neill": '"O\'Neill"',
        "null": "'null'",
        b"\x00\xff": "0x00ff",
        "a\x1b": r"'a\x1b'",
    }
    assert {value: value_text(value) for value in told} == told
    assert value_text("x" * 1_000_000) == f"'{'x' * (LONGEST_VALUE - 5)}…'"
    assert value_text("ü" * 40).endswith("…'") and value_text(b"\xff" * 99).endswith("ff…")


@pytest.mark.parametrize(("filled", "share"), [(0, 1.0), (1, 1.0), (2, 2 / 3), (9, 0.2), (256, 0.01), (20_000, 0.01)])
def test_a_key_is_heavy_by_its_share_and_by_what_the_others_have(filled, share):
    """With that share it has twice what is left for each of the others."""
    assert least_share(filled) == share
    assert share == 0.01 or filled < 2 or abs(share - 2 * (1 - share) / (filled - 1)) < 1e-9


def exactly(reports):
    weights = Counter()
    for report in reports:
        for subpartition, weight, values in report:
            weights[subpartition, values] += weight
    return weights


@given(st.integers(0, 1 << 32), st.sampled_from([5, 60, 300]), st.booleans())
def test_of_many_reports_the_heaviest_keys_are_kept_in_any_order(seed, different, clustered):
    """``clustered``: each producer has its own keys, and one that all have."""
    rng = random.Random(seed)
    reports = []
    for producer in range(100):
        keys = [producer * 7 + k for k in range(4)] if clustered else range(different)
        names = {rng.choice(keys) for _ in range(6)} | {-1}
        reports.append([HeavyKey(name % 256, rng.randrange(1, 1000), (str(name),)) for name in names])
    exact = exactly(reports)
    for _ in range(2):
        rng.shuffle(reports)
        held = HeavyKeys()
        for report in reports:
            held.add(report)
        assert held.lost * (MOST_HELD + 1) <= exact.total()
        assert held.lost == 0 or len(exact) > MOST_HELD
        told = held.heavy(exact.total(), 256)
        for subpartition, weight, values in told:
            assert exact[subpartition, values] - held.lost <= weight <= exact[subpartition, values]
        sure = [name for name, weight in exact.items() if weight - held.lost >= 0.01 * exact.total()]
        named = {(subpartition, values) for subpartition, _, values in told}
        assert len(told) == MOST_KEYS or named.issuperset(sure)
        assert [key.weight for key in told] == sorted((key.weight for key in told), reverse=True)


def test_nothing_is_heavy_where_there_is_nothing():
    assert HeavyKeys().heavy(0, 8) == []
    assert decode_heavy_keys(b"") == [] and encode_heavy_keys([]) == b""

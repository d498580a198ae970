"""Hashes and canonical keys: what is equal as a key hashes equal, groups together and joins."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.keys import KeyTypeError, common_key_type, normal_type, normalise_key

NAN_BITS = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
TEXT = ["", "a", None, "b" * 9, "ü", "x" * 127, "x" * 128, "x" * 129, "y" * 5000]
BLOBS = [None if s is None else s.encode() for s in TEXT]


def instants(unit, tz=None):
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return pa.array([0, 86_400 * factor, None, -5 * factor], pa.int64()).cast(pa.timestamp(unit, tz))


def spans(unit):
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return pa.array([0, 3 * factor, None, -5 * factor], pa.int64()).cast(pa.duration(unit))


def times(kind):
    return pa.array([dt.time(0), dt.time(12, 30, 1), None], kind)


def money(kind):
    return pa.array([Decimal("1.5"), Decimal("-1.5"), Decimal(0), None, Decimal("20000")], kind)


STRUCT = [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}]
FAMILIES = {
    "int": [
        pa.array([0, 1, None, 100], kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32())
    ],
    "signed": [pa.array([-1, -128, None], kind) for kind in (pa.int8(), pa.int32(), pa.int64())],
    "unsigned": [pa.array([0, 2**62, None], kind) for kind in (pa.int64(), pa.uint64())],
    "float": [
        pa.array([0.0, 1.5, None, np.nan, np.nan], pa.float64(), from_pandas=False),
        pa.array([-0.0, 1.5, None, NAN_BITS[0], NAN_BITS[1]], pa.float64(), from_pandas=False),
        pa.array([-0.0, 1.5, None, np.nan, -np.nan], pa.float32(), from_pandas=False),
        pa.array(np.array([0, 1.5, 7, np.nan, np.nan], np.float16), mask=np.array([0, 0, 1, 0, 0], bool)),
    ],
    "bool": [pa.array([True, False, None])],
    "string": [pa.array(TEXT, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    + [pa.array(TEXT).dictionary_encode(), pa.array(TEXT, pa.large_string()).dictionary_encode()],
    "binary": [pa.array(BLOBS, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())],
    "fixed": [pa.array([b"abc", None, b"xyz"], kind) for kind in (pa.binary(3), pa.binary())],
    "date": [pa.array([dt.date(1, 1, 1), dt.date(2020, 2, 29), None], kind) for kind in (pa.date32(), pa.date64())],
    "instant": [instants(u) for u in ("s", "ms", "us", "ns")] + [instants("us", "Asia/Tokyo"), instants("ns", "UTC")],
    "duration": [spans(u) for u in ("s", "ms", "us", "ns")],
    "time": [times(k) for k in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))],
    "decimal": [
        money(k)
        for k in (
            pa.decimal32(8, 1),
            pa.decimal64(15, 3),
            pa.decimal128(20, 2),
            pa.decimal128(38, 10),
            pa.decimal256(70, 30),
        )
    ],
    "list": [
        pa.array([[1, 2], [2, 1], None, [1, None], [3, 4]], kind)
        for kind in (pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.int16(), 2), pa.list_view(pa.int8()))
    ],
    "struct": [
        pa.array(STRUCT, pa.struct([("a", pa.int32()), ("b", pa.string())])),
        pa.array(STRUCT, pa.struct([("a", pa.int64()), ("b", pa.dictionary(pa.int8(), pa.large_string()))])),
    ],
    "map": [
        pa.array([[("k", 1.0)], None, [], [("k", 0.0), ("l", None)]], pa.map_(pa.string(), pa.float64())),
        pa.array([[("k", 1.0)], None, [], [("k", -0.0), ("l", None)]], pa.map_(pa.large_string(), pa.float32())),
    ],
    "run ends": [pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]), pa.array(["a", "a", None])],
    "null": [pa.array([None, None], pa.null()), pa.array([None, None], pa.int32())],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_values_of_other_types_hash_equal(family):
    first, *others = FAMILIES[family]
    expected = hash_columns([first]).tolist()
    for other in others:
        assert hash_columns([other]).tolist() == expected, other.type


@pytest.mark.parametrize("family", FAMILIES)
def test_hashes_and_keys_respect_offsets_and_chunks(family):
    for array in FAMILIES[family]:
        longer = pa.concat_arrays([array, array, array])
        piece = longer.slice(len(array) - 1, len(array) + 1)
        expected = hash_columns([longer])[len(array) - 1 : 2 * len(array)]
        assert hash_columns([piece]).tolist() == expected.tolist()
        chunked = pa.chunked_array([piece, piece.slice(0, 0), piece])
        assert hash_columns([chunked]).tolist() == np.tile(expected, 2).tolist()
        whole = normalise_key(longer).to_pylist()
        assert repr(normalise_key(piece).to_pylist()) == repr(whole[len(array) - 1 : 2 * len(array)])
        assert repr(normalise_key(chunked).to_pylist()) == repr(whole[len(array) - 1 : 2 * len(array)] * 2)
        assert normalise_key(longer.slice(0, 0)).type == normal_type(array.type)


@pytest.mark.parametrize("family", FAMILIES)
def test_normalised_keys_of_a_pair_are_the_same_values_and_join(family):
    arrays = FAMILIES[family]
    for left in arrays:
        for right in arrays:
            common = common_key_type(left.type, right.type)
            assert common == common_key_type(right.type, left.type)
            one, other = normalise_key(left, common), normalise_key(right, common)
            assert one.type == other.type == common
            assert repr(one.to_pylist()) == repr(other.to_pylist())
            assert one.is_null().to_pylist() == left.is_null().to_pylist() or pa.types.is_run_end_encoded(left.type)
            ones = pa.table({"k": one, "l": range(len(one))})
            others = pa.table({"k": other, "r": range(len(other))})
            joined = ones.join(others, "k", join_type="inner")
            matches = {(row["l"], row["r"]) for row in joined.to_pylist()}
            assert {(i, i) for i in range(len(one)) if one[i].is_valid} <= matches


@pytest.mark.parametrize("family", FAMILIES)
def test_normalised_keys_group_exactly(family):
    for array in FAMILIES[family]:
        keys = normalise_key(pa.concat_arrays([array, array]))
        groups = pa.table({"k": keys}).group_by("k").aggregate([([], "count_all")])
        distinct = len({repr(v) for v in keys.to_pylist()})
        assert len(groups) == distinct
        assert sum(groups.column("count_all").to_pylist()) == len(keys)


def test_different_nested_values_stay_apart():
    kind = pa.list_(pa.list_(pa.string()))
    values = [
        None,
        [],
        [None],
        [[]],
        [[None]],
        [[""]],
        [["a"], ["b"]],
        [["a", "b"]],
        [["ab"]],
        [[], ["a", "b"]],
        [["a"], []],
    ]
    array = pa.array(values, kind)
    assert len(set(normalise_key(array).to_pylist())) == len(values)
    assert len(set(hash_columns([array]).tolist())) == len(values)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int64(), pa.float64()),
        (pa.string(), pa.int32()),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int8()),
        (pa.decimal128(10, 2), pa.int64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.list_(pa.int32()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int32())]), pa.binary()),
        (pa.decimal256(76, 0), pa.decimal256(76, 40)),
    ],
)
def test_keys_that_cannot_be_compared_are_a_sentence(left, right):
    with pytest.raises(KeyTypeError, match="Keys of types"):
        common_key_type(left, right)


def test_nulls_of_unknown_type_compare_with_everything():
    for kind in (pa.string(), pa.decimal128(5, 2), pa.list_(pa.int8()), pa.timestamp("s")):
        common = common_key_type(pa.null(), kind)
        assert normalise_key(pa.nulls(2), common).null_count == 2


def test_unions_and_overflows_are_sentences():
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(KeyTypeError, match="cannot be a key"):
        normalise_key(union)
    with pytest.raises(TypeError, match="cannot be a key"):
        hash_columns([union])
    with pytest.raises(KeyTypeError, match="cannot be compared as"):
        normalise_key(pa.array([2**62], pa.timestamp("s")))


def test_columns_combine_in_order_and_seeds_differ():
    a, b = pa.array([1, 2, 3]), pa.array([3, 2, 1])
    forth, back = hash_columns([a, b]), hash_columns([b, a])
    assert forth[0] != back[0]
    assert forth[1] == back[1]
    assert (hash_columns([a], 1) != hash_columns([a], 2)).all()
    with pytest.raises(ValueError, match="at least one"):
        hash_columns([])


def test_hashes_are_the_same_in_every_process():
    code = (
        "import pyarrow as pa; from firesteel.results.hashing import hash_columns;"
        "print(hash_columns([pa.array([1, None]), pa.array(['a', 'z' * 300])]).tolist())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {"[3099809479621678838, 16644975701351898512]\n"}


@pytest.mark.parametrize(
    "make",
    [
        lambda n: pa.array(np.arange(n)),
        lambda n: pa.array(np.arange(n) * 4096),
        lambda n: pa.array(np.arange(n) / 8),
        lambda n: pa.array([f"customer-{i:09}" for i in range(n)]),
        lambda n: pa.array([Decimal(i) for i in range(n)], pa.decimal128(20, 2)),
        lambda n: pa.array([[i, i + 1] for i in range(n)]),
    ],
)
@pytest.mark.parametrize("seed", [0, 7])
def test_keys_spread_evenly(make, seed):
    n, parts = 20_000, 64
    keys = make(n)
    hashes = hash_columns([keys], seed)
    assert len(np.unique(hashes)) == n
    ids = subpartition_of(hashes, parts)
    counts = np.bincount(ids, minlength=parts)
    chi = ((counts - n / parts) ** 2 / (n / parts)).sum()
    assert chi < 63 + 6 * np.sqrt(126)
    # the rows of one subpartition spread evenly again under another seed
    again = subpartition_of(hash_columns([keys.take(np.flatnonzero(ids == 3))], seed + 1), 8)
    share = np.bincount(again, minlength=8) / len(again)
    assert share.max() < 0.25
    assert share.min() > 0.05


def test_subpartitions_are_in_range():
    hashes = np.array([0, 2**64 - 1, 2**63], np.uint64)
    assert subpartition_of(hashes, 1).tolist() == [0, 0, 0]
    assert subpartition_of(hashes, 3).tolist() == [0, 2, 1]
    assert subpartition_of(hashes, 100_000).tolist() == [0, 99_999, 50_000]
    assert subpartition_of(hashes, 3).dtype == np.int32


def test_one_very_long_string_between_short_ones():
    long = "é" * 3_000_000
    array = pa.array(["a", long, "b"])
    hashes = hash_columns([array])
    assert hash_columns([pa.array([long])])[0] == hashes[1]
    assert hash_columns([pa.array([long + "e"])])[0] != hashes[1]
    assert hash_columns([pa.array([long[:-1] + "e"])])[0] != hashes[1]

"""The index of a build side's keys against a dict: which rows have the key that is looked up."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel.model.build_memory import held_bytes
from firesteel.task.mapped import MappedObjects, let_go
from firesteel.task.operators import key_index
from firesteel.task.operators.grouping import normalised
from firesteel.task.operators.key_index import KeyIndex

MANY = (1 << 12) + 1
"""Keys of one column, more than pyarrow's own search is used for."""
SEEDS = range(4)


def check(build: Sequence[pa.Array], probe: Sequence[pa.Array], at_once: int = 100_000) -> KeyIndex:
    """``build``, ``probe``: key columns of one type each. Compares all answers with those of a dict, and those of the same index
    in a mapped file."""
    build, probe = [normalised(c) for c in build], [normalised(c) for c in probe]
    rows_of: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(keys(build)):
        if None not in key:
            rows_of[key].append(row)
    wanted = [rows_of.get(key, []) for key in keys(probe)]
    index = KeyIndex(build)
    assert index.is_unique == all(len(rows) == 1 for rows in rows_of.values())
    answers(index, probe, wanted, at_once)
    with TemporaryDirectory() as directory:
        restored = MappedObjects(Path(directory)).get_all({"index": lambda: index})["index"]
        assert restored is not index
        answers(restored, probe, wanted, at_once)
        let_go()
    return index


def answers(index: KeyIndex, probe: list[pa.Array], wanted: list[list[int]], at_once: int) -> None:
    """``wanted``: the rows that each probe matches."""
    found = index.find(probe)
    assert index.rows.matches(found).tolist() == [len(rows) for rows in wanted]
    matched = {row for rows in wanted for row in rows}
    assert np.flatnonzero(index.rows.matched_by(found)).tolist() == sorted(matched)
    if index.is_unique:
        assert found.tolist() == [rows[0] if rows else -1 for rows in wanted]
    inner = [(p, row) for p, rows in enumerate(wanted) for row in rows]
    outer = [(p, row) for p, rows in enumerate(wanted) for row in rows or [-1]]
    for keep, expected in ((False, inner), (True, outer)):
        parts = list(index.rows.pairs(found, at_once, keep=keep))
        assert all(len(part[0]) == len(part[1]) <= at_once for part in parts)
        assert [pair for p, rows in parts for pair in zip(p.tolist(), rows.tolist(), strict=True)] == expected


def keys(columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*(map(plain, column.to_pylist()) for column in columns), strict=True))


def plain(value: Any) -> Any:
    """NaN is a key like others, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def holes(rng: np.random.Generator, values: Any, type_: pa.DataType) -> pa.Array:
    """Every tenth value or so is null."""
    return pa.array(values, type_, mask=rng.random(len(values)) < 0.1)


def random_ints(rng: np.random.Generator, low: int, high: int, n: int, dtype: Any) -> np.ndarray:
    return rng.integers(low, high, n, dtype=dtype, endpoint=True)


INTS = {
    "dense": (0, 300, np.int64),
    "dense and negative": (-150, 150, np.int64),
    "dense at the lowest end": (-(1 << 63), -(1 << 63) + 200, np.int64),
    "dense at the highest end": ((1 << 63) - 200, (1 << 63) - 1, np.int64),
    "sparse": (-(1 << 63), (1 << 63) - 1, np.int64),
    "narrow": (-128, 127, np.int8),
    "unsigned": (0, 255, np.uint8),
    "unsigned above 2**63": ((1 << 63) - 100, (1 << 63) + 100, np.uint64),
    "unsigned, all above 2**63": ((1 << 64) - 200, (1 << 64) - 1, np.uint64),
    "unsigned sparse": (0, (1 << 64) - 1, np.uint64),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", INTS)
def test_ints(kind, seed):
    """Half of the probes are keys of the build side, the others beside them, and any of the type."""
    low, high, dtype = INTS[kind]
    rng = np.random.default_rng(seed)
    build = random_ints(rng, low, high, 400, dtype)
    ends = np.iinfo(dtype)
    beside = random_ints(rng, max(ends.min, low - 50), min(ends.max, high + 50), 200, dtype)
    anywhere = random_ints(rng, ends.min, ends.max, 200, dtype)
    probe = np.concatenate([rng.choice(build, 400), beside, anywhere, np.array([ends.min, ends.max], dtype)])
    type_ = pa.from_numpy_dtype(dtype)
    check([holes(rng, build, type_)], [holes(rng, probe, type_)])


@pytest.mark.parametrize("seed", SEEDS)
def test_ints_of_which_none_is_twice(seed):
    rng = np.random.default_rng(seed)
    for step in (1, 1_000_003):
        build = rng.permutation(np.arange(-250, 250) * step)
        check(
            [holes(rng, build, pa.int64())], [holes(rng, rng.choice(build, 700) + rng.integers(0, 2, 700), pa.int64())]
        )


def test_many_sparse_ints():
    """So many that places of the table are contended."""
    rng = np.random.default_rng(1)
    build = np.unique(rng.integers(-(1 << 62), 1 << 62, 2 * MANY))
    check([pa.array(build[::2])], [pa.array(build)])


def test_keys_of_one_hash_are_told_apart(monkeypatch):
    """The hash is made of the first column's length alone, and all of them fall on the table's last place."""

    def poor(columns: Sequence[pa.Array], _seed: int) -> np.ndarray:
        lengths = np.asarray(pc.binary_length(columns[0]).fill_null(0)).astype(np.uint64)
        return np.uint64((1 << 64) - 1) - lengths

    monkeypatch.setattr(key_index, "hash_columns", poor)
    build = [pa.array(["a" * n for n in range(40)]), pa.array(["x"] * 40)]
    probe = [pa.array(["aaa", "aab", "a" * 39, "b" * 39, "", "a" * 60, "a"]), pa.array(["x"] * 6 + ["y"])]
    check(build, probe)


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("n", [300, MANY + 1000])
def test_floats(dtype, n):
    """NaN, of whatever bits, equals NaN; -0.0 equals 0.0."""
    rng = np.random.default_rng(n)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 5e-324, 1.5])
    numpy_type = dtype.to_pandas_dtype()
    build = np.concatenate([special, rng.random(n)]).astype(numpy_type)
    probe = np.concatenate([special[::-1], rng.choice(build, 500), rng.random(500)]).astype(numpy_type)
    check([holes(rng, build, dtype)], [holes(rng, probe, dtype)])
    check([pa.array(build)], [pa.array(probe)])


def test_negative_zero_and_nan_are_found():
    index = KeyIndex([normalised(pa.array([0.0, float("nan")]))])
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    probe = normalised(pa.array(np.concatenate([payload, [-0.0]])))
    assert index.rows.matches(index.find([probe])).tolist() == [1, 1, 1]


@pytest.mark.parametrize("n", [0, 1, 300, MANY - 1, MANY, MANY + 5000])
def test_strings(n):
    rng = np.random.default_rng(n)
    build = [f"key {k}" for k in rng.permutation(n)] + ["", "key 0"]
    probe = [f"key {k}" for k in rng.integers(0, 2 * n + 2, 2000)] + ["", "key", "key 0 "]
    check([holes(rng, build, pa.string())], [holes(rng, probe, pa.string())])


@pytest.mark.parametrize("n", [300, MANY])
def test_strings_of_which_none_is_twice_or_many_are(n):
    rng = np.random.default_rng(n)
    distinct = [f"{k:x}" for k in range(n)]
    probe = pa.array([f"{k:x}" for k in rng.integers(0, 2 * n, 1000)])
    check([pa.array(distinct)], [probe])
    check([pa.array(distinct + distinct[:100] * 3)], [probe], at_once=7)


@pytest.mark.parametrize("n", [300, MANY])
def test_decimals(n):
    rng = np.random.default_rng(n)
    type_ = pa.decimal128(30, 4)
    build = [Decimal(int(k)) / 4 for k in rng.integers(-n, n, 2 * n)]
    probe = [Decimal(int(k)) / 4 for k in rng.integers(-2 * n, 2 * n, 1000)] + [Decimal(10**25)]
    check([holes(rng, build, type_)], [holes(rng, probe, type_)])


def test_dates_times_booleans_and_bytes():
    rng = np.random.default_rng(3)
    numbers, wanted = rng.integers(0, 400, 300), rng.integers(0, 800, 500)
    makes = {
        pa.date32(): lambda k: date.fromordinal(738000 + int(k)),
        pa.timestamp("us", "UTC"): lambda k: datetime.fromtimestamp(int(k) * 1_000_003, UTC),
        pa.bool_(): lambda k: bool(k % 2),
        pa.binary(): lambda k: int(k).to_bytes(2, "big"),
    }
    for type_, make in makes.items():
        check(
            [holes(rng, [make(k) for k in numbers], type_)],
            [holes(rng, [make(k) for k in wanted], type_)],
        )


@pytest.mark.parametrize("n", [300, MANY])
def test_two_columns(n):
    """Equal only where both are; a null in either matches nothing."""
    rng = np.random.default_rng(n)

    def columns(rows: int) -> list[pa.Array]:
        some = rng.integers(0, n // 10, rows)
        return [holes(rng, some, pa.int64()), holes(rng, [f"s{k}" for k in rng.integers(0, 20, rows)], pa.string())]

    check(columns(n), columns(2000))


def test_two_columns_that_differ_in_where_one_ends():
    build = [pa.array(["a", "ab", ""]), pa.array(["bc", "c", "abc"])]
    check(build, [pa.array(["ab", "a", "abc", "", "a"]), pa.array(["c", "bc", "", "abc", "c"])])


def test_three_columns_with_floats():
    rng = np.random.default_rng(8)

    def columns(rows: int) -> list[pa.Array]:
        floats = rng.choice([0.0, -0.0, np.nan, 1.0], rows)
        return [
            pa.array(floats),
            holes(rng, rng.integers(-(1 << 62), 1 << 62, rows) // (1 << 61), pa.int64()),
            pa.array(rng.choice([(1 << 63) + 1, 1, 0], rows).astype(np.uint64)),
        ]

    check(columns(200), columns(300), at_once=64)


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.float64(), pa.uint64()])
@pytest.mark.parametrize("build", [[], [None], [None] * 5])
def test_a_side_without_keys_matches_nothing(type_, build):
    check([pa.array(build, type_)], [pa.array([None, None], type_)])
    check([pa.array(build, type_)], [pa.array([0, 1, None]).cast(type_)])
    check([pa.array(build, type_)], [pa.array([], type_)])


@pytest.mark.parametrize("at_once", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("duplicates", [1, 2, 50])
def test_pairs_come_in_portions_whatever_their_size(at_once, duplicates):
    build = pa.array([key for key in (3, 1, 4) for _ in range(duplicates)] + [None])
    check([build], [pa.array([1, 2, None, 3, 3, 4, 0])], at_once)
    check([build.cast(pa.string())], [pa.array(["1", "2", None, "3", "3", "4", "0"])], at_once)


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()])
def test_an_index_serves_many_batches(type_):
    index = KeyIndex([normalised(pa.array([5, 10**12, 7, 5]).cast(type_))])
    for probe, wanted in (([5, 6], [2, 0]), ([10**12], [1]), ([], []), ([7, None, 5], [1, 0, 2])):
        codes = index.find([normalised(pa.array(probe, pa.int64()).cast(type_))])
        assert index.rows.matches(codes).tolist() == wanted


KINDS = {
    "_ByValue": [pa.array(range(0, 5000, 5))],
    "_HashedIntegers": [pa.array([k * 1_000_003 for k in range(1000)])],
    "_Few": [pa.array([f"key {k}" for k in range(1000)])],
    "_HashedKeys": [pa.array([f"key {k}" for k in range(5000)])],
    "_Nothing": [pa.array([None, None], pa.string())],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("twice", [False, True])
def test_an_index_takes_no_more_than_it_is_counted_with(kind, twice):
    """Beside the keys themselves, which are rows of the side."""
    columns = [pa.concat_arrays([column, column]) if twice else column for column in KINDS[kind]]
    index = check(columns, columns)
    assert type(index._finder).__name__ == kind
    buffers = []
    pickle.dumps(index, protocol=5, buffer_callback=buffers.append)
    keys = sum(column.nbytes for column in columns) if kind in ("_Few", "_HashedKeys") else 0
    allowed = held_bytes(keys, len(columns[0]))
    assert sum(buffer.raw().nbytes for buffer in buffers) <= allowed + 64


def test_spare_memory_is_used_to_look_integers_up_by_their_value():
    keys = pa.array(range(0, 60 * 5000, 60))
    assert type(KeyIndex([keys])._finder).__name__ == "_HashedIntegers"
    assert type(KeyIndex([keys], 4 * 60 * 5000)._finder).__name__ == "_ByValue"
    assert type(KeyIndex([pa.array(range(0, 70 * 5000, 70))], 1 << 30)._finder).__name__ == "_HashedIntegers"


@pytest.mark.parametrize("factor", [1, 1_000_003])
def test_two_columns_of_integers_are_one(factor):
    rng = np.random.default_rng(factor)

    def columns(rows: int) -> list[pa.Array]:
        dates = pa.array(rng.integers(18_000, 18_030, rows).astype(np.int32)).view(pa.date32())
        return [holes(rng, rng.integers(-40, 40, rows) * factor, pa.int64()), dates]

    index = check(columns(300), [*columns(2000)])
    assert type(index._finder).__name__ == ("_ByValue" if factor == 1 else "_HashedIntegers")


def test_two_columns_of_integers_too_far_apart_to_be_one():
    rng = np.random.default_rng(9)
    ends = np.array([-(1 << 63), (1 << 63) - 1, 0])
    columns = [pa.array(rng.choice(ends, 40)), pa.array(rng.choice(ends, 40))]
    index = check(columns, [pa.array(rng.choice(ends, 90)), pa.array(rng.choice(ends, 90))])
    assert type(index._finder).__name__ == "_HashedKeys"


def test_unequal_keys_of_one_hash_are_hashed_by_another_seed(monkeypatch):
    """By the first seed all keys have one hash."""
    real = key_index.hash_columns

    def poor(columns: Sequence[pa.Array], seed: int) -> np.ndarray:
        return real(columns, seed) if seed else np.zeros(len(columns[0]), np.uint64)

    monkeypatch.setattr(key_index, "hash_columns", poor)
    columns = [pa.array(["a", "b", "a", None, "c"]), pa.array(["x"] * 5)]
    check(columns, [pa.array(["a", "c", "d", None]), pa.array(["x", "x", "x", "y"])])

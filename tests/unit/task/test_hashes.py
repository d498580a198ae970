"""Spark's hashes: their documented values, and a row by row version of what is computed at once. ``tests/spark/test_hashes.py`` asks Spark."""

from __future__ import annotations

import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from firesteel.engine.connection import connect
from firesteel.engine.hashes import SEED, bucket_numbers, hashed_as, spark_hash, xxhash64

MASK = (1 << 32) - 1


def rotated(value, by):
    return ((value << by) | (value >> (32 - by))) & MASK


def mixed(seed, word):
    word = rotated(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    return (rotated(seed ^ word, 13) * 5 + 0xE6546B64) & MASK


def of_bytes(data, seed):
    """Spark's ``hashUnsafeBytes``."""
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        seed = mixed(seed, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        seed = mixed(seed, (byte - 256 if byte > 127 else byte) & MASK)
    seed ^= len(data)
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & MASK
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & MASK
    return seed ^ seed >> 16


def signed(value):
    return value - (1 << 32) if value >> 31 else value


def test_the_values_in_sparks_documents():
    """``SELECT hash('Spark', array(123), 2)``: an array's elements are hashed one after another."""
    found = spark_hash([pa.array(["Spark"]), pa.array([123], pa.int32()), pa.array([2], pa.int32())], 1)
    assert found.tolist() == [-1321691492]
    columns = "'Spark', [123::INTEGER], 2::INTEGER"
    asked = f"SELECT fs_hash({columns}), fs_xxhash64({columns}), fs_crc32('Spark'::BLOB), fs_crc32(NULL::BLOB)"
    assert connect().sql(asked).fetchall() == [(-1321691492, 5602566077635097486, 1557323817, None)]


def test_statements_of_several_threads_at_once():
    engine, count = connect(threads=3), 20_000
    text = f"SELECT sum(fs_xxhash64(i)) + sum(fs_hash('x' || i)) FROM range({count}) AS r(i)"
    cursors = [engine.cursor() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda cursor: cursor.sql(text).fetchall()[0][0], cursors))
    longs, texts = pa.array(range(count)), pa.array([f"x{i}" for i in range(count)])
    expected = sum(xxhash64([longs], count).tolist()) + sum(spark_hash([texts], count).tolist())
    assert found == [expected] * 4


@pytest.mark.parametrize(
    "value", ["repeat('x', {})", "range({} // 4)", "{{'t': repeat('x', {})}}", "[repeat('x', {} // 2), 'y']"]
)
def test_long_values_are_left_to_spark(value):
    """Word by word they cost more than Spark takes."""
    engine = connect()
    for function in ("fs_hash({})", "fs_xxhash64({})", "fs_code({}, 9)"):
        assert len(engine.sql(f"SELECT {function.format(value.format(4096))}").fetchall()) == 1
        with pytest.raises(duckdb.InvalidInputException, match="left to Spark: the hash of a text or an array as long"):
            engine.sql(f"SELECT {function.format(value.format(4104))}").fetchall()
    assert engine.sql("SELECT fs_crc32(repeat('x', 9000)::BLOB)").fetchall() == [(zlib.crc32(b"x" * 9000),)]


def test_bytes_of_every_length():
    draw = random.Random(5)
    values = [None if n % 17 == 0 else draw.randbytes(n % 23 if n % 5 else n) for n in range(300)]
    expected = [SEED if value is None else signed(of_bytes(value, SEED)) for value in values]
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        array = pa.array(values, type_)
        assert spark_hash([array], 300).tolist() == expected
        assert spark_hash([array.slice(31, 200)], 200).tolist() == expected[31:231]
    twice = [signed(of_bytes(v, one & MASK)) if v is not None else one for v, one in zip(values, expected, strict=True)]
    assert spark_hash([pa.array(values), pa.array(values)], 300).tolist() == twice


def test_large_decimals_are_the_bytes_of_a_big_integer():
    draw = random.Random(6)
    units = [0, -1, 1, *(sign * (1 << bits) + by for bits in range(7, 126) for sign in (1, -1) for by in (-1, 0))]
    units = [n for n in units if abs(n) < 10**38] + [draw.randrange(-(10**38) + 1, 10**38) for _ in range(200)]
    values = pa.array([Decimal(n) for n in units], pa.decimal128(38, 0))
    sizes = [((n if n >= 0 else ~n).bit_length() // 8) + 1 for n in units]
    expected = [
        signed(of_bytes(n.to_bytes(size, "big", signed=True), SEED)) for n, size in zip(units, sizes, strict=True)
    ]
    assert spark_hash([values], len(units)).tolist() == expected


def test_other_forms_of_the_same_values():
    texts = ["a", None, "text", "", "text"]
    plain = spark_hash([pa.array(texts)], 5).tolist()
    coded = pa.array(texts).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4, 5], pa.int32()), pa.array(texts))
    for form in (coded, runs, pa.array(texts, pa.large_string()), pa.array(texts, pa.string_view())):
        assert spark_hash([form], 5).tolist() == plain
    small, wide = pa.array([1, -1, None], pa.int8()), pa.array([1, -1, None], pa.int32())
    assert spark_hash([small], 3).tolist() == spark_hash([wide], 3).tolist()
    assert bucket_numbers([wide], 3, 1).tolist() == [0, 0, 0]
    assert spark_hash([pa.array([], pa.int64())], 0).tolist() == []
    numbers = bucket_numbers([pa.array(range(-500, 500))], 1000, 7).tolist()
    assert set(numbers) == set(range(7))


@pytest.mark.parametrize(
    "type_",
    [
        pa.uint8(), pa.uint64(), pa.float16(), pa.timestamp("ns"), pa.duration("us"), pa.time64("us"), pa.decimal256(50, 0),
        pa.list_(pa.int32()), pa.struct({"a": pa.int32()}), pa.map_(pa.string(), pa.int32()), pa.null(), pa.month_day_nano_interval(),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_spark_has_no_hash_for(type_):
    assert hashed_as(type_) is None
    assert hashed_as(pa.dictionary(pa.int32(), pa.string())) == pa.large_string()

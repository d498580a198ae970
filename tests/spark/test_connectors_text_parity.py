"""Lines as Spark's own readers find them, wherever a file is cut."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from firesteel.connectors.formats.csv_files import CsvSource
from firesteel.connectors.formats.csv_format import CsvFormat
from firesteel.connectors.formats.json_files import JsonSource
from firesteel.connectors.formats.text import TextSource
from operators_support import context

pytestmark = pytest.mark.spark

CASES = {
    "unix": b"a\nbb\nccc\n",
    "windows": b"a\r\nbb\r\n\r\nccc\r\n",
    "old mac": b"a\rbb\r\rccc\r",
    "mixed": b"a\r\n\rb\n\r\nc\r\r\n\nd",
    "no end": b"a\nb",
    "empty lines": b"\n\n\n",
    "one empty line": b"\n",
    "carriage return at the end": b"a\n\r",
    "two carriage returns and a newline": b"a\r\r\nb",
    "empty": b"",
    "mark": b"\xef\xbb\xbfa\nb\n",
    "long lines": b"x" * 5000 + b"\n" + b"y" * 3000,
    "umlauts": "ä\nöü\n".encode(),
}


def mixed(seed: int) -> bytes:
    chance = random.Random(seed)
    return b"".join(chance.choice([b"a", b"bc", b"\r", b"\n", b"\r\n", b"d" * 40]) for _ in range(120))


def ours(path, size: int) -> list[str]:
    source, ctx = TextSource(str(path)), context(path.parent)
    splits = source.list_splits(size)
    return [
        value for split in splits for batch in source.read(split.payload, ctx) for value in batch.column(0).to_pylist()
    ]


def by_spark(spark, path) -> list[str]:
    return [row.value for row in spark.read.text(str(path)).collect()]


@pytest.mark.full
@pytest.mark.parametrize("name", [*CASES, "random 1", "random 2", "random 3"])
def test_lines_are_those_of_spark(spark, tmp_path, name):
    data = CASES[name] if name in CASES else mixed(int(name[-1]))
    path = tmp_path / "lines.txt"
    path.write_bytes(data)
    expected = by_spark(spark, path)
    spark.conf.set("spark.sql.files.maxPartitionBytes", 64)
    try:
        assert sorted(by_spark(spark, path)) == sorted(expected)  # Spark agrees with itself about cuts
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    for size in (1, 2, 3, 7, 64, 1 << 20):
        assert ours(path, size) == expected, size


CORRUPT = {
    "csv": ["1,one", "2", "3,three,more", "four,four", '5,"fi,ve"', "6,", "7.5,x", "9999999999999999999,big", "-8,x"],
    "json": [
        '{"n": 1, "s": "x"}',
        '{"n": 2',
        '{"n": "two"}',
        "[1]",
        '{"s": 7}',
        '{"n": 7.5}',
        "no",
        "{}",
        '{"n": 9, "t": 1}',
    ],
}


@pytest.mark.parametrize(("kind", "source"), [("csv", CsvSource), ("json", JsonSource)])
def test_the_lines_that_cannot_be_read_are_those_of_spark(spark, tmp_path, kind, source):
    (tmp_path / "lines").write_text("\n".join(CORRUPT[kind]) + "\n")
    read = spark.read.format(kind).schema("n bigint, s string, bad string").option("columnNameOfCorruptRecord", "bad")
    theirs = [row.asDict() for row in read.load(str(tmp_path / "lines")).collect()]
    nothing = {"n": None, "s": None}
    expected = [{**row, **(nothing if row["bad"] is not None else {})} for row in theirs]
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    more = {"csv": CsvFormat(header=False)} if kind == "csv" else {}
    ours = source(str(tmp_path / "lines"), schema=schema, corrupt_column="bad", **more)
    for size in (1, 1 << 20):
        ctx, rows = context(tmp_path), []
        for split in ours.list_splits(size):
            rows += [row for batch in ours.read(split.payload, ctx) for row in batch.to_pylist()]
        assert rows == expected
    assert {row["bad"] is None for row in rows} == {True, False}

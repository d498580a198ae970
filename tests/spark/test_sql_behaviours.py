"""Behaviours of Spark's SQL, query by query: an accelerated session gives the same rows, types and errors as a plain one, and the order of a last sort."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import firesteel
import sql_queries_kit as kit

pytestmark = pytest.mark.spark

D = decimal.Decimal
TEXT = (Path(__file__).parent / "sql_behaviours" / "queries.txt").read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: [line for line in part.splitlines()[1:] if line] for part in TEXT.split("\n## ")[1:]}
SAMPLE = 80
"""The quick tests run each so many-th query."""
WHOLE = {
    "nulls": 29,
    "errors while it runs": 5,
    "errors while it is planned": 2,
    "types": 25,
    "nested values": 1,
    "texts": 16,
    "dates and times": 10,
    "order, limits, offsets": 29,
    "groups": 29,
    "joins, sets, subqueries": 47,
    "windows": 16,  # and another one where Spark takes FILTER in a window, which 4.0 does not
    "names": 13,  # one more since Spark 4
    "ties and limits": 8,
}
"""So many queries of a section are taken over whole, at least."""
LAST_ORDER = re.compile(r"ORDER BY[^()]*(\([^()]*\)[^()]*)*$")

PEOPLE = pa.table(
    {
        "id": pa.array(range(1, 9), pa.int32()),
        "name": ["ann", "Bob", "Ännchen", "ann", "carl", "", None, "straße"],
        "dept": ["dev", "ops", "dev", None, "ops", "hr", "hr", "dev"],
        "salary": pa.array([D(v) for v in ("100.50", "99.95", "0.05", "-2.50", "100.50")] + [None, D(7), D(80)], pa.decimal128(10, 2)),
        "hired": [dt.date(2020, 2, 29), dt.date(1970, 1, 1), dt.date(2024, 12, 31), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2021, 1, 3), dt.date(2020, 2, 29)],
        "boss": pa.array([None, 1, 1, 2, 2, 1, None, 7], pa.int32()),
        "score": [0.5, -1.25, 2.0, math.nan, math.inf, 0.0, None, -0.0],
        "ok": [True, False, None, True, True, False, None, True],
        "seen": pa.array([0, 10**15, -1, None, 1_700_000_000_123_456, 0, 10**15, 5], pa.timestamp("us", "UTC")),
        "local": pa.array([0, 10**15, 1_600_000_000_000_000, None, 1_700_000_000_123_456, 0, 10**15, 5], pa.timestamp("us")),
        "note": ["10", " 12 ", "10%", None, "abc", "1_0", "2024-02-29", "xx"],
        "big": [1, 2**62, -(2**63), None, 2**63 - 1, 7, 0, -5],
        "tiny": pa.array([1, 127, -128, None, 5, 0, 100, 2], pa.int8()),
        "ratio": pa.array([0.5, 1.5, -2.25, math.nan, None, 0.0, 8.0, -math.inf], pa.float32()),
        "digits": pa.array([D(v) for v in ("1", "0.0000000001", "9" * 28 + ".9999999999", "-3.5", "2.25", "0", "10", "7")], pa.decimal128(38, 10)),
    }
)  # fmt: skip
DEPTS = pa.table(
    {
        "dept": ["dev", "ops", "ops", None, "law"],
        "city": ["Bonn", "Köln", "Bonn", "Ulm", None],
        "budget": pa.array([D(v) for v in ("1000.5", "0.000001", "250", "-1")] + [None], pa.decimal128(38, 6)),
    }
)
SALES = pa.table(
    {
        "region": ["n", "n", "s", "s", None, "n"],
        "product": ["p", "q", "p", "q", "p", "p"],
        "year": pa.array([2023, 2024, 2023, 2024, 2024, 2024], pa.int32()),
        "amount": pa.array([D("1.5"), D(2), D(3), None, D(5), D("0.5")], pa.decimal128(10, 2)),
    }
)
ODD = pa.table({"x y": [1, 2, 3], "a.b": [10, 20, 10], "select": ["a", "b", None], "ÄÖ": [1.5, None, 2.5], 'q"uote': [True, False, None], "back`tick": [7, 8, 9]})  # fmt: skip
TABLES = {"people": PEOPLE, "depts": DEPTS, "nothing": DEPTS.slice(0, 0), "sales": SALES, "odd": ODD}


class Outcome(NamedTuple):
    """What a query gives: its rows, or its error."""

    kind: str
    value: object


@pytest.fixture(scope="module")
def views(spark, tmp_path_factory):
    home = tmp_path_factory.mktemp("behaviours")
    for name, table in TABLES.items():
        (home / name).mkdir()
        half = len(table) // 2
        for i, part in enumerate((table.slice(0, half), table.slice(half))):
            pq.write_table(part, home / name / f"{i}.parquet")
        spark.read.parquet(str(home / name)).createOrReplaceTempView(name)
    return home


@pytest.fixture
def session(spark, views, tmp_path):
    """The session, and the options of an acceleration."""
    with kit.quick(spark):
        yield spark, {"firesteel.journal.directory": str(tmp_path / "journal")}


def outcome(spark, query: str, action: str) -> Outcome:
    try:
        frame = spark.sql(query)
        if action == "collect":
            found, types = frame.collect(), frame.schema.json()
        else:
            table = frame.toArrow()
            found, types = list(zip(*map(plain, table.columns), strict=True)), str(table.schema)
    except PySparkException as error:
        return Outcome(type(error).__name__, (error.getCondition(), error.getMessage()))
    except Py4JJavaError as error:  # toArrow does not translate what Spark says before it runs
        causes = [line for line in str(error).splitlines() if line.startswith("Caused by")]
        return Outcome(type(error).__name__, [re.sub(r"((stage|TID|task) |#)[\d.]+", r"\1N", line) for line in causes])
    except ValueError as error:  # a year that Python does not know
        return Outcome(type(error).__name__, str(error))
    texts = [repr(row).replace("-0.0,", "0.0,").replace("-0.0)", "0.0)") for row in found]
    return Outcome("rows", (types, texts if LAST_ORDER.search(query) else sorted(texts)))


def plain(column: pa.ChunkedArray) -> list[object]:
    """Python's values; days as numbers, for Python ends with the year 9999."""
    return (column.cast(pa.int32()) if pa.types.is_date(column.type) else column).to_pylist()


def held(session, queries: list[str]) -> int:
    """Compares; gives how many were taken over whole."""
    spark, options = session
    wrong: list[str] = []
    left: list[tuple[str, tuple[str, ...]]] = []
    for number, line in enumerate(queries):
        query = line.removeprefix("legacy: ")
        spark.conf.set("spark.sql.ansi.enabled", str(query == line).lower())
        action = ("collect", "toArrow")[number % 2]
        theirs = outcome(spark, query, action)
        with firesteel.accelerate(spark, options) as acceleration:
            ours = outcome(spark, query, action)
        if ours != theirs:
            wrong.append(f"{line}\n  ours  {ours}\n  Spark {theirs}")
        left += [(line, one.left) for one in acceleration.queries]
    for line, why in left:
        print("; ".join(why)[:100] or "whole", "|", line)
    assert wrong == [], "\n".join(wrong)
    whole = sum(not why for _, why in left)
    print(f"{whole} of {len(queries)} queries were taken over whole")
    return whole


def test_a_sample_of_the_behaviours(session):
    queries = [query for part in SECTIONS.values() for query in part][::SAMPLE]
    assert held(session, queries) > 0


@pytest.mark.full
@pytest.mark.parametrize("section", SECTIONS)
def test_the_behaviours(session, section):
    assert held(session, SECTIONS[section]) >= WHOLE[section]

"""Joins and aggregates over Arrow's types against DuckDB."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from firesteel import DataStream, ExecutionEnvironment
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from graph_kit import run_local
from oracle import duck

_DAY = dt.datetime(2021, 3, 4, 5, 6, 7)
VALUES = {
    **{t: [0, 1, None, 2, 7] for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64())},
    pa.float32(): [0.0, -0.0, 1.5, None, math.nan],
    pa.float64(): [0.0, -0.0, 1.5, None, math.nan, -math.inf],
    pa.decimal128(12, 3): [Decimal("0.000"), Decimal("-1.500"), None, Decimal("99.125")],
    pa.string(): ["", "a", "ä", None, "a "],
    pa.dictionary(pa.int8(), pa.string()): ["x", "y", None],
    pa.binary(): [b"", b"\x00", None, b"a"],
    pa.bool_(): [True, False, None],
    pa.date32(): [dt.date(1969, 12, 31), None, dt.date(2021, 3, 4)],
    pa.timestamp("us"): [_DAY, None, _DAY + dt.timedelta(microseconds=1)],
    pa.time64("us"): [dt.time(1), None, dt.time(23, 59)],
}  # fmt: skip
NUMBERS = [t for t in VALUES if pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)]
PAIRS = [(t, t) for t in VALUES] + [
    (pa.int8(), pa.int64()),
    (pa.uint8(), pa.int32()),
    (pa.uint64(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.dictionary(pa.int8(), pa.string())),
]
WHERE = {
    "inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN", "anti": "ANTI JOIN",
}  # fmt: skip
HOWS = [pytest.param(how, marks=pytest.mark.full) if how in ("inner", "left", "right") else how for how in WHERE]
"""A full join does what inner, left and right ones do."""


def table(kind: pa.DataType, rows: int, name: str) -> pa.Table:
    values = VALUES[kind]
    column = pa.array([values[i % len(values)] for i in range(rows)], kind)
    return pa.table({"k": column, name: pa.array([i if i % 4 else None for i in range(rows)], pa.int64())})


def run(stream: DataStream) -> Counter:
    job = compile_job([collected(stream._pipeline)], stream._pipeline.env.options, "types")
    with tempfile.TemporaryDirectory() as directory:
        return rows(run_local(job, Path(directory))[0])


def rows(found: pa.Table) -> Counter:
    return Counter(tuple(map(plain, row.values())) for row in found.to_pylist())


def plain(value):
    """A value that is equal to itself, whatever its width."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_joins(pair, how):
    left_rows, right_rows = table(pair[0], 13, "a"), table(pair[1], 7, "b")
    env = ExecutionEnvironment()
    joined = env.from_arrow(left_rows).key_by("k").join(env.from_arrow(right_rows).key_by("k"), how)
    wanted = {"semi": "l.k, a", "anti": "l.k, a"}.get(how, "coalesce(l.k, r.k) AS k, a, b")
    query = f"SELECT {wanted} FROM l {WHERE[how]} r ON l.k = r.k"
    with duck() as connection:
        connection.execute("CREATE TEMP TABLE l AS FROM left_rows")  # filters pushed into Arrow lose NaN and -0.0
        connection.execute("CREATE TEMP TABLE r AS FROM right_rows")
        expected = connection.sql(query).to_arrow_table()
    assert run(joined) == rows(expected)


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_aggregates(kind):
    values = table(kind, 60, "g")
    values = values.set_column(1, "g", pa.array([i // 3 % 4 if i % 7 else None for i in range(60)], pa.int64()))
    functions = ["count", "count_distinct", "min", "max"] + (["sum", "mean"] if kind in NUMBERS else [])
    named = {f: ("k", f) for f in functions}
    sql = {"count_distinct": "count(DISTINCT k)", "mean": "avg(k::DOUBLE)"}
    chosen = ", ".join(sql.get(f, f"{f}(k)") for f in functions)
    stream = ExecutionEnvironment().from_arrow(values)
    with duck() as connection:
        connection.register("t", values)
        grouped = connection.sql(f"SELECT g, {chosen} FROM t GROUP BY g").to_arrow_table()
        by_key = connection.sql("SELECT k, count(*), sum(g) FROM t GROUP BY k").to_arrow_table()
        different = connection.sql("SELECT DISTINCT k, g FROM t").to_arrow_table()
    assert run(stream.key_by("g").aggregate(named)) == rows(grouped)
    assert run(stream.key_by("k").aggregate(n=("*", "count"), s=("g", "sum"))) == rows(by_key)
    assert run(stream.distinct()) == rows(different)

"""subtract, except_all, intersect and intersect_all against DuckDB: nulls, NaN, -0.0, duplicates, nested values."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.oracle import duckdb_answer

from firesteel import ExecutionEnvironment
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from firesteel.errors import UsageError
from graph_kit import run_local
from operators_support import rows

SQL = {"subtract": "EXCEPT", "except_all": "EXCEPT ALL", "intersect": "INTERSECT", "intersect_all": "INTERSECT ALL"}
FLOATS = [0.0, -0.0, 1.5, math.nan, -math.nan, None]
VALUES = {
    pa.int64(): [0, 1, None],
    pa.float64(): FLOATS,
    pa.float32(): FLOATS,
    pa.string(): ["", "a", None],
    pa.list_(pa.float64()): [[], [0.0], [-0.0], [None], [math.nan], None],
    pa.struct({"x": pa.float64(), "y": pa.string()}): [
        {"x": 0.0, "y": None}, {"x": -0.0, "y": None}, {"x": math.nan, "y": "a"}, {"x": None, "y": None}, None,
    ],
}  # fmt: skip


@st.composite
def pairs(draw):
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])

    def table():
        n = draw(st.integers(0, 12))
        columns = [draw(st.lists(st.sampled_from(VALUES[kind]), min_size=n, max_size=n)) for kind in kinds]
        return pa.Table.from_arrays([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], schema=schema)

    return table(), table()


def answer(stream, memory=32 << 20):
    job = compile_job([collected(stream._pipeline)], stream._pipeline.env.options, "sets")
    with tempfile.TemporaryDirectory() as directory:
        return rows(run_local(job, Path(directory), memory=memory)[0])


@settings(max_examples=examples(60))
@given(pairs(), st.sampled_from(list(SQL)), st.booleans())
def test_the_rows_are_those_of_sql(tables, step, lies_right):
    env = ExecutionEnvironment()
    left, right = (env.from_arrow(table) for table in tables)
    if lies_right:  # no exchange: rows are compared as they come, without having been counted
        left, right = (s.repartition(2, *s.columns) for s in (left, right))
    found = answer(getattr(left, step)(right))
    assert found == rows(duckdb_answer(f"FROM a {SQL[step]} FROM b", a=tables[0], b=tables[1]))


@pytest.mark.parametrize("step", SQL)
def test_rows_that_do_not_fit_into_the_memory(step):
    numbers = pa.table({"n": [i % 5000 for i in range(40_000)], "s": [f"text {i % 5000}" for i in range(40_000)]})
    other = pa.table({"n": [i * 3 for i in range(4000)], "s": [f"text {i * 3}" for i in range(4000)]})
    env = ExecutionEnvironment()
    left, right = (env.from_arrow(t).repartition(2, "n", "s") for t in (numbers, other))
    found = answer(getattr(left, step)(right), memory=1 << 20)
    assert found == rows(duckdb_answer(f"FROM a {SQL[step]} FROM b", a=numbers, b=other))


def test_one_exchange_that_counts_equal_rows_first_and_none_behind():
    env = ExecutionEnvironment()
    a, b = (env.from_arrow(pa.table({"n": [1, 2], "s": ["x", "y"]})) for _ in range(2))
    step = a.except_all(b).key_by("s", "n").count()
    job = compile_job([collected(step._pipeline)], env.options, "sets")
    hashed = [d for d in job.job_graph.datasets if d.keys]
    assert [d.keys for d in hashed] == [("n", "s")] * 2
    assert all(o.combiner is not None for v in job.job_graph.vertices[:2] for o in v.program.outputs)


def test_what_cannot_be_compared_is_refused():
    env = ExecutionEnvironment()
    one = env.from_collection([{"a": 1, "b": 2}])
    with pytest.raises(UsageError, match="stream 1 has the columns a, b; stream 2 has b, a"):
        one.subtract(one.select("b", "a"))
    maps = env.from_arrow(pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}))
    with pytest.raises(UsageError, match="intersect compares whole rows, and column 'm' has a map"):
        maps.intersect(maps)
    with pytest.raises(UsageError, match="except_all wants streams, not 3"):
        one.exceptAll(3)

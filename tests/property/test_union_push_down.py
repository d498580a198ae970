"""Random filters, projections and unions over files that several branches read: the rows are DuckDB's, whatever was pushed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.oracle import duckdb_answer

from firesteel import ExecutionEnvironment
from firesteel.arrow import col
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from graph_kit import check_shape, run_local
from operators_support import rows

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])
values = st.tuples(
    st.one_of(st.none(), st.integers(0, 4)), st.one_of(st.none(), st.integers(0, 4)), st.sampled_from(["x", "y", None])
)
FILTERS = [
    (col("a") > 1, "a > 1"),
    (col("b").is_null(), "b IS NULL"),
    ((col("a") < 3) | (col("s") == "x"), "a < 3 OR s = 'x'"),
    (~(col("b") == 2), "NOT (b = 2)"),
]
PROJECTIONS = [
    ({"a": col("a"), "b": col("b"), "s": col("s")}, "a, b, s"),
    ({"a": col("b"), "b": col("a"), "s": col("s")}, "b AS a, a AS b, s"),
    ({"a": col("a") + 1, "b": col("b"), "s": col("s")}, "a + 1 AS a, b, s"),
]


def collect(stream, number):
    return StreamNode("collect", CollectStep(number), stream.schema, (stream._pipeline.edge(),))


@st.composite
def pipelines(draw):
    """Streams and their SQL over the tables t0 and t1; ends that are read together."""
    tables = []
    for _ in range(2):
        drawn = draw(st.lists(values, max_size=15))
        columns = [pa.array([row[i] for row in drawn], field.type) for i, field in enumerate(SCHEMA)]
        tables.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    steps = draw(
        st.lists(st.tuples(st.sampled_from("fffpuu"), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8)
    )
    return tables, steps, draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)), draw(st.booleans())


@settings(max_examples=examples(80))
@given(pipelines())
def test_the_rows_are_those_of_duckdb(pipeline):
    tables, steps, chosen, aggregated = pipeline
    env = ExecutionEnvironment()
    with tempfile.TemporaryDirectory() as directory:
        pool = []
        for i, table in enumerate(tables):
            pq.write_table(table, f"{directory}/t{i}.parquet", row_group_size=4)
            pool.append((env.read_parquet(f"{directory}/t{i}.parquet"), f"FROM t{i}"))
        for step, which, other in steps:
            stream, sql = pool[-1 - which % len(pool)]
            if step == "f":
                expression, where = FILTERS[other % len(FILTERS)]
                made = stream.filter(expression), f"FROM ({sql}) WHERE {where}"
            elif step == "p":
                columns, select = PROJECTIONS[other % len(PROJECTIONS)]
                made = stream.select(**columns), f"SELECT {select} FROM ({sql})"
            else:
                more, more_sql = pool[-1 - other % len(pool)]
                made = stream.union(more), f"({sql}) UNION ALL ({more_sql})"
            pool.append(made)
        ends = [pool[-1], *(pool[i % len(pool)] for i in chosen)]
        if aggregated:
            ends = [
                (s.key_by("s").aggregate(n=("a", "sum")), f"SELECT s, sum(a)::BIGINT AS n FROM ({sql}) GROUP BY s")
                for s, sql in ends
            ]
        job = compile_job([collect(s, i) for i, (s, _) in enumerate(ends)], env.options, "random")
        check_shape(job)
        found = run_local(job, Path(directory) / "run")
        for i, (_, sql) in enumerate(ends):
            assert rows(found[i]) == rows(duckdb_answer(sql, t0=tables[0], t1=tables[1])), sql

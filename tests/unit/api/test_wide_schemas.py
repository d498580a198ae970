"""Steps on schemas of thousands of columns: four times as many cost about four times as much, and not sixteen times."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from firesteel.task.expressions import all_of, referenced_columns
from firesteel.task.operators import relational
from firesteel.task.operators.relational import DropNulls
from operators_support import context

N = 250
LINEAR = 9.0
"""Between the 4 of a cost that grows with the width and the 16 of its square."""
TRIES = 5


def wide(n):
    return ExecutionEnvironment().from_arrow(pa.table({f"c{i}": pa.array([1]) for i in range(n)}))


def compiled(stream):
    return compile_job([collected(stream._pipeline)], stream._pipeline.env.options, "wide")


STEPS = {
    "with_column": lambda s: s.with_column("x", col("c1") + 1),
    "with_columns of all": lambda s: s.with_columns({name: col(name) + 1 for name in s.columns}),
    "select of all": lambda s: s.select(*s.columns),
    "drop of half": lambda s: s.drop(*s.columns[::2]),
    "rename of all": lambda s: s.rename({name: f"new {name}" for name in s.columns}),
    "fill_nulls": lambda s: s.fill_nulls(0),
    "drop_nulls": lambda s: s.drop_nulls(),
    "union_by_name": lambda s: s.union_by_name(s.select(*reversed(s.columns))),
    "aggregate": lambda s: s.key_by("c0").aggregate(dict.fromkeys(s.columns[1:], "sum")),
    "join": lambda s: s.key_by("c0").join(s.key_by("c0")),
    "subtract": lambda s: s.subtract(s),
    "sort": lambda s: s.sort(*s.columns),
    "a schema in words": lambda s: s.map_in_arrow(iter, ", ".join(f"{name} bigint" for name in s.columns)),
    "a job": lambda s: compiled(s.with_column("x", col("c1") + 1).filter(col("x") > 1).select(*s.columns[::2])),
}


def cpu(build, stream):
    """Of this thread: other programs on the machine do not count."""
    found = []
    for _ in range(2):
        start = time.thread_time()
        build(stream)
        found.append(time.thread_time() - start)
    return min(found)


def assert_linear(growth):
    """Measures again only what looked too dear."""
    seen = []
    while not seen or seen[-1] >= LINEAR:
        seen.append(growth())
        assert len(seen) <= TRIES, seen


@pytest.mark.parametrize("build", STEPS.values(), ids=STEPS)
def test_a_step_costs_what_its_columns_cost(build):
    once, more = wide(N), wide(4 * N)
    build(once)
    assert_linear(lambda: cpu(build, more) / max(cpu(build, once), 1e-3))


def test_a_parquet_source_of_many_columns(tmp_path):
    def read(n):
        stream = ExecutionEnvironment().read_parquet(tmp_path / f"{n}.parquet")
        return compiled(stream.with_column("x", col("c1") + 1).filter(col("c2") > 1).select(*stream.columns[::2]))

    for n in (N, 4 * N):
        pq.write_table(pa.table({f"c{i}": [1] for i in range(n)}), tmp_path / f"{n}.parquet")
    read(N)
    assert_linear(lambda: cpu(read, 4 * N) / cpu(read, N))


def test_only_what_an_expression_reads_is_tried(monkeypatch):
    """No table of the whole schema is made for a column."""
    widths = []
    project = relational._project
    monkeypatch.setattr(
        relational, "_project", lambda table, columns: widths.append(table.num_columns) or project(table, columns)
    )
    wide(50).with_column("x", pc.field("c1") + pc.field("c30")).select("x", y=pc.scalar(1))
    assert widths == [2, 2, 1, 1]


def test_the_columns_of_an_expression_are_found_by_whatever_they_are_called():
    names = ["a", "b c", "c", 'quoted "x"', "add_checked", "a > 1", "(a > 1)", "%", "é", "1"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    for name in names:
        assert referenced_columns([pc.field(name) + 1], schema) == {name}
    assert referenced_columns([pc.if_else(pc.field("a") > 1, "c", "%")], schema) == {"a"}
    assert referenced_columns([pc.field(3) + 1], schema) == set(names)
    nested = pa.schema([("s t", pa.struct({"a": pa.int64()})), ("a", pa.int64())])
    assert referenced_columns([pc.field("s t", "a") + 1], nested) == {"s t"}
    many = pa.schema([(f"c{i}", pa.int64()) for i in range(200)])
    assert referenced_columns([all_of([pc.field(name) > 1 for name in many.names[:100]])], many) == set(
        many.names[:100]
    )


@pytest.mark.parametrize("how", ["any", "all"])
def test_nulls_of_many_columns_are_dropped_as_those_of_few(tmp_path, how):
    nan = float("nan")
    batch = pa.record_batch(
        {"a": [1, None, 3, None], "b": pa.array([None, None, 2.0, nan]), "c": [None, None, "x", None]}
    )
    found = [b.to_pylist() for b in DropNulls("d", ("a", "b", "c"), how).apply(iter([batch]), context(tmp_path))]
    assert found == [[batch.to_pylist()[2]] if how == "any" else [batch.to_pylist()[0], batch.to_pylist()[2]]]
    wider = ExecutionEnvironment().from_arrow(pa.table({f"c{i}": [1] for i in range(100)})).drop_nulls(how=how)
    assert isinstance(wider._pipeline.node.work.operator, DropNulls)

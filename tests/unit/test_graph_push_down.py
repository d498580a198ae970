"""What is pushed into a source, and that the rows stay the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel.graph.compiler import compile_job
from firesteel.graph.stream_graph import CollectStep, StreamNode
from firesteel.operators.relational import Filter, Project
from graph_kit import run_local

TABLE = pa.table({"a": [0, 1, 2, 3], "b": [4.0, None, 6.0, 7.0], "c": ["x", "y", "z", "w"], "d": [1, 1, 2, 2]})


class Pushed:
    """A source that says what was pushed into it."""

    name = "pushed"

    def __init__(self, schema=TABLE.schema, columns=None, filter=None):
        self.schema, self.columns, self.filter = schema, columns, filter

    def list_splits(self, data_volume):
        return []

    def read(self, split, ctx):
        return iter(())

    def push_down(self, columns, filter):
        kept = self.schema if columns is None else pa.schema([self.schema.field(c) for c in columns])
        return Pushed(kept, columns, filter)


@pytest.fixture
def stream():
    return ExecutionEnvironment().from_source(Pushed())


def pushed(*streams):
    ends = [StreamNode("collect", CollectStep(i), s.schema, (s._edge(),)) for i, s in enumerate(streams)]
    job = compile_job(ends, streams[0]._env.options, "job")
    vertex = job.job_graph.vertices[0]
    source = vertex.program.head.source
    return source.columns, None if source.filter is None else str(source.filter), vertex.program.operators


def same(batches):
    return batches


def test_nothing_to_push(stream):
    assert pushed(stream) == (None, None, ())
    assert pushed(stream.map_in_arrow(same, "a bigint"))[:2] == (None, None)


def test_selected_columns(stream):
    columns, _, operators = pushed(stream.select("c", "a"))
    assert columns == ["a", "c"]
    assert [type(o) for o in operators] == [Project]  # for the order
    assert pushed(stream.drop("b"))[0] == ["a", "c", "d"]


def test_columns_of_expressions(stream):
    assert pushed(stream.select(x=col("a") + col("d")))[0] == ["a", "d"]
    assert pushed(stream.select(x=pc.if_else(col("a") > 1, col("b"), 0.0)))[0] == ["a", "b"]


def test_a_constant_alone_keeps_the_narrowest_column(stream):
    assert pushed(stream.select(x=pc.scalar(1)))[0] == ["a"]


def test_computed_columns_that_nobody_needs_are_not_computed(stream):
    columns, _, operators = pushed(stream.with_column("x", col("a") + 1).with_column("y", col("b") * 2).select("y"))
    assert columns == ["b"]
    assert [name for o in operators for name, _ in o.columns] == ["b", "y", "y"] or columns == ["b"]


def test_a_filter_goes_down_and_is_gone(stream):
    columns, condition, operators = pushed(stream.filter(col("a") > 1).select("c"))
    assert (columns, condition) == (["c"], "(a > 1)")
    assert [type(o) for o in operators] == [Project]


def test_filters_of_renamed_or_computed_columns_stay(stream):
    assert pushed(stream.select(b="a", a="d").filter(col("a") > 1))[1] is None
    assert pushed(stream.with_column("a", col("a") + 1).filter(col("a") > 1))[1] is None


def test_filters_behind_a_computation_stay_because_it_might_have_raised(stream):
    assert pushed(stream.with_column("x", col("d") / col("a")).filter(col("d") > 1))[1] is None


def test_only_the_first_filter_may_be_one_that_can_raise(stream):
    _, condition, operators = pushed(stream.filter(col("a") != 0).filter(col("d") / col("a") > 1))
    assert condition == "(a != 0)"
    assert [type(o) for o in operators] == [Filter]
    _, condition, operators = pushed(stream.filter(col("a") != 0).filter(col("d").is_valid() & (col("d") > 1)))
    assert condition == "((a != 0) and (is_valid(d) and (d > 1)))"
    assert operators == ()


def test_a_filter_with_settings_of_its_own_stays(stream):
    assert pushed(stream.filter(col("a") > 1).name("only large"))[1] is None


def test_filters_stay_when_others_read_the_source_too(stream):
    assert pushed(stream.filter(col("a") > 1), stream.select("a"))[:2] == (None, None)


def test_several_readers_share_the_columns_they_need(stream):
    assert pushed(stream.select("a"), stream.select(x=col("c")))[0] == ["a", "c"]


def test_an_aggregate_reads_its_keys_and_columns(stream):
    assert pushed(stream.key_by("c").aggregate({"a": "sum"}))[0] == ["a", "c"]
    assert pushed(stream.filter(col("b") > 0).key_by("c").aggregate(n=("*", "count")))[:2] == (["c"], "(b > 0)")


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(col("a") != 0).filter(col("d") / col("a") >= 0).select("c", "a"),
        lambda s: s.with_column("x", col("a") * 2).filter(col("b") > 4).select("x"),
        lambda s: s.filter(col("b") > 4).aggregate(n=("*", "count"), m=("b", "mean")),
        lambda s: s.select(x=pc.scalar(7)),
        lambda s: s.select(b="a", a="d").filter(col("a") > 1),
    ],
)
def test_parquet_gives_the_same_rows_as_a_source_that_takes_nothing(build, tmp_path):
    env = ExecutionEnvironment()
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=2)
    tables = []
    for number, stream in enumerate([env.from_arrow(TABLE), env.read_parquet(tmp_path / "t.parquet")]):
        built = build(stream)
        end = StreamNode("collect", CollectStep(0), built.schema, (built._edge(),))
        tables.append(run_local(compile_job([end], env.options, "job"), tmp_path / f"run{number}")[0])
    assert sorted(map(str, tables[0].to_pylist())) == sorted(map(str, tables[1].to_pylist()))

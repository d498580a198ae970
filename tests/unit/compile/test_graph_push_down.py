"""What is pushed into a source, and that the rows stay the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel import functions as F
from firesteel.arrow import col, lit
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.task.operators.fragments import SqlFragment
from firesteel.task.operators.relational import Filter, Project
from firesteel.task.program import SourceHead
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
    ends = [StreamNode("collect", CollectStep(i), s.schema, (s._pipeline.edge(),)) for i, s in enumerate(streams)]
    job = compile_job(ends, streams[0]._pipeline.env.options, "job")
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


def test_what_the_engine_computes_stays_and_tells_the_source_what_it_may_leave_out(stream):
    chosen = stream.filter((F.col("a") > 1) & (F.col("b") > 1)).select("c", x=F.col("d") + 1)
    columns, condition, operators = pushed(chosen)
    assert (columns, condition) == (None, "(a > 1)")
    assert [(type(o), o.schema.names) for o in operators] == [(SqlFragment, ["c", "d"]), (SqlFragment, ["c", "x"])]
    assert pushed(stream.with_columns(x=F.col("a") + 1, y=F.col("b") * 2).select("y"))[0] == ["b"]
    assert pushed(stream.with_column("x", F.col("d") / F.col("a")).filter(F.col("d") > 1))[1] is None
    assert pushed(stream.filter(F.lit(1) / F.col("a") > 0).filter(F.col("d") > 1))[1] is None
    assert pushed(stream.filter(F.col("d") / F.col("a") > 0).filter(col("d") > 1))[1] is None
    assert pushed(stream.filter(F.col("a") > 1).name("only large"))[1] is None


def test_conditions_of_the_engine_rule_out_partitions_and_row_groups(tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"n": range(40)}), tmp_path / f"day={day}" / "0.parquet", row_group_size=10)
    rows = ExecutionEnvironment().read_parquet(str(tmp_path)).filter((F.col("day") == 2) & (F.col("n") < 15))
    end = StreamNode("collect", CollectStep(0), rows.schema, (rows._pipeline.edge(),))
    (vertex,) = compile_job([end], rows._pipeline.env.options, "job").job_graph.vertices
    assert vertex.program.head.source.pruned == "1 of 2 partitions"
    read = [one for split in vertex.program.head.source.list_splits(1) for one in split.payload]
    assert [(one.path.rpartition("day=")[2][:1], *one.row_groups) for one in read] == [("2", 0), ("2", 1)]
    assert sorted(row["n"] for row in rows.run_locally()) == list(range(15))


def test_a_filter_with_settings_of_its_own_stays(stream):
    assert pushed(stream.filter(col("a") > 1).name("only large"))[1] is None


def test_filters_stay_when_others_read_the_source_too(stream):
    assert pushed(stream.filter(col("a") > 1), stream.select("a"))[:2] == (None, None)


def test_several_readers_share_the_columns_they_need(stream):
    assert pushed(stream.select("a"), stream.select(x=col("c")))[0] == ["a", "c"]


def test_a_source_of_several_branches_is_filtered_by_what_any_of_them_needs(stream):
    two = stream.filter(col("a") > 1).select("c"), stream.select("a", "c").filter(col("a") == 0)
    columns, condition, operators = pushed(*two)
    assert (columns, condition) == (["a", "c"], "((a > 1) or (a == 0))")
    assert operators == ()  # both branches filter their rows themselves
    assert pushed(stream.filter(col("a") > 1), stream.filter(col("a") > 1).select("c"))[1] == "(a > 1)"
    assert pushed(stream.union(stream).filter(col("b").is_valid()))[1] == "is_valid(b)"


def test_branches_that_might_raise_or_look_at_other_values_filter_alone(stream):
    assert pushed(stream.filter(col("a") > 1), stream.filter(col("d") / col("a") > 1))[1] is None
    assert pushed(stream.filter(col("a") > 1), stream.select(a="d").filter(col("a") > 1))[1] is None
    assert pushed(stream.filter(col("a") > 1), stream.with_column("a", lit(5)).filter(col("a") > 1))[1] is None


COMPARED = {
    "whole number, fraction": col("n") > 0.5,
    "whole number, double": col("n") > col("x"),
    "in fractions": col("n").isin([0.5]),
}


@pytest.mark.parametrize("second", COMPARED.values(), ids=COMPARED)
@pytest.mark.parametrize("branches", [1, 2])
def test_a_comparison_of_two_types_can_raise_and_stays_behind_the_first_filter(second, branches, tmp_path):
    many = (1 << 62) + 1  # there is no such double
    pq.write_table(pa.table({"n": [0, many], "x": [0.5, 0.5]}), tmp_path / "t.parquet")
    stream = ExecutionEnvironment().read_parquet(tmp_path / "t.parquet")
    ends = [stream.filter(col("n") < 100).filter(second), stream.filter(col("n") > 100)][:branches]
    nodes = [StreamNode("collect", CollectStep(i), s.schema, (s._pipeline.edge(),)) for i, s in enumerate(ends)]
    found = run_local(compile_job(nodes, stream._pipeline.env.options, "job"), tmp_path)
    assert [found[i]["n"].to_pylist() for i in range(branches)] == [[], [many]][:branches]


def unions(build, parts=2):
    env = ExecutionEnvironment()
    streams = [env.from_source(Pushed()) for _ in range(parts)]
    stream = build(*streams)
    end = StreamNode("collect", CollectStep(0), stream.schema, (stream._pipeline.edge(),))
    return compile_job([end], env.options, "job").job_graph.vertices


def read(vertices):
    sources = [v.program.head.source for v in vertices if isinstance(v.program.head, SourceHead)]
    return [(s.columns, None if s.filter is None else str(s.filter)) for s in sources]


def test_what_is_behind_a_union_goes_into_its_branches(stream):
    vertices = unions(lambda a, b: a.union(b).filter(col("a") > 1).select("c").key_by("c").count())
    assert read(vertices) == [(["c"], "(a > 1)")] * 2
    assert [v.name.split(" -> ")[0] for v in vertices] == ["from_source(pushed)"] * 2 + ["aggregate(count)"]
    assert all(v.program.outputs[0].combiner is not None for v in vertices[:2])


def test_unions_of_unions_and_branches_with_steps_of_their_own():
    vertices = unions(lambda a, b, c: a.union(b.filter(col("d") == 1)).union(c).filter(col("a") > 1), parts=3)
    assert read(vertices) == [(None, "(a > 1)"), (None, "((d == 1) and (a > 1))"), (None, "(a > 1)")]
    vertices = unions(lambda a, b: a.union(b.map_in_arrow(same, TABLE.schema)).filter(col("a") > 1))
    assert read(vertices) == [(None, "(a > 1)"), (None, None)]
    assert [type(o).__name__ for o in vertices[1].program.operators] == ["MapInArrow", "Filter"]


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: a.union(b).filter(col("a") > 1).name("mine"),
        lambda a, b: a.union(b).filter(col("a") > 1).set_parallelism(3),
        lambda a, b: a.union(b).filter(col("a") > 1).slot_sharing_group("x"),
        lambda a, b: a.union(b).filter(col("a") > 1).forward().map_in_arrow(same, TABLE.schema),
        lambda a, b: a.union(b).rebalance().filter(col("a") > 1),
        lambda a, b: a.union(b.rebalance()).filter(col("a") > 1),
        lambda a, b: a.union(b.disable_chaining()).filter(col("a") > 1),
        lambda a, b: a.union(b.slot_sharing_group("x")).filter(col("a") > 1),
        lambda a, b: a.union(b).filter(lambda row: row.a > 1),
    ],
)
def test_a_step_that_was_told_how_to_run_stays_behind_the_union(build):
    kinds = [[type(o).__name__ for o in v.program.operators] for v in unions(build)]
    assert sum(name in ("Filter", "FilterRows") for names in kinds for name in names) == 1


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
        end = StreamNode("collect", CollectStep(0), built.schema, (built._pipeline.edge(),))
        tables.append(run_local(compile_job([end], env.options, "job"), tmp_path / f"run{number}")[0])
    assert sorted(map(str, tables[0].to_pylist())) == sorted(map(str, tables[1].to_pylist()))

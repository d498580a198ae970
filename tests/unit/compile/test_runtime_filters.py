"""The sources that joins behind them can narrow: found in the job graph, by the columns that are handed on."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.arrow import col
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.model.job_graph import JobGraph
from firesteel.options import Options

FACT = pa.table({"a": [1, 2], "b": [1, 2], "v": [1.0, 2.0]})


@pytest.fixture
def files(tmp_path):
    pq.write_table(FACT, tmp_path / "fact.parquet")
    for name in "ab":
        pq.write_table(pa.table({name: [1, 2], f"of_{name}": ["x", "y"]}), tmp_path / f"{name}.parquet")
    return tmp_path


@pytest.fixture
def env():
    return ExecutionEnvironment()


def graph_of(*streams, **options) -> JobGraph:
    ends = [
        StreamNode("collect", CollectStep(k), stream.schema, (stream._pipeline.edge(),))
        for k, stream in enumerate(streams)
    ]
    given = streams[0]._pipeline.env.options.merged(Options(options))
    return compile_job(ends, given, "job").job_graph


def found(graph: JobGraph) -> dict[str, list[tuple[str, tuple[str, ...], tuple[str, ...], bool]]]:
    """By name of the source: of each filter the name of the side's source, the columns there and here, selective."""

    def source_of(dataset: int) -> str:
        return graph.vertices[graph.datasets[dataset].producer].name.split(" -> ")[0].split()[-1]

    return {
        vertex.name.split(" -> ")[0].split()[-1]: [
            (source_of(f.dataset), f.keys, f.columns, f.selective) for f in vertex.filters
        ]
        for vertex in graph.vertices
        if vertex.filters
    }


def read(env, files, name):
    return env.read_parquet(files / f"{name}.parquet")


SIDES = {"inner": "left right", "left": "right", "right": "left", "full": "", "semi": "left right", "anti": "right"}


@pytest.mark.parametrize("how", SIDES)
def test_sides_whose_rows_come_out_only_where_they_match(env, files, how):
    joined = read(env, files, "fact").key_by("a").join(read(env, files, "a").key_by("a"), how)
    expected = {"left": ("fact.parquet", "a.parquet"), "right": ("a.parquet", "fact.parquet")}
    wanted = dict(expected[side] for side in SIDES[how].split())
    assert found(graph_of(joined)) == {own: [(other, ("a",), ("a",), False)] for own, other in wanted.items()}


@pytest.mark.parametrize("nearest", [True, False])
def test_a_join_by_the_nearest_time_needs_all_right_rows_of_its_keys(env, files, nearest):
    """Without the nearest row, a join behind it would see another one."""
    left, right = read(env, files, "b"), read(env, files, "fact")
    joined = left.join_asof(right, ("b", "a"), "b", how="inner")
    if not nearest:
        joined = left.join(right, ["b", ("b", "<=", "a")])
    filters = found(graph_of(joined.key_by("a").join(read(env, files, "a").key_by("a"))))["fact.parquet"]
    by_key = [("b.parquet", ("b",), ("b",), False)]
    assert filters == (by_key if nearest else [*by_key, ("a.parquet", ("a",), ("a",), False)])


def test_a_fact_gets_the_filters_of_all_its_dimensions(env, files):
    fact = read(env, files, "fact").filter(col("v") > 0).select(x=col("a"), b=col("b"), w=pc.add(col("v"), 1.0))
    one = read(env, files, "a").filter(col("of_a") == "x").select(x=col("a"))
    joined = fact.key_by("x").join(one.key_by("x")).key_by("b").join(read(env, files, "b").key_by("b"))
    assert found(graph_of(joined))["fact.parquet"] == [
        ("a.parquet", ("x",), ("a",), True),
        ("b.parquet", ("b",), ("b",), False),
    ]


def test_joins_by_one_key_that_are_one_task(env, files):
    one, two = read(env, files, "a").select("a"), read(env, files, "a").select(a=col("a"), other=col("of_a"))
    joined = (
        read(env, files, "fact").key_by("a").join(one.key_by("a"), "left").key_by("a").join(two.key_by("a"), "semi")
    )
    for options, inputs in (({}, 2), ({"firesteel.join.adaptive": False, "firesteel.join.skew": "none"}, 3)):
        graph = graph_of(joined, **options)
        assert max(len(vertex.inputs) for vertex in graph.vertices) == inputs
        (filters,) = [vertex.filters for vertex in graph.vertices if "fact" in vertex.name]
        assert [(f.build, f.columns) for f in filters] == [(1, ("a",))], "the left join lets every row through"
        others = [vertex for vertex in graph.vertices if vertex.source is not None and "fact" not in vertex.name]
        joins = [graph.datasets[f.dataset].producer for vertex in others for f in vertex.filters]
        assert all(graph.vertices[vertex].source is not None for vertex in joins), (
            "no rows of a join that may be one step"
        )


def test_both_columns_of_a_key_and_columns_that_are_renamed(env, files):
    pq.write_table(pa.table({"p": [1], "q": [1]}), files / "pairs.parquet")
    pairs = read(env, files, "pairs").select(b=col("p"), a=col("q"))
    joined = read(env, files, "fact").key_by("a", "b").join(pairs.key_by("a", "b"))
    filters = found(graph_of(joined))
    assert filters["fact.parquet"] == [("pairs.parquet", ("a", "b"), ("a", "b"), False)]
    assert filters["pairs.parquet"] == [("fact.parquet", ("a", "b"), ("q", "p"), False)]


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.map_in_arrow(lambda batches: batches, s.schema),
        lambda s: s.limit(10),
        lambda s: s.with_column("a", pc.add(col("a"), 1)),
        lambda s: s.distinct(),
        lambda s: s.union(s.filter(col("a") > 5)),
    ],
    ids=["function", "limit", "computed key", "distinct", "read twice"],
)
def test_steps_that_look_at_rows_or_change_the_key_end_the_search(env, files, step):
    joined = step(read(env, files, "fact")).key_by("a").join(read(env, files, "a").key_by("a"))
    assert "fact.parquet" not in found(graph_of(joined))


def test_a_source_that_others_read_too_is_left_alone(env, files):
    fact = read(env, files, "fact")
    joined = fact.key_by("a").join(read(env, files, "a").key_by("a"))
    assert "fact.parquet" not in found(graph_of(joined, fact))


def test_a_stream_joined_with_itself(env, files):
    fact = read(env, files, "fact")
    assert found(graph_of(fact.key_by("a").join(fact.key_by("a")))) == {}


def test_rows_of_the_other_side_without_a_match_stay_what_they_are(env, files):
    """A right join's left columns are null where there is no left row: they say nothing about the left source."""
    joined = read(env, files, "fact").key_by("a").join(read(env, files, "a").key_by("a"), "right")
    behind = joined.key_by("b").join(read(env, files, "b").key_by("b"))
    filters = found(graph_of(behind))
    assert filters["fact.parquet"] == [("a.parquet", ("a",), ("a",), False)]


@pytest.mark.parametrize(
    "step, drops",
    [
        (lambda s: s.with_column("z", col("a")), False),
        (lambda s: s.map(lambda row: row, s.schema), False),
        (lambda s: s.filter(col("a") > 1), True),
        (lambda s: s.flat_map(lambda row: [row], s.schema), True),
        (lambda s: s.map_in_arrow(lambda batches: batches, s.schema), True),
        (lambda s: s.limit(1), True),
    ],
    ids=["column", "map", "filter", "flat_map", "map_in_arrow", "limit"],
)
def test_a_side_is_selective_if_a_step_may_drop_rows(env, files, step, drops):
    joined = read(env, files, "fact").key_by("a").join(step(read(env, files, "a")).key_by("a"))
    ((_, _, _, selective),) = found(graph_of(joined))["fact.parquet"]
    assert selective is drops

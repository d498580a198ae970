"""Obstacles to a broadcast join that the pipeline has, in words, and the joins that are none of those that adapt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.api.streams.data_stream import DataStream
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, DataFrameStep, StreamNode
from firesteel.model.job_graph import JobGraph

ROWS = pa.table({"a": [1, 2], "b": [1, 2]})


def handed_on(batches, small):
    yield from batches


def same(batches):
    yield from batches


def compiled(env, *streams) -> JobGraph:
    ends = [StreamNode("collect", CollectStep(k), s.schema, (s._pipeline.edge(),)) for k, s in enumerate(streams)]
    return compile_job(ends, env.options, "job").job_graph


def obstacles(env, left, right, how="inner", behind=lambda stream: stream) -> tuple[str, str]:
    """Of the only join that adapts."""
    graph = compiled(env, behind(left.key_by("a").join(right.select("a").key_by("a"), how)))
    (join,) = [vertex.join for vertex in graph.vertices if vertex.join is not None]
    return join.obstacles


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_side_that_comes_out_without_a_match_is_never_read_whole(how):
    env = ExecutionEnvironment()
    found = obstacles(env, env.from_arrow(ROWS), env.from_arrow(ROWS), how)
    forbidden = {"inner": "", "left": "left", "right": "right", "full": "left right", "semi": "left", "anti": "left"}[
        how
    ]
    told = [
        f"rows of the {side} side without a match come out of a {how} join, once each" for side in ("left", "right")
    ]
    assert found == tuple(
        words if side in forbidden else "" for side, words in zip(("left", "right"), told, strict=True)
    )


def test_what_runs_inside_sparks_plan_is_not_joined_there():
    class Settled:
        dataframe, num_partitions, deterministic = object(), 3, True

    env = ExecutionEnvironment()
    node = StreamNode("from_dataframe", DataFrameStep(Settled), ROWS.schema)
    frame, rows = DataStream(env.from_arrow(ROWS)._pipeline.at(node)), env.from_arrow(ROWS)
    assert obstacles(env, frame, rows) == ("", "the left side is made inside Spark's plan of a DataFrame")
    assert obstacles(env, rows, frame.select("a"))[0] == "the right side is made inside Spark's plan of a DataFrame"


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (lambda s: s.map_in_arrow(same, s.schema).disable_chaining(), lambda s: s),
        (lambda s: s, lambda s: s.disable_chaining()),
        (lambda s: s, lambda s: s.start_new_chain()),
    ],
)
def test_a_task_of_its_own_is_not_shared_either(before, behind):
    env = ExecutionEnvironment()
    fact, dim = env.from_arrow(ROWS), env.from_arrow(ROWS)
    assert obstacles(env, before(fact), dim, behind=behind)[1] == "chaining is switched off there"


def test_a_chain_that_begins_before_the_join_may_be_longer():
    env = ExecutionEnvironment()
    fact = env.from_arrow(ROWS).rebalance().map_in_arrow(same, ROWS.schema).start_new_chain()
    assert obstacles(env, fact, env.from_arrow(ROWS)) == ("", "")


@pytest.mark.parametrize(
    "stream_of",
    [
        lambda fact, dim: fact.key_by("a").aggregate({"b": "max"}).key_by("a").join(dim.key_by("a")),
        lambda fact, dim: fact.key_by("a").join(dim.key_by("a")).key_by("a").apply_in_arrow(lambda x: x, fact.schema),
        lambda fact, dim: fact.union(fact.filter(lambda row: row.a > 1)).key_by("a").join(dim.key_by("a")),
        lambda fact, dim: fact.key_by("a").cogroup(dim.key_by("a")).apply_in_arrow(lambda x, y: x, fact.schema),
    ],
)
def test_a_join_in_one_task_with_other_steps_by_the_key_is_exchanged(stream_of):
    env = ExecutionEnvironment()
    graph = compiled(env, stream_of(env.from_arrow(ROWS), env.from_arrow(ROWS).select("a")))
    assert all(vertex.join is None for vertex in graph.vertices)


def test_side_inputs_of_one_name_never_meet_in_one_task_however_many_joins_lie_between():
    env = ExecutionEnvironment()
    fact, one, other = (env.from_arrow(ROWS) for _ in range(3))
    fact = fact.with_broadcast(small=one).map_in_arrow(handed_on, ROWS.schema)
    first = fact.key_by("a").join(env.from_arrow(ROWS).select("a").key_by("a"))
    second = first.key_by("b").join(env.from_arrow(ROWS).select("b").key_by("b"))
    graph = compiled(env, second.with_broadcast(small=other).map_in_arrow(handed_on, second.schema))
    joins = [vertex.join for vertex in graph.vertices if vertex.join is not None]
    assert [join.obstacles[1] for join in joins] == ["", "the left side and the join have side inputs of one name"]

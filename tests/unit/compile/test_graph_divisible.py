"""Inputs of joins that may be dealt out to several subtasks, as the compiler tells the scheduler."""

from __future__ import annotations

import pytest

from firesteel import ExecutionEnvironment
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode


@pytest.fixture
def sides():
    env = ExecutionEnvironment()
    left = env.from_collection([{"k": 1, "v": 2}])
    return left, env.from_collection([{"k": 1, "w": 2}])


def edges_of(stream):
    """Per vertex with co-partitioned inputs: whether each of them is divisible, and the reasons why not."""
    end = StreamNode("collect", CollectStep(0), stream.schema, (stream._pipeline.edge(),))
    graph = compile_job([end], stream._pipeline.env.options, "job").job_graph
    keyed = [[edge for edge in vertex.inputs if edge.co_partitioned] for vertex in graph.vertices]
    return [([edge.divisible for edge in edges], [edge.indivisible for edge in edges]) for edges in keyed if edges]


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [
        ("inner", True, True),
        ("left", True, "only left rows may be in a join of kind 'left'"),
        ("semi", True, "only left rows may be in a join of kind 'semi'"),
        ("anti", True, "only left rows may be in a join of kind 'anti'"),
        ("right", "only right rows may be in a join of kind 'right'", True),
        ("full", "no rows may be in a join of kind 'full'", "no rows may be in a join of kind 'full'"),
    ],
)
def test_by_kind_of_join(sides, how, left, right):
    ((divisible, why),) = edges_of(sides[0].key_by("k").join(sides[1].key_by("k"), how))
    assert divisible == [left is True, right is True]
    assert why == ["" if side is True else side for side in (left, right)]


def test_not_with_a_step_by_the_same_key_in_its_tasks(sides):
    joined = sides[0].key_by("k").join(sides[1].key_by("k"))
    ((divisible, why),) = edges_of(joined.key_by("k").apply_in_arrow(lambda rows: rows, joined.schema))
    assert divisible == [False, False] and all("is one task, with unions or other steps by key" in w for w in why)
    apart, behind = edges_of(joined.key_by("k").aggregate({"v": "sum"}))
    assert apart[0] == [True, True] and behind == ([False], [""]), "decided when it runs"
    first, second = edges_of(joined.key_by("v").aggregate({"k": "sum"}))
    assert first[0] == [True, True] and second == ([False], [""]), "by another key it has its own exchange"
    apart, behind = edges_of(joined.key_by("k").apply_in_arrow(lambda rows: rows, joined.schema).start_new_chain())
    assert apart[0] == [True, True] and behind == ([False], [""])


def test_not_where_an_input_is_a_union(sides):
    left = sides[0].union(sides[0].filter(lambda row: True))
    ((divisible, why),) = edges_of(left.key_by("k").join(sides[1].key_by("k")))
    assert not any(divisible) and all("unions" in w for w in why)


def test_nothing_but_joins(sides):
    ((divisible, why),) = edges_of(sides[0].key_by("k").apply_in_arrow(lambda rows: rows, sides[0].schema))
    assert not any(divisible) and not any(why), "nobody would ask"

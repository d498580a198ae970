"""Obstacles to a broadcast join that only a chain of joins has."""

from __future__ import annotations

import pyarrow as pa

from firesteel import ExecutionEnvironment
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode

ROWS = pa.table({"a": [1, 2], "b": [1, 2]})


def handed_on(batches, small):
    yield from batches


def test_side_inputs_of_one_name_never_meet_in_one_task_however_many_joins_lie_between():
    env = ExecutionEnvironment()
    fact, one, other = (env.from_arrow(ROWS) for _ in range(3))
    fact = fact.with_broadcast(small=one).map_in_arrow(handed_on, ROWS.schema)
    first = fact.key_by("a").join(env.from_arrow(ROWS).select("a").key_by("a"))
    second = first.key_by("b").join(env.from_arrow(ROWS).select("b").key_by("b"))
    end = second.with_broadcast(small=other).map_in_arrow(handed_on, second.schema)
    node = StreamNode("collect", CollectStep(0), end.schema, (end._pipeline.edge(),))
    graph = compile_job([node], env.options, "job").job_graph
    joins = [vertex.join for vertex in graph.vertices if vertex.join is not None]
    assert [join.obstacles[1] for join in joins] == ["", "the left side and the join have side inputs of one name"]

"""Slot sharing groups of random pipelines, against the rule as the seed words it, read step by step."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import DataStream, ExecutionEnvironment, SlotSharingGroup
from firesteel.api.steps.actions import collected
from firesteel.arrow import col
from firesteel.compile import plan as planning
from firesteel.compile.compiler import compile_job
from firesteel.compile.plan import plan
from firesteel.compile.push_down import push_down
from firesteel.compile.slot_sharing import slot_sharing
from firesteel.compile.stream_graph import StreamNode, UnionStep, reachable
from firesteel.compile.vertices import fuse

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
NAMES = ["a", "b", "default"]


def same(batches, **sides):
    yield from batches


def one(left, right):
    return left


@st.composite
def pipelines(draw):
    """Some ends of a random pipeline, whose steps are put into groups here and there."""
    env = ExecutionEnvironment()
    pool: list[DataStream] = [env.from_collection([], SCHEMA) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 10))):
        stream, other = draw(st.sampled_from(pool)), draw(st.sampled_from(pool[-3:]))
        made = _step(draw, stream, other)
        if not isinstance(made._pipeline.node.work, UnionStep) and draw(st.booleans()):
            made = made.slot_sharing_group(draw(st.sampled_from(NAMES)))
        pool.append(made)
    for stream in pool[:1]:
        if draw(st.booleans()):
            stream.slot_sharing_group(draw(st.sampled_from(NAMES)))
    chosen = draw(st.sets(st.sampled_from(range(len(pool))), max_size=2)) | {len(pool) - 1}
    return [pool[i] for i in sorted(chosen)]


def _step(draw, stream: DataStream, other: DataStream) -> DataStream:
    kind = draw(st.sampled_from(["map", "filter", "plus", "sum", "top", "cogroup", "union", "union", "side"]))
    match kind:
        case "filter":
            return stream.filter(col("v") > 0)
        case "plus":
            return stream.with_column("v", col("v") + 1)
        case "sum":
            return stream.key_by("k").aggregate({"v": "sum"})
        case "top":
            return stream.top_k(2, "v")
        case "cogroup":
            return stream.key_by("k").cogroup(other.key_by("k")).apply_in_arrow(one, SCHEMA)
        case "union":
            return stream.union(other)
        case "side":
            return stream.with_broadcast(small=other).map_in_arrow(same, SCHEMA)
        case _:
            return stream.map_in_arrow(same, SCHEMA)


def group_by_the_rule(node: StreamNode) -> str:
    """An operation is in the group it was put into, else in its inputs' if they all share one, else in "default"."""
    if node.config.slot_sharing_group is not None:
        return node.config.slot_sharing_group.name
    groups = [group_by_the_rule(step) for step in inputs_of(node)]
    return groups[0] if groups and all(group == groups[0] for group in groups) else "default"


def inputs_of(node: StreamNode) -> list[StreamNode]:
    """The operations it reads: a union is none, it stands for what it unites."""
    found: list[StreamNode] = []
    for edge in (*node.inputs, *(edge for _, edge in node.sides)):
        found += inputs_of(edge.source) if isinstance(edge.source.work, UnionStep) else [edge.source]
    return found


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines())
def test_every_step_is_in_the_group_that_the_rule_gives_it(ends):
    nodes = reachable([collected(stream._pipeline) for stream in ends])
    sharing = slot_sharing(nodes, {})
    assert dict(sharing.group_of) == {node: group_by_the_rule(node) for node in nodes}
    assert not sharing.groups


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.sampled_from([2, planning.MAX_UNITED]))
def test_a_task_has_steps_of_one_group_only(ends, most):
    before, planning.MAX_UNITED = planning.MAX_UNITED, most  # with 2, unions become steps of their own
    try:
        nodes = [collected(stream._pipeline) for stream in ends]
        every = reachable(nodes)
        vertices, _ = fuse(plan(nodes, push_down(every), slot_sharing(every, {}).group_of))
        for vertex in vertices:
            steps = [*vertex.steps, *vertex.ends]
            assert {group_by_the_rule(step.node) for step in steps} == {vertex.first.group}
        resources = {name: SlotSharingGroup(name, 1 + i, "1 GiB") for i, name in enumerate(NAMES)}
        graph = compile_job(nodes[:1], ends[0]._pipeline.env.options, "job", resources).job_graph
        used = {vertex.slot_sharing_group for vertex in graph.vertices}
        assert graph.slot_sharing_groups == {name: group for name, group in resources.items() if name in used}
    finally:
        planning.MAX_UNITED = before

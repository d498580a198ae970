"""Joins that a step by the same key follows: made apart where they may be decided when the job runs, and one where that cannot pay."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment, SlotSharingGroup, window
from firesteel.arrow import col
from firesteel.compile.adaptive.joins import absorb_in
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.model.absorbing import Absorbing
from firesteel.options import Options
from firesteel.task.program import KeyedHead
from graph_kit import check_shape

ROWS = pa.table({"k": [1, 2], "j": [1, 2], "v": [1, 2]})
APART = {"firesteel.join.adaptive": False, "firesteel.join.skew": "none"}


@pytest.fixture
def env():
    return ExecutionEnvironment()


def stream(env, **names: str):
    return env.from_arrow(ROWS.rename_columns([names.get(name, name) for name in ROWS.column_names]))


def compiled(of, options: dict | None = None) -> CompiledJob:
    end = StreamNode("collect", CollectStep(0), of.schema, (of._pipeline.edge(),))
    job = compile_job([end], Options(options or {}), "job")
    check_shape(job)
    return job


def pairs(job: CompiledJob) -> list[tuple[int, int]]:
    return [(v.first_step, v.id) for v in job.job_graph.vertices if v.first_step is not None]


def joined(env, **settings):
    return stream(env).key_by("k").join(stream(env, v="w", j="i").key_by("k"), **settings)


def same(batches):
    return batches


FOLLOWERS = {
    "aggregate": (lambda s, _: s.key_by("k").aggregate({"v": "sum"}), 1),
    "distinct values": (lambda s, _: s.key_by("k").aggregate({"v": "count_distinct"}), 1),
    "function": (lambda s, _: s.key_by("k").apply_in_arrow(same, s.schema), 0),
    "window": (lambda s, _: s.key_by("k").window(order_by="v", n=window.row_number()), 0),
    "join": (lambda s, e: s.key_by("k").join(stream(e, v="x", j="y").key_by("k")), 1),
    "join and function": (
        lambda s, e: (
            s.key_by("k").join(stream(e, v="x", j="y").key_by("k")).key_by("k").apply_in_arrow(same, ROWS.schema)
        ),
        0,
    ),
    "join and aggregate": (
        lambda s, e: s.key_by("k").join(stream(e, v="x", j="y").key_by("k")).key_by("k").aggregate({"v": "sum"}),
        2,
    ),
    "two joins": (
        lambda s, e: (
            s.key_by("k")
            .join(stream(e, v="x", j="y").key_by("k"))
            .key_by("k")
            .join(stream(e, v="z", j="u").key_by("k"))
        ),
        2,
    ),
    "filter and aggregate": (lambda s, _: s.filter(col("v") > 1).key_by("k").aggregate({"v": "sum"}), 1),
    "another key": (lambda s, _: s.key_by("v").aggregate({"k": "sum"}), 0),
}


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_apart_where_that_may_pay(env, follower):
    step, apart = FOLLOWERS[follower]
    job = compiled(step(joined(env), env))
    found = pairs(job)
    assert len(found) == apart
    for first, second in found:
        assert job.job_graph.vertices[first].join is not None and not job.job_graph.vertices[second].is_whole
        (dataset,) = job.job_graph.vertices[first].outputs
        assert job.job_graph.vertices[second].inputs[0].dataset == dataset


@pytest.mark.parametrize("follower", [name for name, (_, apart) in FOLLOWERS.items() if apart])
def test_in_one_step_it_is_what_it_would_have_been(env, follower):
    step = FOLLOWERS[follower][0]
    job, whole = compiled(step(joined(env), env)), compiled(step(joined(env), env), APART)
    assert pairs(whole) == []
    for _, second in pairs(job):
        absorb_in(job, Absorbing(second, None))
        check_shape(job)
    left = [vertex for vertex in job.job_graph.vertices if vertex.absorbed_by is None]
    assert [vertex.name for vertex in left] == [vertex.name for vertex in whole.job_graph.vertices]
    one, other = left[-1].program, whole.job_graph.vertices[-1].program
    assert isinstance(one.head, KeyedHead) and repr(one.head) == repr(other.head), "expressions have no equality"
    assert (one.gate_schemas, one.operators) == (other.gate_schemas, other.operators)
    assert [edge.co_partitioned for edge in left[-1].inputs] == [True] * len(left[-1].inputs)


def test_costs_are_known_by_both_identities(env):
    job = compiled(joined(env).key_by("k").aggregate({"v": "sum"}))
    ((first, second),) = pairs(job)
    one, other = (job.job_graph.vertices[vertex].step for vertex in (first, second))
    assert one and other and one != other
    absorb_in(job, Absorbing(second, None))
    assert job.job_graph.vertices[second].step == f"{one}+{other}"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_side_that_is_to_be_broadcast_is_reason_enough(env, side):
    assert pairs(compiled(joined(env, broadcast=side).key_by("k").apply_in_arrow(same, ROWS.schema)))
    assert not pairs(compiled(joined(env, broadcast="never").key_by("k").apply_in_arrow(same, ROWS.schema)))


def test_not_with_side_inputs_of_the_join_s_own_steps(env):
    behind = joined(env).with_broadcast(small=stream(env)).filter(lambda row, small: True)
    assert not pairs(compiled(behind.key_by("k").aggregate({"v": "sum"})))


def test_not_where_the_two_have_different_settings(env):
    assert not pairs(compiled(joined(env).set_max_parallelism(3).key_by("k").aggregate({"v": "sum"})))
    grouped = joined(env).key_by("k").aggregate({"v": "sum"}).slot_sharing_group(SlotSharingGroup("other"))
    assert not pairs(compiled(grouped)), "they are apart anyway"


def test_not_where_keys_come_in_another_order(env):
    both = stream(env).key_by("k", "j").join(stream(env, v="w").key_by("k", "j"))
    assert pairs(compiled(both.key_by("k", "j").aggregate({"v": "sum"})))
    assert not pairs(compiled(both.key_by("j", "k").aggregate({"v": "sum"})))


@pytest.mark.parametrize(
    "options",
    [
        APART,
        {"jobmanager.scheduler": "Default"},
        {"firesteel.decider.cut": "by-count", "firesteel.join.adaptive": False},
    ],
)
def test_not_where_nothing_is_decided_when_it_runs(env, options):
    assert not pairs(compiled(joined(env).key_by("k").aggregate({"v": "sum"}), options))


def test_a_stream_joined_with_itself_stays_one(env):
    one = stream(env)
    twice = one.key_by("k").join(one.select("k", w=col("v")).key_by("k")).key_by("k").aggregate({"v": "sum"})
    job = compiled(twice)
    for _, second in pairs(job):
        absorb_in(job, Absorbing(second, None))
        check_shape(job)

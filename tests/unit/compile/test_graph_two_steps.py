"""Aggregations that are compiled as two vertices, of which the scheduler may make one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.graph_kit import check_shape

from firesteel import ExecutionEnvironment
from firesteel.compile.adaptive.joins import absorb_in
from firesteel.compile.compiler import compile_job
from firesteel.compile.describe import describe
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.model.absorbing import Absorbing
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options

TABLE = pa.table({"k": [1, 1, 2], "v": ["a", "b", "a"], "w": [1.0, 2.0, 3.0]})
DISTINCT = {"d": ("v", "count_distinct"), "total": ("w", "sum")}


def compiled(stream, **options):
    end = StreamNode("collect", CollectStep(0), stream.schema, (stream._pipeline.edge(),))
    job = compile_job([end], Options({key.replace("__", "."): value for key, value in options.items()}), "job")
    check_shape(job)
    return job


def source():
    return ExecutionEnvironment().from_arrow(TABLE)


def by_key(**aggregates):
    return source().key_by("k").aggregate(aggregates or DISTINCT)


def united():
    stream = source()
    return stream.union(stream.filter(lambda row: row.w > 1))


def pairs(job):
    return [(v.first_step, v.id) for v in job.job_graph.vertices if v.first_step is not None]


def test_the_first_reads_by_key_and_may_be_divided_by_value():
    job = compiled(by_key())
    assert pairs(job) == [(1, 2)]
    source_, first, second = job.job_graph.vertices
    (read,), (between,) = first.inputs, second.inputs
    assert (read.divisible, read.by_value, read.co_partitioned) == (True, True, True)
    assert (between.divisible, between.by_value, between.co_partitioned) == (False, False, True)
    assert [job.job_graph.datasets[e.dataset].keys for e in (read, between)] == [("k",), ("k",)]
    assert (first.name, second.name) == ("count values of aggregate(d, total)", "aggregate(d, total) -> collect")
    assert first.program.head.operator.divided_by == ("__d0",)
    assert source_.step and second.step and not first.step
    assert "    in one step with [1], unless that divides what it reads" in describe(job).splitlines()


def test_values_of_several_columns_are_parted_by_all_of_them():
    several = {"d": ("v", "count_distinct"), "e": ("w", "count_distinct")}
    job = compiled(by_key(**several))
    assert pairs(job) == [(1, 2)]
    assert job.job_graph.vertices[1].program.head.operator.divided_by == ("__d0", "__d1")
    of_all = compiled(source().aggregate(several))
    assert of_all.job_graph.datasets[0].keys == ("__d0", "__d1")


def test_without_keys_the_first_reads_by_value():
    job = compiled(source().aggregate(DISTINCT).map_in_arrow(lambda batches: batches, "d bigint, total double"))
    assert pairs(job) == [(1, 2)]
    _, first, second = job.job_graph.vertices
    assert not first.inputs[0].divisible and not first.inputs[0].by_value
    ships = [job.job_graph.datasets[v.inputs[0].dataset].ship for v in (first, second)]
    assert ships == [ShipStrategy.HASH, ShipStrategy.GLOBAL]
    assert (first.parallelism, second.parallelism) == (-1, 1)


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(lambda: by_key(total=("w", "sum"), n=("*", "count")), id="nothing is counted by value"),
        pytest.param(
            lambda: by_key().key_by("k").aggregate({"d": "max"}), id="a step by the same key shares its tasks"
        ),
        pytest.param(lambda: united().key_by("k").aggregate(DISTINCT), id="a union is several gates"),
        pytest.param(
            lambda: source().key_by("k").aggregate({"w": "max"}).key_by("k").aggregate({"d": ("w", "count_distinct")}),
            id="its rows lie right already",
        ),
        pytest.param(lambda: source().key_by("k").aggregate({"w": "mean"}).distinct(), id="not an aggregation"),
    ],
)
def test_what_is_one_vertex_as_ever(stream):
    assert pairs(compiled(stream())) == []


@pytest.mark.parametrize(
    "options",
    [
        {"jobmanager__scheduler": "Default"},
        {"firesteel__decider__cut": "by-count"},
        {"firesteel__join__skew": "none"},
    ],
)
def test_options_under_which_nothing_is_divided(options):
    assert pairs(compiled(by_key(), **options)) == []


def test_one_column_counted_twice_is_one_column():
    assert pairs(compiled(by_key(d=("v", "count_distinct"), again=("v", "count_distinct")))) == [(1, 2)]


@pytest.mark.parametrize("keys", [("k",), ()])
def test_as_one_step_it_is_what_it_would_have_been(keys):
    """Its identity too, so that its costs are known from journals of either kind of run."""
    stream = source()
    counted = (stream.key_by(*keys) if keys else stream).aggregate(DISTINCT).uid("counted")
    job, whole = compiled(counted), compiled(counted, firesteel__join__skew="none")
    planned, expected = job.job_graph.vertices[2], whole.job_graph.vertices[1]
    absorb_in(job, Absorbing(2, None))
    check_shape(job)
    second = job.job_graph.vertices[2]
    assert (second.name, second.uid, second.parallelism) == (expected.name, expected.uid, expected.parallelism)
    assert second.first_step is None and second.inputs[0].divisible is False
    assert job.job_graph.vertices[1].absorbed_by == 2 and job.job_graph.vertices[1].uid == "counted-values"
    assert planned.step == second.step
    if keys:
        assert second.step == expected.step
        assert type(second.program.head.operator) is type(expected.program.head.operator)


def test_settings_and_side_inputs_of_the_steps_behind_belong_to_the_second():
    small = ExecutionEnvironment()
    stream = small.from_arrow(TABLE)
    counted = stream.key_by("k").aggregate(DISTINCT).set_max_parallelism(7)
    with_side = counted.with_broadcast(other=stream).map_in_arrow(lambda batches, other: batches, counted.schema)
    job = compiled(with_side)
    ((first, second),) = pairs(job)
    vertices = job.job_graph.vertices
    assert [vertices[v].max_parallelism for v in (first, second)] == [7, 7]
    assert len(vertices[first].inputs) == 1 and len(vertices[second].inputs) == 2
    absorb_in(job, Absorbing(second, None))
    check_shape(job)
    assert [edge.index for edge in job.job_graph.vertices[second].inputs] == [0, 1]

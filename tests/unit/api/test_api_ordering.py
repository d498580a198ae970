"""sort and range_partition as a user writes them: what they compile to, what they share, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel import functions as F
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.describe import describe
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.order import Order, OrderColumn
from firesteel.task.operators.sort import Sort
from firesteel.task.program import KeyedHead
from graph_kit import check_shape

RANGE, FORWARD = ShipStrategy.RANGE, ShipStrategy.FORWARD


@pytest.fixture
def rows():
    return ExecutionEnvironment().from_collection([{"k": 1, "v": 2.0, "name": "a"}])


def compiled(*streams, **options) -> CompiledJob:
    ends = [StreamNode("collect", CollectStep(i), s.schema, (s._pipeline.edge(),)) for i, s in enumerate(streams)]
    job = compile_job(ends, streams[0]._pipeline.env.options.with_values(options), "job")
    check_shape(job)
    return job


def ships(job):
    return [dataset.ship for dataset in job.job_graph.datasets]


def names(job):
    return [vertex.name for vertex in job.job_graph.vertices]


def test_a_sort_is_one_exchange_by_ranges(rows):
    job = compiled(rows.sort("k", ("v", False)))
    order = Order((OrderColumn("k"), OrderColumn("v", False)), split_equal=True)
    written, kept = job.job_graph.datasets
    assert (written.ship, written.order, written.keys) == (RANGE, order, ("k", "v"))
    assert (kept.ship, kept.order, kept.persistent) == (ShipStrategy.BROADCAST, None, True)
    source, sort = (vertex.program for vertex in job.job_graph.vertices)
    assert source.outputs[0].order == order and source.outputs[0].keys == ()
    assert isinstance(sort.head, KeyedHead) and sort.head.operator == Sort("sort(k, v descending)", order)
    assert sort.gate_orders == (order,)
    assert "reads [0], range by k, v descending" in describe(job)


@pytest.mark.parametrize(
    ("columns", "ascending", "expected"),
    [
        (["k"], True, [("k", True)]),
        (["k", "v"], False, [("k", False), ("v", False)]),
        (["k", ("v", True)], False, [("k", False), ("v", True)]),
        ([["k", "v"]], [True, False], [("k", True), ("v", False)]),
        ([col("name")], True, [("name", True)]),
        ([col("name").desc(), F.asc("k")], True, [("name", False), ("k", True)]),
    ],
)
@pytest.mark.parametrize("step", ["sort", "orderBy", "range_partition"])
def test_columns_and_directions_as_in_pyspark(rows, columns, ascending, expected, step):
    order = compiled(getattr(rows, step)(*columns, ascending=ascending)).job_graph.datasets[0].order
    assert [(c.name, c.ascending) for c in order.columns] == expected
    assert order.split_equal == (step != "range_partition")


@pytest.mark.parametrize(
    ("columns", "ascending", "message"),
    [
        ([], True, "wants the columns"),
        (["nam"], True, "Did you mean 'name'"),
        (["k", "k"], True, "'k' twice"),
        (["k"], [True, False], "1 column and ascending"),
        (["k"], "up", "ascending='up'"),
        ([("k", "down")], True, "cannot understand"),
        ([3], True, "not 3 (int)"),
        (["parts"], True, "cannot order by 'parts'"),
    ],
)
@pytest.mark.parametrize("step", ["sort", "range_partition"])
def test_what_cannot_be_sorted_is_refused_with_its_place(columns, ascending, message, step):
    schema = pa.schema([("k", pa.int64()), ("name", pa.string()), ("parts", pa.list_(pa.int64()))])
    rows = ExecutionEnvironment().from_arrow(schema.empty_table())
    with pytest.raises(UsageError) as refused:
        getattr(rows, step)(*columns, ascending=ascending)
    assert message in str(refused.value) and f"In step '{step}' at test_api_ordering.py:" in str(refused.value)


def test_equal_orders_share_what_is_written_and_others_do_not(rows):
    job = compiled(rows.sort("k"), rows.sort("k"), rows.sort(("k", False)), rows.range_partition("k"))
    assert ships(job).count(RANGE) == 3 and len(job.job_graph.consumers(0)) == 2


def test_a_union_is_made_one_result_before_it_is_parted(rows):
    """Ranges of each input alone would not fit together."""
    for stream in (rows.union(rows).sort("k"), rows.union(rows).range_partition("k")):
        job = compiled(stream)
        assert ships(job).count(RANGE) == 1 and "union" in names(job)[1]


def test_steps_behind_keep_the_order(rows):
    """In the same task; where that cannot be, subtask by subtask, and in all other cases by asking for it."""
    sort = rows.sort("k").set_parallelism(3)
    assert names(compiled(sort.filter(col("k") > 1).limit(2)))[1] == "sort(k) -> filter -> local limit(2)"
    job = compiled(sort.filter(col("k") > 1), sort.limit(2), sort)
    assert [ship for ship in ships(job) if ship is FORWARD] == [FORWARD], "one result, which two read"
    assert ShipStrategy.RESCALE not in ships(job) and len(job.job_graph.consumers(ships(job).index(FORWARD))) == 2
    other = compiled(sort.filter(col("k") > 1).set_parallelism(2))
    assert ShipStrategy.RESCALE in ships(other)
    two = compiled(rows.sort("k").union(rows.sort("v")).filter(col("k") > 1))
    assert FORWARD not in ships(two), "two sorts have two parallelisms"


def test_range_partition_is_a_step_of_its_own(rows):
    job = compiled(rows.range_partition("k").set_parallelism(4).with_column("x", col("v") * 2))
    assert names(job)[1] == "range_partition(k) -> with_column(x) -> collect"
    assert job.job_graph.vertices[1].parallelism == 4 and not job.job_graph.datasets[0].order.split_equal
    numbered = compiled(rows.repartitionByRange(5, "k"))
    assert numbered.job_graph.vertices[1].parallelism == 5
    assert compiled(rows.repartition_by_range("k", "v")).job_graph.datasets[0].keys == ("k", "v")
    with pytest.raises(UsageError, match="the number of ranges"):
        rows.repartitionByRange(0, "k")


def test_side_inputs_are_refused(rows):
    with pytest.raises(UsageError, match="sort"):
        rows.with_broadcast(small=rows).sort("k")


def test_pipelined_jobs_are_refused(rows):
    options = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}
    with pytest.raises(UsageError, match=r"\(range\) cannot be pipelined"):
        compiled(rows.sort("k"), **options)

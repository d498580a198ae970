"""Aggregates: types, overflow, mistakes, and how partial aggregation behaves."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.aggregates_kit import combined, nodes_of

from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.errors import FiresteelError, UsageError
from operators_support import collect, context, unit


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path)


def aggregate(table, ctx, *aggs, keys=("k",)):
    made = [Aggregation(function, () if column == "*" else (column,), output) for column, function, output in aggs]
    (node,) = nodes_of(table.schema, keys, made)
    return collect(node.work.direct.apply_unit([unit(table, ctx)], ctx), node.schema)


@pytest.mark.parametrize(
    ("type_", "function", "result"),
    [
        (pa.int8(), "sum", pa.int64()),
        (pa.uint32(), "sum", pa.uint64()),
        (pa.float32(), "sum", pa.float64()),
        (pa.decimal128(10, 2), "sum", pa.decimal128(38, 2)),
        (pa.decimal128(10, 2), "mean", pa.float64()),
        (pa.int64(), "mean", pa.float64()),
        (pa.date32(), "min", pa.date32()),
        (pa.timestamp("ms", "UTC"), "max", pa.timestamp("ms", "UTC")),
        (pa.duration("s"), "max", pa.duration("s")),
        (pa.duration("s"), "sum", pa.duration("s")),
        (pa.bool_(), "max", pa.bool_()),
        (pa.string_view(), "min", pa.string_view()),
        (pa.dictionary(pa.int8(), pa.string()), "max", pa.string()),
        (pa.null(), "max", pa.null()),
        (pa.null(), "sum", pa.int64()),
        (pa.list_(pa.int64()), "count_distinct", pa.int64()),
        (pa.list_(pa.int64()), "count", pa.int64()),
    ],
    ids=str,
)
def test_result_types_also_of_nothing_but_nulls(ctx, type_, function, result):
    table = pa.table({"k": [1, 1], "v": pa.nulls(2, type_)})
    out = aggregate(table, ctx, ("v", function, "r"))
    assert out.schema.field("r").type == result
    assert out["r"].to_pylist() == [0 if function.startswith("count") else None]


def test_values_of_rarer_types(ctx):
    days = [timedelta(days=d) for d in (1, 3)]
    table = pa.table(
        {
            "k": [1, 1],
            "d": pa.array(days, pa.duration("s")),
            "w": pa.array(["b", "a"], pa.string_view()),
        }
    )
    out = aggregate(table, ctx, ("d", "sum", "ds"), ("d", "max", "dm"), ("w", "min", "wm"))
    encoded = pa.table({"k": [1, 1, 2], "v": pc.run_end_encode(pa.array([5, 5, 7]))})
    assert aggregate(encoded, ctx, ("v", "sum", "s"), ("v", "max", "m")).to_pylist() == [
        {"k": 1, "s": 10, "m": 5},
        {"k": 2, "s": 7, "m": 7},
    ]
    assert out.to_pylist() == [{"k": 1, "ds": timedelta(days=4), "dm": timedelta(days=3), "wm": "a"}]


def test_nan_is_the_largest_value_as_in_spark(ctx):
    table = pa.table({"k": [1, 1, 2, 2, 3], "v": [math.nan, 1.0, math.nan, None, -math.inf]})
    rows = {r["k"]: r for r in aggregate(table, ctx, ("v", "min", "lo"), ("v", "max", "hi")).to_pylist()}
    assert rows[1]["lo"] == 1.0 and math.isnan(rows[1]["hi"])
    assert math.isnan(rows[2]["lo"]) and math.isnan(rows[2]["hi"])
    assert rows[3] == {"k": 3, "lo": -math.inf, "hi": -math.inf}


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([2**63 - 1, 1], pa.int64()),
        ([-(2**63), -1], pa.int64()),
        ([2**64 - 1, 1], pa.uint64()),
        ([Decimal(10**37) * 9] * 2, pa.decimal128(38, 0)),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_not_a_wrong_answer(ctx, values, type_):
    table = pa.table({"k": [1] * len(values), "v": pa.array(values, type_)})
    with pytest.raises(
        FiresteelError, match=r"(sum of column 'v' does not fit|A value of step 'aggregate\(s\)' does not fit) .*Cast"
    ):
        aggregate(table, ctx, ("v", "sum", "s"))


def test_large_values_that_cancel_out_or_lie_in_different_groups_are_summed(ctx):
    table = pa.table({"k": [1, 1, 2, 2], "v": [2**63 - 1, -(2**63), 2**63 - 1, 0]})
    assert sorted(aggregate(table, ctx, ("v", "sum", "s"))["s"].to_pylist()) == [-1, 2**63 - 1]


@pytest.mark.parametrize(
    ("agg", "parts"),
    [
        (("w", "sum", "m"), ("no column 'w'", "Available: k, v, s")),
        (("s", "sum", "m"), ("sum does not work on column 's' of type string",)),
        (("v", "sum", "k"), ("'k' of an aggregation occurs twice",)),
        (("*", "sum", "m"), ("Only count can be of all rows",)),
    ],
)
def test_mistakes(agg, parts):
    schema = pa.schema({"k": pa.int64(), "v": pa.int64(), "s": pa.string()})
    with pytest.raises(UsageError) as caught:
        aggregate(schema.empty_table(), None, agg)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


SUM = (Aggregation("sum", ("v",), "s"), Aggregation("count", (), "n"))


def partial(table, memory, tmp_path, push, size=1000):
    (node,) = nodes_of(table.schema, ("k",), SUM)
    return combined(node.inputs[0].combiner, table.to_batches(max_chunksize=size), context(tmp_path, memory), push)


@pytest.mark.parametrize("push", [0, 1])
def test_few_groups_leave_in_few_rows(tmp_path, push):
    table = pa.table({"k": [i % 10 for i in range(100_000)], "v": [1] * 100_000})
    made = partial(table, 256 << 20, tmp_path, push)
    assert sum(b.num_rows for b in made) == 10


@pytest.mark.parametrize("push", [0, 1])
def test_rows_that_do_not_shrink_are_passed_through(tmp_path, push):
    """One after another: nothing of a later row is read before the partial row of an earlier one is there."""
    table, read = pa.table({"k": range(900_000), "v": [1] * 900_000}), []
    if push:
        assert sum(b.num_rows for b in partial(table, 2 << 20, tmp_path, 1)) == 900_000
        return
    (node,) = nodes_of(table.schema, ("k",), SUM)
    rows = (read.append(b.num_rows) or b for b in table.to_batches(max_chunksize=10_000))
    made = node.inputs[0].combiner.apply(rows, context(tmp_path, 64 << 20))
    assert next(made).num_rows and sum(read) < 100_000, "a sample"
    assert next(made).num_rows and sum(read) < 400_000, "a chunk"
    assert pa.Table.from_batches(made).num_rows > 700_000


def test_operators_and_combiners_are_picklable(ctx):
    (node,) = nodes_of(pa.schema({"k": pa.int64(), "v": pa.int64()}), ("k",), SUM)
    for one in (node.work.operator, node.inputs[0].combiner):
        assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("type_", [pa.float16(), pa.decimal256(76, 0), pa.list_view(pa.int64())])
def test_what_the_engine_does_not_take_is_refused_where_the_step_is_made(type_):
    with pytest.raises(UsageError, match=r"does not work on column 'v' of type .*Cast"):
        nodes_of(pa.schema({"k": pa.int64(), "v": type_}), ("k",), [Aggregation("count", ("v",), "n")])


NULL_VALUES = pa.array(["a", None, "a", None]).dictionary_encode(null_encoding="encode")


@pytest.mark.parametrize(
    "column", [NULL_VALUES, pa.array(["a", None, "a", None]), pc.run_end_encode(pa.array(["a", "a", None, None]))]
)
def test_count_sees_nulls_wherever_a_type_keeps_them(tmp_path, column):
    table = pa.table({"k": [1, 1, 1, 1], "d": column})
    found = aggregate(table, context(tmp_path), ("d", "count", "n"), ("d", "count_distinct", "m"))
    assert found.to_pylist() == [{"k": 1, "n": 2, "m": 1}]

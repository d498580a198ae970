"""Aggregates: types, overflow, mistakes, and how partial aggregation behaves."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel.errors import FiresteelError, UsageError
from firesteel.task.operators.aggregation.aggregate import (
    Aggregation,
    FinalAggregate,
    FullAggregate,
    PartialAggregate,
    aggregate_schema,
)
from firesteel.task.operators.aggregation.aggregate_plan import Plan
from operators_support import collect, context, unit


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path)


def aggregate(table, ctx, *aggs, keys=("k",)):
    operator = FullAggregate("agg", keys, tuple(Aggregation(*a) for a in aggs), table.schema)
    return collect(operator.apply_unit([unit(table, ctx)], ctx), operator.folding.output_schema)


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
        (pa.float16(), "min", pa.float16()),
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
            "h": pa.array(np.array([1, 2], np.float16)),
        }
    )
    out = aggregate(table, ctx, ("d", "sum", "ds"), ("d", "max", "dm"), ("w", "min", "wm"), ("h", "max", "hm"))
    encoded = pa.table({"k": [1, 1, 2], "v": pc.run_end_encode(pa.array([5, 5, 7]))})
    assert aggregate(encoded, ctx, ("v", "sum", "s"), ("v", "max", "m")).to_pylist() == [
        {"k": 1, "s": 10, "m": 5},
        {"k": 2, "s": 7, "m": 7},
    ]
    assert out.to_pylist() == [{"k": 1, "ds": timedelta(days=4), "dm": timedelta(days=3), "wm": "a", "hm": 2.0}]


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
    with pytest.raises(FiresteelError, match=r"sum of column 'v' does not fit .*Cast"):
        aggregate(table, ctx, ("v", "sum", "s"))


def test_large_values_that_cancel_out_or_lie_in_different_groups_are_summed(ctx):
    table = pa.table({"k": [1, 1, 2, 2], "v": [2**63 - 1, -(2**63), 2**63 - 1, 0]})
    assert sorted(aggregate(table, ctx, ("v", "sum", "s"))["s"].to_pylist()) == [-1, 2**63 - 1]


@pytest.mark.parametrize(
    ("agg", "parts"),
    [
        (("v", "median", "m"), ("no aggregate function 'median'", "Did you mean 'mean'?")),
        (("v", "avg", "m"), ("no aggregate function 'avg'", "Did you mean 'mean'?")),
        (("w", "sum", "m"), ("no column 'w'", "Available: k, v, s")),
        (("s", "sum", "m"), ("sum does not work on column 's' of type string",)),
        (("v", "sum", "k"), ("'k' of an aggregation occurs twice",)),
        (("*", "sum", "m"), ("Only count can be of all rows",)),
    ],
)
def test_mistakes(agg, parts):
    schema = pa.schema({"k": pa.int64(), "v": pa.int64(), "s": pa.string()})
    with pytest.raises(UsageError) as caught:
        aggregate_schema(schema, ("k",), [Aggregation(*agg)])
    assert all(part in str(caught.value) for part in parts), str(caught.value)


SUM = (Aggregation("v", "sum", "s"), Aggregation(None, "count", "n"))


def partial(table, memory, tmp_path, size=1000):
    state = PartialAggregate(("k",), SUM, table.schema).new(context(tmp_path, memory))
    early = [b for batch in table.to_batches(max_chunksize=size) for b in state.add(batch)]
    return early, list(state.finish())


def test_few_groups_are_held_to_the_end(tmp_path):
    table = pa.table({"k": [i % 10 for i in range(100_000)], "v": [1] * 100_000})
    early, late = partial(table, 256 << 10, tmp_path)
    assert not early and sum(b.num_rows for b in late) == 10


def test_rows_that_do_not_shrink_are_passed_through(tmp_path):
    table = pa.table({"k": range(200_000), "v": [1] * 200_000})
    early, late = partial(table, 2 << 20, tmp_path)
    assert sum(b.num_rows for b in early) + sum(b.num_rows for b in late) == 200_000
    assert sum(b.num_rows for b in early) > 100_000, "state is bounded"


def test_operators_and_combiners_are_picklable_after_use(ctx):
    table = pa.table({"k": [1], "v": [2]})
    operator = FinalAggregate("agg", ("k",), SUM, table.schema)
    assert operator.folding.output_schema.names == ["k", "s", "n"]
    again = pickle.loads(pickle.dumps(operator))
    assert again == operator and again.keys == (("k",),)


NULL_VALUES = pa.array(["a", None, "a", None]).dictionary_encode(null_encoding="encode")


@pytest.mark.parametrize(
    "column", [NULL_VALUES, pa.array(["a", None, "a", None]), pc.run_end_encode(pa.array(["a", "a", None, None]))]
)
def test_count_sees_nulls_wherever_a_type_keeps_them(tmp_path, column):
    table = pa.table({"k": [1, 1, 1, 1], "d": column})
    aggregations = (Aggregation("d", "count", "n"), Aggregation("d", "count_distinct", "m"))
    ctx = context(tmp_path)
    full = FullAggregate("count", ("k",), aggregations, table.schema)
    assert collect(full.apply_unit([unit(table, ctx)], ctx)).to_pylist() == [{"k": 1, "n": 2, "m": 1}]


def test_a_sum_of_the_widest_decimal_that_may_overflow_is_refused(tmp_path):
    table = pa.table({"k": [1] * 4, "v": pa.array([Decimal(9) * 10**75] * 4, pa.decimal256(76, 0))})
    ctx = context(tmp_path)
    full = FullAggregate("sum", ("k",), (Aggregation("v", "sum", "v"),), table.schema)
    with pytest.raises(FiresteelError, match="may not fit decimal256"):
        collect(full.apply_unit([unit(table, ctx)], ctx))


def test_values_of_one_giant_group_are_divided_until_they_fit(tmp_path, monkeypatch):
    """64 buckets of them are too large: what is held at once stays below the budget's share."""
    held = []
    merge = Plan.merge
    monkeypatch.setattr(Plan, "merge", lambda plan, table: held.append(table.nbytes) or merge(plan, table))
    n, ctx = 75_000, context(tmp_path, 8 * 1024)
    table = pa.table({"v": np.arange(n)})
    full = FullAggregate("count", (), (Aggregation("v", "count_distinct", "n"),), table.schema)
    assert collect(full.apply_unit([unit(table, ctx, 500)], ctx)).to_pylist() == [{"n": n}]
    assert max(held) < 8 * 1024


def test_rows_that_pass_hold_a_distinct_value_of_one_column_at_most(tmp_path, monkeypatch):
    """Whoever parts rows by their values must meet each value in one part."""
    monkeypatch.setattr("firesteel.task.operators.aggregation.aggregate.CHUNK_ROWS", 10_000)
    table = pa.table({"k": range(40_000), "v": [i % 300 for i in range(40_000)], "w": [i % 7 for i in range(40_000)]})
    counts = tuple(Aggregation(c, "count_distinct", c) for c in "vw")
    aggs = (*counts, Aggregation("w", "sum", "total"))
    state = PartialAggregate(("k",), aggs, table.schema).new(context(tmp_path))
    written = [b for part in table.to_batches(max_chunksize=5_000) for b in state.add(part)]
    assert sum(b.num_rows for b in written) == 3 * 30_000, "later chunks pass"
    rows = collect([*written, *state.finish()])
    both = pc.and_(rows["__0_distinct"].is_valid(), rows["__1_distinct"].is_valid())
    assert not pc.any(both).as_py()
    assert pc.sum(rows["__2_sum"]).as_py() == pc.sum(table["w"]).as_py()

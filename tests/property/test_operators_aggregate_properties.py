"""Aggregates over random rows of many types, with nulls and NaN, against plain Python; with and without partial aggregation, in any budget."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.aggregates_kit import VALUES, alike, in_tasks, keyed_tables
from tests.aggregates_kit import check as check_groups
from tests.effort import examples

from firesteel.task.operators.aggregation.aggregate import (
    Aggregation,
    Distinct,
    DistinctCombiner,
    FullAggregate,
)
from operators_support import collect, context, rows, unit, value

QUICK = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

AGGS = (
    *(Aggregation("i", f, f"i_{f}") for f in ("sum", "min", "max", "count", "mean")),
    *(Aggregation("f", f, f"f_{f}") for f in ("sum", "min", "max", "count", "mean", "count_distinct")),
    *(Aggregation("s", f, f"s_{f}") for f in ("min", "max", "count")),
    *(Aggregation("d", f, f"d_{f}") for f in ("sum", "min", "max", "mean")),
    Aggregation("l", "count_distinct", "l_distinct"),
    Aggregation("*", "count", "n"),
)


def order(v):
    return (isinstance(v, float) and math.isnan(v), v)


def expected_value(values: list, function: str):
    values = [v for v in values if v is not None]
    if function == "count":
        return len(values)
    if function == "count_distinct":
        return len({value(v) for v in values})
    if not values:
        return None
    if function == "sum":
        return sum(values)
    if function == "mean":
        return float(sum(values)) / len(values)
    return min(values, key=order) if function == "min" else max(values, key=order)


def check(result: pa.Table, table: pa.Table, keys, aggs) -> None:
    of = {a.output: a for a in aggs}

    def expected(output: str, group: list) -> object:
        column = of[output].column
        return len(group) if column == "*" else expected_value([row[column] for row in group], of[output].function)

    def same(output: str, got: object, want: object) -> bool:
        return alike(got, want, 1e-12)

    check_groups(result, table, keys, of, expected, same)


@QUICK
@given(table=keyed_tables(), budget=st.sampled_from([1 << 14, 1 << 24]), batch=st.integers(1, 50))
def test_full_aggregate(tmp_path, table, budget, batch):
    ctx = context(tmp_path, budget)
    operator = FullAggregate("agg", ("k0",), AGGS, table.schema)
    result = collect(operator.apply_unit([unit(table, ctx, batch)], ctx), operator.folding.output_schema)
    check(result, table, ("k0",), AGGS)
    assert result.schema.field("k0").type == table.schema.field("k0").type
    assert not list(tmp_path.iterdir())


@QUICK
@given(
    table=keyed_tables(key_names=2),
    budgets=st.tuples(st.sampled_from([64, 1 << 12, 1 << 24]), st.sampled_from([1 << 15, 1 << 24])),
    batch=st.integers(1, 50),
    tasks=st.integers(1, 3),
)
def test_partial_then_final(tmp_path, table, budgets, batch, tasks):
    keys = ("k0", "k1")
    result = in_tasks(tmp_path, table, keys, AGGS, budgets, batch, tasks)
    check(result, table, keys, AGGS)


@QUICK
@given(table=keyed_tables(), budget=st.sampled_from([1 << 14, 1 << 24]), distinct=st.sampled_from(["", "s", "fs"]))
def test_global_aggregate_gives_one_row_and_any_number_of_distinct_counts(tmp_path, table, budget, distinct):
    aggs = (
        Aggregation("*", "count", "n"),
        *(Aggregation(c, "count_distinct", c) for c in distinct),
        Aggregation("i", "sum", "total"),
    )
    ctx = context(tmp_path, budget)
    operator = FullAggregate("agg", (), aggs, table.schema)
    result = collect(operator.apply_unit([unit(table, ctx, 7)], ctx))
    assert result.num_rows == 1
    check(result, table, (), aggs)


@QUICK
@given(
    table=keyed_tables(key_names=2),
    budget=st.sampled_from([1 << 14, 1 << 24]),
    whole=st.booleans(),
    batch=st.integers(1, 50),
)
def test_distinct(tmp_path, table, budget, whole, batch):
    keys = tuple(table.schema.names) if whole else ("k0", "k1")
    ctx = context(tmp_path, budget)
    state = DistinctCombiner(keys, table.schema).new(ctx)
    batches = [b for part in table.to_batches(max_chunksize=batch) for b in state.add(part)] + list(state.finish())
    operator = Distinct("distinct", keys, table.schema)
    result = collect(operator.apply_unit([unit(collect(batches, table.schema), ctx)], ctx), table.schema)
    assert set(rows(result.select(keys)).values()) <= {1}
    assert rows(result.select(keys)).keys() == rows(table.select(keys)).keys()
    assert rows(result).keys() <= rows(table).keys()


EDGES = {
    pa.int8(): [-128, 127, 0, -1],
    pa.uint8(): [0, 255, 128],
    pa.int16(): [-32768, 32767, 0],
    pa.int64(): [-(2**63), 2**63 - 1, 0, -1],
    pa.uint64(): [2**64 - 1, 2**63, 2**63 - 1, 0],
    pa.date32(): [0, 1, 18_000],
}


@QUICK
@given(data=st.data(), type_=st.sampled_from(list(EDGES)), near=st.booleans())
def test_integer_keys_whether_close_together_or_far_apart(tmp_path, data, type_, near):
    """The shortcut of merging for close keys and the hash table give the same."""
    low = data.draw(st.sampled_from(EDGES[type_]))
    keys = st.one_of(st.none(), st.just(low) if near else st.sampled_from(EDGES[type_]))
    ks = data.draw(st.lists(keys, max_size=30))
    n = len(ks)
    vs = data.draw(
        st.lists(st.one_of(st.none(), st.sampled_from([0, 1, -5, 2**52, -(2**53) - 1])), min_size=n, max_size=n)
    )
    fs = data.draw(st.lists(VALUES["f"][1], min_size=n, max_size=n))
    table = pa.table({"k": pa.array(ks, type_), "v": pa.array(vs, pa.int64()), "f": pa.array(fs, pa.float64())})
    aggs = tuple(Aggregation(c, f, f"{c}_{f}") for c in "vf" for f in ("sum", "count"))
    ctx = context(tmp_path)
    result = (
        collect(FullAggregate("agg", ("k",), aggs, table.schema).apply_unit([unit(table, ctx)], ctx)) if n else None
    )
    if result is not None:
        check(result, table, ("k",), aggs)
        assert result.schema.field("k").type == type_


@pytest.mark.parametrize("distincts", [1, 2])
def test_a_giant_group_of_distinct_values_is_counted_within_a_small_budget(tmp_path, distincts):
    n = 50_000
    table = pa.table({"k": ["one"] * n, "v": [i // 2 for i in range(n)], "w": [i % 1000 for i in range(n)]})
    aggs = (*(Aggregation(c, "count_distinct", c) for c in ("v", "w")[:distincts]), Aggregation("v", "max", "m"))
    ctx = context(tmp_path, 256 << 10)
    operator = FullAggregate("agg", ("k",), aggs, table.schema)
    before = pa.total_allocated_bytes()
    batches = unit(table, ctx, 5000)
    (row,) = collect(operator.apply_unit([batches], ctx)).to_pylist()
    assert row == {"k": "one", "v": n // 2, "m": n // 2 - 1} | ({"w": 1000} if distincts == 2 else {})
    assert not list(tmp_path.iterdir())
    assert pa.total_allocated_bytes() - before < 4 << 20

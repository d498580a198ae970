"""Aggregates over random rows of many types, with nulls and NaN, against plain Python; with and without partial aggregation, in any budget."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.aggregates_kit import VALUES, alike, combined, in_tasks, keyed_tables
from tests.aggregates_kit import check as check_groups
from tests.effort import examples

from firesteel import ExecutionEnvironment
from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.keyed import drop_duplicates
from operators_support import collect, context, rows, unit, value

QUICK = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

AGGS = (
    *(Aggregation(f, ("i",), f"i_{f}") for f in ("sum", "min", "max", "count", "mean")),
    *(Aggregation(f, ("f",), f"f_{f}") for f in ("sum", "min", "max", "count", "mean", "count_distinct")),
    *(Aggregation(f, ("s",), f"s_{f}") for f in ("min", "max", "count")),
    *(Aggregation(f, ("d",), f"d_{f}") for f in ("sum", "min", "max", "mean")),
    Aggregation("count_distinct", ("l",), "l_distinct"),
    Aggregation("count", (), "n"),
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
        column = next(iter(of[output].columns), None)
        return len(group) if column is None else expected_value([row[column] for row in group], of[output].function)

    def same(output: str, got: object, want: object) -> bool:
        return alike(got, want, 1e-12)

    check_groups(result, table, keys, of, expected, same)


@QUICK
@given(
    table=keyed_tables(key_names=2),
    budgets=st.tuples(st.sampled_from([64, 1 << 12, 1 << 24]), st.sampled_from([1 << 15, 1 << 24])),
    batch=st.integers(1, 50),
    tasks=st.integers(1, 3),
)
def test_partial_then_final(tmp_path, table, budgets, batch, tasks):
    keys = ("k0", "k1")
    for result, _ in in_tasks(tmp_path, table, keys, AGGS, budgets, batch, tasks):
        check(result, table, keys, AGGS)
        for key in keys:
            type_ = table.schema.field(key).type
            plain = type_.value_type if pa.types.is_dictionary(type_) else type_
            assert result.schema.field(key).type == plain


@QUICK
@given(table=keyed_tables(), budget=st.sampled_from([1 << 14, 1 << 24]), distinct=st.sampled_from(["", "s", "fs"]))
def test_global_aggregate_gives_one_row_and_any_number_of_distinct_counts(tmp_path, table, budget, distinct):
    aggs = (
        Aggregation("count", (), "n"),
        *(Aggregation("count_distinct", (c,), c) for c in distinct),
        Aggregation("sum", ("i",), "total"),
    )
    for result, _ in in_tasks(tmp_path, table, (), aggs, (budget, budget), 7, 2):
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
    pipeline = ExecutionEnvironment().from_arrow(table.schema.empty_table())._pipeline
    node = drop_duplicates(pipeline, () if whole else keys).node
    (edge,) = node.inputs
    batches = combined(edge.combiner, table.to_batches(max_chunksize=batch), ctx, batch % 2)
    result = collect(node.work.operator.apply_unit([unit(collect(batches, edge.schema), ctx)], ctx), node.schema)
    direct = collect(node.work.direct.apply_unit([unit(table, ctx)], ctx), node.schema)
    assert rows(direct) == rows(result), "the same rows win each time"
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
    """At the ends of their types."""
    low = data.draw(st.sampled_from(EDGES[type_]))
    keys = st.one_of(st.none(), st.just(low) if near else st.sampled_from(EDGES[type_]))
    ks = data.draw(st.lists(keys, max_size=30))
    n = len(ks)
    vs = data.draw(
        st.lists(st.one_of(st.none(), st.sampled_from([0, 1, -5, 2**52, -(2**53) - 1])), min_size=n, max_size=n)
    )
    fs = data.draw(st.lists(VALUES["f"][1], min_size=n, max_size=n))
    table = pa.table({"k": pa.array(ks, type_), "v": pa.array(vs, pa.int64()), "f": pa.array(fs, pa.float64())})
    aggs = tuple(Aggregation(f, (c,), f"{c}_{f}") for c in "vf" for f in ("sum", "count"))
    for result, _ in in_tasks(tmp_path, table, ("k",), aggs, (1 << 24, 1 << 24), 50, 1):
        check(result, table, ("k",), aggs)
        assert result.schema.field("k").type == type_


@pytest.mark.parametrize("distincts", [1, 2])
def test_a_giant_group_of_distinct_values_is_counted_within_a_small_budget(tmp_path, distincts):
    n = 50_000
    table = pa.table({"k": ["one"] * n, "v": [i // 2 for i in range(n)], "w": [i % 1000 for i in range(n)]})
    aggs = (*(Aggregation("count_distinct", (c,), c) for c in ("v", "w")[:distincts]), Aggregation("max", ("v",), "m"))
    before = pa.total_allocated_bytes()
    for result, _ in in_tasks(tmp_path, table, ("k",), aggs, (256 << 10, 256 << 10), 5000, 1):
        (row,) = result.to_pylist()
        assert row == {"k": "one", "v": n // 2, "m": n // 2 - 1} | ({"w": 1000} if distincts == 2 else {})
    assert pa.total_allocated_bytes() - before < 4 << 20

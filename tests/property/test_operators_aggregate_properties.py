"""Aggregates over random rows of many types, with nulls and NaN, against plain Python; with and without partial aggregation, in any budget."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.task.batches import take_rows
from firesteel.task.operators.aggregation.aggregate import (
    Aggregation,
    Distinct,
    DistinctCombiner,
    FinalAggregate,
    FullAggregate,
    PartialAggregate,
    partial_schema,
)
from operators_support import collect, context, rows, unit, value

QUICK = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

floats = st.sampled_from([None, -0.0, 0.0, 1.5, -2.25, 8.0, math.nan, math.inf])
KEYS = {
    "int": (pa.int32(), st.sampled_from([None, -1, 0, 7, 1000])),
    "uint": (pa.uint64(), st.sampled_from([None, 0, 2**64 - 1])),
    "float": (pa.float32(), st.sampled_from([None, -0.0, 0.0, 1.5, math.nan])),
    "string": (pa.string(), st.sampled_from([None, "", "a", "ab"])),
    "view": (pa.string_view(), st.sampled_from([None, "", "a", "a longer string beyond the inline part"])),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from([None, "", "a", "ab"])),
    "decimal": (pa.decimal128(9, 2), st.sampled_from([None, Decimal("0.00"), Decimal("1.25")])),
    "stamp": (pa.timestamp("ms", "Europe/Berlin"), st.sampled_from([None, 0, 1_600_000_000_000])),
    "list": (pa.list_(pa.int64()), st.sampled_from([None, [], [1], [1, None]])),
    "struct": (
        pa.struct({"x": pa.int64(), "y": pa.string()}),
        st.sampled_from([None, {"x": None, "y": "q"}, {"x": 1, "y": "q"}]),
    ),
    "null": (pa.null(), st.none()),
    "bool": (pa.bool_(), st.sampled_from([None, True, False])),
}
VALUES = {
    "i": (pa.int16(), st.one_of(st.none(), st.integers(-300, 300))),
    "f": (pa.float64(), floats),
    "s": (pa.large_string(), st.sampled_from([None, "", "b", "abc"])),
    "d": (pa.decimal128(12, 3), st.sampled_from([None, Decimal("-1.500"), Decimal("99.125")])),
    "l": (pa.list_(pa.float64()), st.sampled_from([None, [], [0.0], [-0.0], [math.nan]])),
}
AGGS = (
    *(Aggregation("i", f, f"i_{f}") for f in ("sum", "min", "max", "count", "mean")),
    *(Aggregation("f", f, f"f_{f}") for f in ("sum", "min", "max", "count", "mean", "count_distinct")),
    *(Aggregation("s", f, f"s_{f}") for f in ("min", "max", "count")),
    *(Aggregation("d", f, f"d_{f}") for f in ("sum", "min", "max", "mean")),
    Aggregation("l", "count_distinct", "l_distinct"),
    Aggregation("*", "count", "n"),
)


@st.composite
def tables(draw, key_names=1):
    kinds = [draw(st.sampled_from(sorted(KEYS))) for _ in range(key_names)]
    columns = {f"k{i}": KEYS[kind] for i, kind in enumerate(kinds)} | VALUES
    n = draw(st.integers(0, 40))
    return pa.table({name: pa.array(draw(st.lists(s, min_size=n, max_size=n)), t) for name, (t, s) in columns.items()})


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


def expected(table: pa.Table, keys, aggs) -> dict:
    groups = defaultdict(list)
    for row in table.to_pylist():
        groups[tuple(value(row[k]) for k in keys)].append(row)
    if not keys and not groups:
        groups[()] = []
    return {
        key: {
            a.output: len(g) if a.column == "*" else expected_value([r[a.column] for r in g], a.function) for a in aggs
        }
        for key, g in groups.items()
    }


def check(result: pa.Table, table: pa.Table, keys, aggs) -> None:
    got = {tuple(value(row[k]) for k in keys): row for row in result.to_pylist()}
    want = expected(table, keys, aggs)
    assert len(got) == result.num_rows, "a group came twice"
    assert got.keys() == want.keys()
    for key, row in want.items():
        for output, v in row.items():
            assert same(got[key][output], v), (key, output, got[key][output], v)


def same(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float) and not math.isnan(a) and not math.isnan(b):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12) or a == b
    return value(a) == value(b)


@QUICK
@given(table=tables(), budget=st.sampled_from([1 << 14, 1 << 24]), batch=st.integers(1, 50))
def test_full_aggregate(tmp_path, table, budget, batch):
    ctx = context(tmp_path, budget)
    operator = FullAggregate("agg", ("k0",), AGGS, table.schema)
    result = collect(operator.apply_unit([unit(table, ctx, batch)], ctx), operator.folding.output_schema)
    check(result, table, ("k0",), AGGS)
    assert result.schema.field("k0").type == table.schema.field("k0").type
    assert not list(tmp_path.iterdir())


@QUICK
@given(
    table=tables(key_names=2),
    budgets=st.tuples(st.sampled_from([64, 1 << 12, 1 << 24]), st.sampled_from([1 << 15, 1 << 24])),
    batch=st.integers(1, 50),
    tasks=st.integers(1, 3),
)
def test_partial_then_final(tmp_path, table, budgets, batch, tasks):
    keys = ("k0", "k1")
    written = []
    for k in range(tasks):
        state = PartialAggregate(keys, AGGS, table.schema).new(context(tmp_path, budgets[0]))
        for b in take_rows(table, pa.array(range(k, table.num_rows, tasks), pa.int64())).to_batches(
            max_chunksize=batch
        ):
            written += state.add(b)
        written += state.finish()
    partial = collect(written, partial_schema(table.schema, keys, AGGS))
    ctx = context(tmp_path, budgets[1])
    operator = FinalAggregate("agg", keys, AGGS, table.schema)
    result = collect(operator.apply_unit([unit(partial, ctx, batch)], ctx), operator.folding.output_schema)
    check(result, table, keys, AGGS)


@QUICK
@given(table=tables(), budget=st.sampled_from([1 << 14, 1 << 24]), distinct=st.sampled_from(["", "s", "fs"]))
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
    table=tables(key_names=2), budget=st.sampled_from([1 << 14, 1 << 24]), whole=st.booleans(), batch=st.integers(1, 50)
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
    fs = data.draw(st.lists(floats, min_size=n, max_size=n))
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

"""Joins by order (ranges and as-of) against nested loops in plain Python, over types, nulls, NaN, equal values and budgets."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from operator import ge, gt, le, lt, ne

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.task.operators.join import (
    DIRECTIONS,
    HOWS,
    RIGHT,
    BroadcastJoin,
    Comparison,
    HashJoin,
    Nearest,
    build_sides,
    join_schema,
)
from firesteel.task.operators.units import run_unit
from operators_support import build, collect, context, files_in, rows, unit

QUICK = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge, "!=": ne}
ORDERED = {
    "ints": (pa.int32(), pa.int64(), [None, -3, 0, 1, 2, 1 << 30]),
    "far": (pa.int64(), pa.int64(), [None, -(1 << 63), -1, 0, 3, (1 << 63) - 1]),
    "signs": (pa.uint64(), pa.int8(), [None, 0, 1, 2, 100]),
    "floats": (pa.float32(), pa.float64(), [None, -math.inf, -0.0, 0.0, 1.5, math.inf, math.nan]),
    "strings": (pa.string(), pa.dictionary(pa.int8(), pa.large_string()), [None, "", "a", "ab", "b"]),
    "decimals": (pa.decimal128(9, 2), pa.decimal128(20, 4), [None, Decimal("-1.25"), Decimal("0.00"), Decimal("1.25")]),
    "stamps": (pa.timestamp("us"), pa.timestamp("us", "UTC"), [None, 0, 10, 20]),
    "dates": (pa.date32(), pa.date32(), [None, -(1 << 31), 0, 1, 2, (1 << 31) - 1]),
    "moments": (pa.timestamp("ns"), pa.timestamp("us"), [None, 0, 10, 20]),
    "truths": (pa.bool_(), pa.bool_(), [None, False, True]),
}
TIMES = {
    "ints": (pa.int32(), pa.int64(), [None, -3, 0, 1, 2, 5, 1 << 30], (1, 3)),
    "far": (pa.int64(), pa.int64(), [None, -(1 << 63), -1, 0, 3, (1 << 63) - 1], (1, 1 << 62)),
    "floats": (pa.float32(), pa.float64(), [None, -math.inf, -0.0, 0.0, 1.5, 4.0, math.inf, math.nan], (1.5, 2.5)),
    "stamps": (pa.timestamp("us"), pa.timestamp("us"), [None, 0, 10, 20, 45], (10, 15)),
    "durations": (pa.duration("us"), pa.duration("us"), [None, 0, 10, 20, 45], (10, 15)),
    "dates": (pa.date32(), pa.date32(), [None, 0, 1, 3, 7], (1, 2)),
}


def table(draw, names, types, values, side):
    n = draw(st.integers(0, 14))
    columns = {}
    for name in names:
        columns[name] = pa.array(draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)), types[side])
    keys = draw(st.lists(st.sampled_from([None, 1, 2]), min_size=n, max_size=n))
    return pa.table({"k": pa.array(keys, pa.int64()), **columns, f"row{side}": pa.array(range(n), pa.int64())})


@st.composite
def compared(draw):
    first, second, values = ORDERED[draw(st.sampled_from(sorted(ORDERED)))]
    sides = [table(draw, names, (first, second), values, side) for side, names in ((0, ("a", "b")), (1, ("c", "d")))]
    one = st.tuples(st.sampled_from("ab"), st.sampled_from(sorted(COMPARED)), st.sampled_from("cd"))
    on_the_right, on_the_left = [("a", ">=", "c"), ("a", "<", "d")], [("a", "<=", "c"), ("b", ">", "c")]
    lasting = (on_the_right, on_the_left, [])
    return (*sides, tuple(Comparison(*c) for c in draw(st.sampled_from(lasting)) + draw(st.lists(one, max_size=3))))


WITHOUT_END = (
    pa.table({"k": [1], "a": pa.array([0], pa.date32()), "row0": [0]}),
    pa.table(
        {
            "k": [1, 1],
            "c": pa.array([-(1 << 31), 0], pa.date32()),
            "d": pa.array([None] * 2, pa.date32()),
            "row1": [0, 1],
        }
    ),
    (Comparison("a", ">=", "c"), Comparison("a", "<", "d")),
)
"""Two starts that lie far apart, and no end: with a band of one day this would be 2,147,483,649 bands."""


def number(value):
    """Orders as the values do: NaN behind infinity."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def holds(left, right, condition):
    a, b = left[condition.left], right[condition.right]
    return a is not None and b is not None and COMPARED[condition.operator](number(a), number(b))


@QUICK
@given(
    sides=compared(),
    how=st.sampled_from(HOWS),
    keyed=st.booleans(),
    budget=st.sampled_from([1 << 9, 1 << 24]),
    batch=st.integers(1, 20),
)
@example(sides=WITHOUT_END, how="inner", keyed=False, budget=1 << 9, batch=1)
def test_a_range_join(tmp_path, sides, how, keyed, budget, batch):
    left, right, conditions = sides
    keys = ("k",) if keyed else ()
    schema = join_schema(left.schema, right.schema, keys, keys, how)
    join = HashJoin("join", how, keys, keys, left.schema, right.schema, schema, conditions)
    ctx = context(tmp_path, budget)
    found = collect(run_unit(join, [unit(left, ctx, batch), unit(right, ctx, batch)], ctx), schema)
    expected = nested(left, right, conditions, how, keyed)
    assert pairs(found, how) == expected
    for side in build_sides(how):
        whole, streamed = (left, right)[side], (right, left)[side]
        ctx.builds["side"] = build(whole, ctx)
        stream = iter(streamed.to_batches(max_chunksize=batch))
        assert pairs(collect(BroadcastJoin(join, side, "side").apply(stream, ctx), schema), how) == expected
    if RIGHT in build_sides(how):
        ctx.side_inputs["whole"] = right
        stream = iter(left.to_batches(max_chunksize=batch))
        assert pairs(collect(BroadcastJoin(join, RIGHT, "whole").apply(stream, ctx), schema), how) == expected
    assert not files_in(tmp_path)


def pairs(found: pa.Table, how: str) -> Counter:
    lefts = found.column("row0").to_pylist()
    return Counter(
        zip(lefts, [None] * len(lefts) if how in ("semi", "anti") else found.column("row1").to_pylist(), strict=True)
    )


def plain(whole: pa.Table) -> list[dict]:
    """Dates as days: Python has none before the year 1."""
    types = [pa.int32() if pa.types.is_date(field.type) else field.type for field in whole.schema]
    return whole.cast(pa.schema(list(zip(whole.column_names, types, strict=True)))).to_pylist()


def nested(left, right, conditions, how, keyed) -> Counter:
    lefts, rights = plain(left), plain(right)
    found = [
        (a["row0"], b["row1"])
        for a in lefts
        for b in rights
        if (not keyed or (a["k"] is not None and a["k"] == b["k"])) and all(holds(a, b, c) for c in conditions)
    ]
    seen, matched = {a for a, _ in found}, {b for _, b in found}
    if how in ("semi", "anti"):
        return Counter((a["row0"], None) for a in lefts if (a["row0"] in seen) == (how == "semi"))
    expected = Counter(found)
    if how in ("left", "full"):
        expected.update((a["row0"], None) for a in lefts if a["row0"] not in seen)
    if how in ("right", "full"):
        expected.update((None, b["row1"]) for b in rights if b["row1"] not in matched)
    return expected


@st.composite
def timed(draw):
    first, second, values, distances = TIMES[draw(st.sampled_from(sorted(TIMES)))]
    sides = [table(draw, (name,), (first, second), values, side) for side, name in ((0, "t"), (1, "u"))]
    return (*sides, draw(st.sampled_from([None, *distances])))


@QUICK
@given(
    sides=timed(),
    direction=st.sampled_from(DIRECTIONS),
    exact=st.booleans(),
    how=st.sampled_from(["left", "inner"]),
    keyed=st.booleans(),
    budget=st.sampled_from([1 << 9, 1 << 24]),
    order=st.randoms(use_true_random=False),
)
def test_an_as_of_join(tmp_path, sides, direction, exact, how, keyed, budget, order):
    left, right, distance = sides
    keys = ("k",) if keyed else ()
    schema = join_schema(left.schema, right.schema, keys, keys, how)
    nearest = Nearest(("t", "u"), direction, distance, exact)
    join = HashJoin("join", how, keys, keys, left.schema, right.schema, schema, nearest=nearest)
    ctx = context(tmp_path, budget)
    found = collect(run_unit(join, [unit(left, ctx, 3), unit(right, ctx, 3)], ctx), schema)
    assert_nearest(found, left, right, join, keyed)
    numbers = list(range(right.num_rows))
    order.shuffle(numbers)
    mixed = right.take(pa.array(numbers, pa.int64()))
    again = collect(run_unit(join, [unit(left, ctx, 3), unit(mixed, ctx, 2)], ctx), schema)
    assert rows(again) == rows(found), "of equal times the same row is taken whatever the order"
    ctx.side_inputs["whole"], ctx.builds["side"] = right, build(right, ctx)
    for side in ("whole", "side"):
        by_stream = BroadcastJoin(join, RIGHT, side).apply(iter(left.to_batches(max_chunksize=4)), ctx)
        assert rows(collect(by_stream, schema)) == rows(found)
    assert not files_in(tmp_path)


def as_number(values: pa.ChunkedArray) -> list:
    whole = values if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) else None
    if whole is None:
        width = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        whole = values.combine_chunks().view(width)
    return whole.to_pylist()


def assert_nearest(found, left, right, join, keyed):
    """Each row's partner has the best time of all that may be."""
    ours, theirs = as_number(left["t"]), as_number(right["u"])
    keys = left["k"].to_pylist(), right["k"].to_pylist()
    partners = dict(zip(found["row0"].to_pylist(), found["row1"].to_pylist(), strict=True))
    assert found.num_rows == len(partners)
    for i, time in enumerate(ours):
        allowed = {
            j: how_far
            for j, other in enumerate(theirs)
            if (not keyed or (keys[0][i] is not None and keys[0][i] == keys[1][j]))
            and (how_far := rank(time, other, join)) is not None
        }
        if not allowed:
            assert partners.get(i) is None
            assert (i in partners) == (join.how == "left")
        else:
            assert allowed[partners[i]] == min(allowed.values())


def rank(time, other, join):
    """The smaller, the nearer; None: does not count."""
    if time is None or other is None:
        return None
    a, b = number(time), number(other)
    nearest = join.nearest
    before = b < a or (b == a and nearest.exact)
    behind = b > a or (b == a and nearest.exact)
    if not {"backward": before, "forward": behind, "nearest": before or behind}[nearest.direction]:
        return None
    nan = [isinstance(value, float) and math.isnan(value) for value in (time, other)]
    far = 0 if a == b else math.inf if any(nan) else abs(other - time)
    if nearest.distance is not None and not far <= nearest.distance:
        return None
    if nearest.direction == "nearest":
        return (far, b > a, (b if b > a else _down(b)))
    return b if nearest.direction == "forward" else _down(b)


def _down(value):
    """Orders the other way round."""
    return (-value[0], -value[1]) if isinstance(value, tuple) else -value


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_pandas_gives_the_same(tmp_path, direction):
    times = [pd.Timestamp("2026-01-01") + pd.Timedelta(seconds=s) for s in range(0, 4000, 7)]
    left = pd.DataFrame({"t": times, "k": [i % 5 for i in range(len(times))], "row0": range(len(times))})
    others = [pd.Timestamp("2026-01-01") + pd.Timedelta(seconds=11 * s + s % 3) for s in range(300)]
    right = pd.DataFrame(
        {"t": others, "k": [i % 6 for i in range(len(others))], "price": [i * 1.5 for i in range(len(others))]}
    )
    a, b = (pa.Table.from_pandas(frame, preserve_index=False) for frame in (left, right))
    alike = (("k", "t"), ("k", "t"))
    schema = join_schema(a.schema, b.schema, *alike, "left")
    unit_ns = 1000 if a.schema.field("t").type.unit == "ns" else 1
    distance = timedelta(seconds=40) // timedelta(microseconds=1) * unit_ns
    nearest = Nearest(("t", "t"), direction, distance)
    join = HashJoin("join", "left", ("k",), ("k",), a.schema, b.schema, schema, nearest=nearest)
    ctx = context(tmp_path)
    found = collect(run_unit(join, [unit(a, ctx), unit(b, ctx)], ctx), schema)
    expected = pd.merge_asof(left, right, on="t", by="k", direction=direction, tolerance=pd.Timedelta(seconds=40))
    prices = [None if math.isnan(price) else price for price in expected["price"]]
    assert found.sort_by("row0")["price"].to_pylist() == prices
    assert any(price is None for price in prices) and any(price is not None for price in prices)

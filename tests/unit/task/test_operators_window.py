"""Window functions against Python's own loops, over random groups, orders, nulls, edge values and types."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import ExecutionEnvironment, window
from firesteel.errors import FiresteelError, UsageError
from firesteel.task.operators.units import run_unit
from operators_support import collect, context, rows, unit


def computed(tmp_path, table, keys, order_by, memory=64 << 20, **functions):
    made = ExecutionEnvironment().from_arrow(table).key_by(*keys).window(functions, order_by=order_by)
    ctx = context(tmp_path, memory=memory)
    return collect(run_unit(made._pipeline.node.work.operator, [unit(table, ctx, 100)], ctx), made.schema)


def random_table(rng, n, groups):
    def holes(values, share=0.2):
        return pa.array(values, mask=rng.random(n) < share)

    edges = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0])
    x, u = rng.normal(size=n), rng.integers(0, 3, n).astype(float)
    x, u = (np.where(rng.random(n) < 0.2, rng.choice(edges, n), values) for values in (x, u))
    return pa.table({
        "k": pa.array([f"g{v}" for v in rng.integers(0, groups, n)], mask=rng.random(n) < 0.1),
        "t": holes(rng.integers(0, 5, n)), "u": holes(u), "id": rng.permutation(n),
        "i": holes(rng.integers(-9, 9, n)), "x": holes(x), "s": holes([f"w{v}" for v in rng.integers(0, 9, n)]),
        "d": holes([Decimal(int(v)) / 100 for v in rng.integers(-500, 500, n)]).cast(pa.decimal128(6, 2)),
    })  # fmt: skip


def rank(value):
    """Nulls are the smallest values, NaN is the largest number."""
    return (0 if value is None else 2 if value != value else 1, 0 if value is None or value != value else value)


def groups_of(table, order):
    """By key its rows in order. Sorts that keep the order of equal rows, the last column first."""
    found = {}
    ordered = table.to_pylist()
    for name, ascending in reversed(order):
        ordered.sort(key=lambda row, name=name: rank(row[name]), reverse=not ascending)
    for row in ordered:
        found.setdefault(row["k"], []).append(row)
    return found


def folded(kind, column):
    """``kind`` of a column of a frame's rows, of those that are not null."""

    def of(frame):
        values = [row[column] for row in frame if row[column] is not None]
        if kind == "count":
            return len(values)
        if not values:
            return None
        if kind in ("min", "max"):
            return (min if kind == "min" else max)(values, key=rank)
        return sum(values) if kind == "sum" else float(sum(values)) / len(values)

    return of


def neighbour(column, distance, default=None):
    return lambda rows, i: rows[i + distance][column] if 0 <= i + distance < len(rows) else default


def same(a, b):
    if a is None or b is None or isinstance(a, str):
        return a == b
    return math.isnan(a) == math.isnan(b) and (
        math.isnan(a) or a == b or float(a) == pytest.approx(float(b), rel=1e-9, abs=1e-9)
    )


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 200), groups=st.integers(1, 40), width=st.integers(1, 12))
def test_equal_loops(tmp_path_factory, seed, n, groups, width):
    raw = random_table(np.random.default_rng(seed), n, groups)
    functions = {
        "rn": (window.row_number(), lambda rows, i: i + 1),
        "tile": (window.ntile(3), lambda rows, i: tile(len(rows), i)),
        "before": (window.lag("s"), neighbour("s", -1)),
        "before2": (window.lag("i", 2, 100), neighbour("i", -2, 100)),
        "after": (window.lead("x", 3), neighbour("x", 3)),
        "zero": (window.lead("s", 0), neighbour("s", 0)),
        "one": (window.first("s"), lambda rows, i: rows[0]["s"]),
        "end": (window.last("d"), lambda rows, i: rows[-1]["d"]),
        "third": (window.nth_value("s", 3), lambda rows, i: rows[2]["s"] if len(rows) > 2 else None),
        "known": (
            window.first("x", True),
            lambda rows, i: next((row["x"] for row in rows if row["x"] is not None), None),
        ),
    }

    def tile(many, i):
        return next(n + 1 for n in range(3) if i < (n + 1) * (many // 3) + min(n + 1, many % 3))

    for kind in ("sum", "min", "max", "mean", "count"):
        for column in ("i", "x", "d", "s"):
            if column == "s" and kind in ("sum", "mean"):
                continue
            of = folded(kind, column)
            running = getattr(window, f"cumulative_{kind}")(column)
            functions[f"c_{kind}_{column}"] = running, lambda rows, i, of=of: of(rows[: i + 1])
            rolled = getattr(window, f"rolling_{kind}")(column, width)
            functions[f"r_{kind}_{column}"] = rolled, lambda rows, i, of=of: of(rows[max(i + 1 - width, 0) : i + 1])
    order = [("t", True), ("u", False), ("id", True)]
    found = computed(
        tmp_path_factory.mktemp("w"), raw, ("k",), order, **{name: f for name, (f, _) in functions.items()}
    )
    assert found.num_rows == n and found.column_names == [*raw.column_names, *functions]
    mine = {row["id"]: row for row in found.to_pylist()}
    for ordered in groups_of(raw, order).values():
        for i, row in enumerate(ordered):
            want = row | {name: of(ordered, i) for name, (_, of) in functions.items()}
            wrong = {
                name: (mine[row["id"]][name], want[name])
                for name in want
                if not same(mine[row["id"]][name], want[name])
            }
            assert not wrong


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 100))
def test_ranks_with_ties_equal_loops(tmp_path_factory, seed, n):
    raw = random_table(np.random.default_rng(seed), n, 5)
    order = [("t", True), ("u", False)]
    asked = {
        "r": window.rank(),
        "dr": window.dense_rank(),
        "rn": window.row_number(),
        "p": window.percent_rank(),
        "c": window.cume_dist(),
    }
    found = computed(tmp_path_factory.mktemp("w"), raw, ("k",), order, **asked)
    mine = {row["id"]: row for row in found.to_pylist()}
    for ordered in groups_of(raw, order).values():
        places = [(rank(row["t"]), rank(row["u"])) for row in ordered]
        for row, place in zip(ordered, places, strict=True):
            first = places.index(place)
            got = mine[row["id"]]
            assert (got["r"], got["dr"]) == (first + 1, len(set(places[: first + 1])))
            assert got["p"] == (first / (len(ordered) - 1) if len(ordered) > 1 else 0)
            assert got["c"] == (first + places.count(place)) / len(ordered)
            assert first < got["rn"] <= first + places.count(place)


def test_ties_do_not_depend_on_the_order_of_arrival(tmp_path):
    rng = np.random.default_rng(4)
    table = random_table(rng, 3000, 20)
    functions = {"n": window.row_number(), "s2": window.lag("s"), "c": window.cumulative_sum("i")}
    first = computed(tmp_path, table, ("k",), "t", **functions)
    again = computed(tmp_path, table.take(pa.array(rng.permutation(3000))), ("k",), "t", memory=1 << 17, **functions)
    assert rows(first) == rows(again)


def test_nan_is_the_largest_and_spoils_only_its_windows(tmp_path):
    nan, inf = float("nan"), float("inf")
    table = pa.table({"k": [1] * 6, "x": [1.0, nan, None, 2.0, inf, 3.0], "t": range(6)})
    out = computed(
        tmp_path, table, ("k",), "t", s=window.rolling_sum("x", 2), m=window.rolling_max("x", 2), lo=window.cumulative_min("x"),
        r=window.rolling_mean("x", 1),
    )  # fmt: skip
    assert str(out["s"].to_pylist()) == "[1.0, nan, nan, 2.0, inf, inf]"
    assert str(out["m"].to_pylist()) == "[1.0, nan, nan, 2.0, inf, inf]"
    assert out["lo"].to_pylist() == [1.0] * 6
    assert str(out["r"].to_pylist()) == "[1.0, nan, None, 2.0, inf, 3.0]"
    by_x = computed(tmp_path, table, ("k",), ("x", False), n=window.row_number())
    assert str(by_x["x"].to_pylist()) == "[nan, inf, 3.0, 2.0, 1.0, None]"


def test_sums_that_do_not_fit_are_an_error_and_those_that_do_are_exact(tmp_path):
    big = 2**62
    fits = pa.table({"k": [1, 1, 1], "n": [big, -big, big], "t": [0, 1, 2]})
    assert computed(tmp_path, fits, ("k",), "t", s=window.cumulative_sum("n"))["s"].to_pylist() == [big, 0, big]
    table = pa.table({"k": [1, 1], "n": [big, big], "t": [0, 1]})
    with pytest.raises(FiresteelError, match="A sum of column 'n' does not fit int64"):
        computed(tmp_path, table, ("k",), "t", s=window.cumulative_sum("n"))


def test_any_type_can_be_handed_on(tmp_path):
    table = pa.table({
        "k": pa.array(["a", "a", "b"]).dictionary_encode(), "t": pa.array([2, 1, 1], pa.date32()),
        "l": [[1], [2, 3], None], "v": pa.array(["x", None, "z"], pa.string_view()), "w": pa.array([1, 2, 3], pa.duration("us")),
        "f": pa.array([1.5, 2.5, None], pa.float16()), "b": [True, None, False], "di": pa.array(["q", "r", "q"]).dictionary_encode(),
        "none": pa.nulls(3),
    })  # fmt: skip
    out = computed(
        tmp_path, table, ("k",), [("t", True)], l1=window.lag("l"), v1=window.lead("v", 1, "!"), w1=window.cumulative_sum("w"),
        f1=window.lag("f", 1, 0.5), b1=window.cumulative_min("b"), d1=window.rolling_min("di", 2), none1=window.cumulative_sum("none"),
        none2=window.cumulative_max("none"),
    )  # fmt: skip
    found = {(row["k"], row["t"].day): row for row in out.to_pylist()}
    assert [found[key]["l1"] for key in (("a", 2), ("a", 3), ("b", 2))] == [None, [2, 3], None]
    assert [found[key]["v1"] for key in (("a", 2), ("a", 3), ("b", 2))] == ["x", "!", "!"]
    assert [found[key]["w1"].microseconds for key in (("a", 2), ("a", 3))] == [2, 3]
    assert [found[key]["d1"] for key in (("a", 2), ("a", 3))] == ["r", "q"]
    assert [found[key]["b1"] for key in (("a", 2), ("a", 3))] == [None, True]
    assert [found[key]["f1"] for key in (("a", 2), ("a", 3), ("b", 2))] == [0.5, 2.5, 0.5]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.window(order_by="t"), "no column to make"),
        (lambda s: s.window(order_by="tt", n=window.rank()), "no column 'tt' for window"),
        (lambda s: s.window(order_by=[], n=window.rank()), "columns to order by"),
        (lambda s: s.window(order_by=[("t", "desc")], n=window.rank()), "cannot order by"),
        (lambda s: s.window(order_by="l", n=window.rank()), "cannot order by 'l': it is list"),
        (lambda s: s.window(order_by="t", n="rank"), "is not a window function"),
        (lambda s: s.window(order_by="t", t=window.rank()), "a column 't' already"),
        (lambda s: s.window(order_by="t", n=window.lag("x")), "no column 'x' for lag"),
        (lambda s: s.window(order_by="t", n=window.lag("t", 1, "a")), "default 'a' of lag is not of type int64"),
        (lambda s: s.window(order_by="t", n=window.cumulative_sum("s")), "sum does not work on column 's'"),
        (lambda s: s.with_broadcast(x=s._stream).window(order_by="t", n=window.rank()), "is not used"),
    ],
)
def test_errors_name_the_step_and_the_line(build, said):
    env = ExecutionEnvironment()
    keyed = env.from_collection([{"k": 1, "t": 1, "s": "a", "l": [1]}]).key_by("k")
    line = build.__code__.co_firstlineno
    with pytest.raises(UsageError, match=said) as raised:
        build(keyed)
    assert f" at test_operators_window.py:{line}: " in str(raised.value)


def test_rows_and_tiles_are_counts():
    with pytest.raises(UsageError, match="rows of rolling_sum must be a whole number of at least 1, not 0"):
        window.rolling_sum("x", 0)
    with pytest.raises(UsageError, match="at least 0, not -1"):
        window.lag("x", -1)

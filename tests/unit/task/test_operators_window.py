"""Window functions against DuckDB's, over random groups, orders, nulls and types."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import ExecutionEnvironment, window
from firesteel.api.steps.window import window_operator
from firesteel.errors import UsageError
from firesteel.task.operators.units import run_unit
from firesteel.task.runner import UserFunctionError
from operators_support import collect, context, rows, unit

FRAMES = {"cumulative": "unbounded preceding", "rolling": "{} preceding"}


def computed(tmp_path, table, keys, order_by, memory=64 << 20, **functions):
    operator = window_operator(table.schema, keys, functions, order_by)
    ctx = context(tmp_path, memory=memory)
    return collect(run_unit(operator, [unit(table, ctx, 100)], ctx), operator.schema)


def over(frame="", order="t nulls first, u desc nulls last, id"):
    return f"over (partition by k order by {order} {frame})"


def random_table(rng, n, groups):
    def holes(values, share=0.2):
        return pa.array(values, mask=rng.random(n) < share)

    return pa.table({
        "k": pa.array([f"g{v}" for v in rng.integers(0, groups, n)], mask=rng.random(n) < 0.1),
        "t": holes(rng.integers(0, 5, n)), "u": holes(rng.integers(0, 3, n).astype(float)), "id": rng.permutation(n),
        "i": holes(rng.integers(-9, 9, n)), "x": holes(rng.normal(size=n)), "s": holes([f"w{v}" for v in rng.integers(0, 9, n)]),
        "d": holes([Decimal(int(v)) / 100 for v in rng.integers(-500, 500, n)]).cast(pa.decimal128(6, 2)),
    })  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 200), groups=st.integers(1, 40), width=st.integers(1, 12))
def test_equal_duckdb(tmp_path_factory, seed, n, groups, width):
    raw = random_table(np.random.default_rng(seed), n, groups)
    tmp_path = tmp_path_factory.mktemp("w")
    order = ["t", ("u", False), "id"]
    functions = {
        "rn": (window.row_number(), f"row_number() {over()}"),
        "tile": (window.ntile(3), f"ntile(3) {over()}"),
        "before": (window.lag("s"), f"lag(s) {over()}"),
        "before2": (window.lag("i", 2, 100), f"lag(i, 2, 100) {over()}"),
        "after": (window.lead("x", 3), f"lead(x, 3) {over()}"),
        "zero": (window.lead("s", 0), f"lead(s, 0) {over()}"),
        "one": (window.first("s"), f"first_value(s) {over()}"),
        "end": (window.last("d"), f"last_value(d) {over('rows between unbounded preceding and unbounded following')}"),
    }
    for kind in ("sum", "min", "max", "mean", "count"):
        for column in ("i", "x", "d", "s"):
            if column == "s" and kind in ("sum", "mean"):
                continue
            sql = f"{'avg' if kind == 'mean' else kind}({column})"
            running = over("rows between unbounded preceding and current row")
            rolled = over(f"rows between {width - 1} preceding and current row")
            functions[f"c_{kind}_{column}"] = getattr(window, f"cumulative_{kind}")(column), f"{sql} {running}"
            functions[f"r_{kind}_{column}"] = getattr(window, f"rolling_{kind}")(column, width), f"{sql} {rolled}"
    found = computed(tmp_path, raw, ("k",), order, **{name: f for name, (f, _) in functions.items()})
    query = ", ".join(f"{sql} as {name}" for name, (_, sql) in functions.items())
    expected = duckdb.sql(f"select *, {query} from raw").to_arrow_table()
    mine, theirs = (t.sort_by("id") for t in (found, expected))
    assert mine.schema.names == theirs.schema.names
    for name in mine.schema.names:
        for a, b in zip(mine[name].to_pylist(), theirs[name].to_pylist(), strict=True):
            same = a == b or (
                a is not None
                and b is not None
                and not isinstance(a, str)
                and float(a) == pytest.approx(float(b), rel=1e-9, abs=1e-9)
            )
            assert same, (name, a, b)


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 100))
def test_ranks_with_ties_equal_duckdb(tmp_path_factory, seed, n):
    raw = random_table(np.random.default_rng(seed), n, 5)
    tmp_path = tmp_path_factory.mktemp("w")
    found = computed(tmp_path, raw, ("k",), ["t", ("u", False)], r=window.rank(), dr=window.dense_rank())
    order = "t nulls first, u desc nulls last"
    query = f"select *, rank() {over('', order)} as r, dense_rank() {over('', order)} as dr from raw"
    assert rows(found) == rows(duckdb.sql(query).to_arrow_table())


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
    with pytest.raises(UserFunctionError, match="sum of 'n' for column 's' that does not fit int64"):
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
        f1=window.cumulative_max("f"), b1=window.cumulative_min("b"), d1=window.rolling_min("di", 2), none1=window.cumulative_sum("none"),
        none2=window.cumulative_max("none"),
    )  # fmt: skip
    found = {(row["k"], row["t"].day): row for row in out.to_pylist()}
    assert [found[key]["l1"] for key in (("a", 2), ("a", 3), ("b", 2))] == [None, [2, 3], None]
    assert [found[key]["v1"] for key in (("a", 2), ("a", 3), ("b", 2))] == ["x", "!", "!"]
    assert [found[key]["w1"].microseconds for key in (("a", 2), ("a", 3))] == [2, 3]
    assert [found[key]["d1"] for key in (("a", 2), ("a", 3))] == ["r", "q"]
    assert [found[key]["b1"] for key in (("a", 2), ("a", 3))] == [None, True]
    assert [found[key]["f1"] for key in (("a", 2), ("a", 3), ("b", 2))] == [2.5, 2.5, None]


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

"""Joins of plain streams as whole jobs, each with DuckDB's answer."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from firesteel.errors import UsageError
from oracle import assert_same_rows, duckdb_answer

SECOND = 1_000_000


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(22)
    n, m = 3000, 400
    times = rng.permutation(n) * SECOND
    trades = pa.table(
        {
            "k": pa.array(rng.integers(0, 20, n), mask=rng.random(n) < 0.05),
            "t": pa.array(times, pa.timestamp("us")),
            "v": rng.integers(0, 1000, n),
        }
    )
    quotes = pa.table(
        {
            "k": pa.array(rng.integers(0, 25, m), mask=rng.random(m) < 0.05),
            "t": pa.array(rng.permutation(n)[:m] * SECOND + 500_000, pa.timestamp("us")),
            "v": rng.integers(0, 1000, m),
        }
    )
    spans = quotes.select(["k", "v"]).append_column("start", quotes["t"])
    ends = pa.array(quotes["t"].cast(pa.int64()).to_numpy() + rng.integers(0, 90 * SECOND, m), pa.timestamp("us"))
    return {"trades": trades, "quotes": quotes, "spans": spans.append_column("end", ends)}


OPERATORS = {"backward": ">=", "forward": "<="}
HOWS = ["inner", *(pytest.param(how, marks=pytest.mark.full) for how in ("left", "right")), "full", "semi", "anti"]
"""A full join does what left and right ones do."""


def stream(env, tables, name):
    return env.from_arrow(tables[name]).rebalance().filter(lambda row: True).set_parallelism(3)


@pytest.mark.parametrize("how", HOWS)
def test_by_names(env, tables, how):
    found = stream(env, tables, "trades").join(stream(env, tables, "quotes"), "k", how).to_arrow()
    sql = {
        "inner": "SELECT l.*, r.t AS t_right, r.v AS v_right FROM trades l JOIN quotes r USING (k)",
        "left": "SELECT l.*, r.t AS t_right, r.v AS v_right FROM trades l LEFT JOIN quotes r USING (k)",
        "right": "SELECT k, l.t, l.v, r.t AS t_right, r.v AS v_right FROM trades l RIGHT JOIN quotes r USING (k)",
        "full": "SELECT k, l.t, l.v, r.t AS t_right, r.v AS v_right FROM trades l FULL JOIN quotes r USING (k)",
        "semi": "SELECT * FROM trades SEMI JOIN quotes USING (k)",
        "anti": "SELECT * FROM trades ANTI JOIN quotes USING (k)",
    }[how]
    assert_same_rows(found, duckdb_answer(sql, **tables))


def test_by_two_names_and_by_pairs(env, tables):
    trades, quotes = (stream(env, tables, name) for name in ("trades", "quotes"))
    found = trades.join(quotes, ["k", "v"]).to_arrow()
    sql = "SELECT l.*, r.t AS t_right FROM trades l JOIN quotes r USING (k, v)"
    assert_same_rows(found, duckdb_answer(sql, **tables))
    other = quotes.rename({"k": "key", "v": "value"}).drop("t")
    expected = duckdb_answer("SELECT l.* FROM trades l JOIN quotes r USING (k, v)", **tables)
    assert_same_rows(trades.join(other, [("k", "key"), ("v", "value")]).to_arrow(), expected)
    assert_same_rows(trades.join(other, left_on=["k", "v"], right_on=["key", "value"]).to_arrow(), expected)


def test_it_is_the_node_of_a_keyed_join(env, tables):
    """So that all that is decided about joins while a job runs holds for it."""
    trades, quotes = (env.from_arrow(tables[name]) for name in ("trades", "quotes"))
    plain, keyed = trades.join(quotes, "k"), trades.key_by("k").join(quotes.key_by("k"))
    assert type(plain._pipeline.node.work.operator) is type(keyed._pipeline.node.work.operator)
    assert plain._pipeline.node.work.operator == keyed._pipeline.node.work.operator


def test_several_joins_with_clashing_names(env):
    rows = env.from_collection([{"k": 1, "v": 0}])
    sides = [env.from_collection([{"k": 1, "v": i}]) for i in (1, 2, 3)]
    found = rows.join(sides[0], "k").join(sides[1], "k").join(sides[2], "k")
    assert found.columns == ["k", "v", "v_right", "v_right_2", "v_right_3"]
    assert found.collect() == [{"k": 1, "v": 0, "v_right": 1, "v_right_2": 2, "v_right_3": 3}]
    taken = env.from_collection([{"k": 1, "v": 4, "v_right": 5}])
    assert rows.join(taken, "k").collect() == [{"k": 1, "v": 0, "v_right_2": 4, "v_right": 5}]


@pytest.mark.parametrize("how", HOWS)
def test_within_a_key_by_a_range(env, tables, how):
    on = ["k", ("t", ">=", "start"), ("t", "<", "end")]
    found = stream(env, tables, "trades").join(stream(env, tables, "spans"), on, how).to_arrow()
    where = "l.k = r.k AND l.t >= r.start AND l.t < r.end"
    joined = "coalesce(l.k, r.k) AS k, l.t, l.v, r.v AS v_right, r.start, r.end"
    chosen = "l.*" if how in ("semi", "anti") else joined
    sql = f"SELECT {chosen} FROM trades l {how} JOIN spans r ON {where}"
    assert_same_rows(found, duckdb_answer(sql, **tables))


@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.full) for how in ("inner", "semi")), "left", "anti"]
)
def test_by_a_range_alone(env, tables, how):
    on = [("t", ">=", "start"), ("t", "<", "end"), ("v", "!=", "v")]
    found = stream(env, tables, "trades").join(stream(env, tables, "spans"), on, how).to_arrow()
    chosen = "l.*" if how in ("semi", "anti") else "l.*, r.k AS k_right, r.v AS v_right, r.start, r.end"
    sql = f"SELECT {chosen} FROM trades l {how} JOIN spans r ON l.t >= r.start AND l.t < r.end AND l.v != r.v"
    assert_same_rows(found, duckdb_answer(sql, **tables))


def test_all_with_all(env, tables):
    few = tables["quotes"].slice(0, 30)
    found = stream(env, tables, "trades").cross_join(env.from_arrow(few.select(["v"]))).to_arrow()
    sql = "SELECT l.*, r.v AS v_right FROM trades l CROSS JOIN few r"
    assert_same_rows(found, duckdb_answer(sql, **tables, few=few))
    rows = env.from_collection([{"a": 1}, {"a": 2}])
    twice = rows.cross_join(rows, suffix="_2").cross_join(rows, suffix="_3")
    assert len(twice.collect()) == 8
    assert twice.columns == ["a", "a_2", "a_3"]


@pytest.mark.parametrize(
    ("direction", "how", "by"),
    [
        pytest.param(direction, how, by, marks=() if (direction == "backward") == (how == "left") else pytest.mark.full)
        for direction in OPERATORS
        for how in ("left", "inner")
        for by in ("k", None)
    ],
)
def test_by_the_nearest_time(env, tables, direction, how, by):
    trades, quotes = (stream(env, tables, name) for name in ("trades", "quotes"))
    found = trades.join_asof(quotes, "t", by, direction=direction, how=how).to_arrow()
    equal = "l.k = r.k AND " if by else ""
    columns = "l.*, r.v AS v_right" if by else "l.*, r.k AS k_right, r.v AS v_right"
    kind = "LEFT" if how == "left" else ""
    sql = f"SELECT {columns} FROM trades l ASOF {kind} JOIN quotes r ON {equal}l.t {OPERATORS[direction]} r.t"
    assert_same_rows(found, duckdb_answer(sql, **tables))


def test_not_farther_than_the_tolerance(env, tables):
    trades, quotes = (stream(env, tables, name) for name in ("trades", "quotes"))
    other = quotes.rename({"t": "at", "k": "key"})
    found = trades.join_asof(other, ("t", "at"), [("k", "key")], tolerance=timedelta(seconds=20)).to_arrow()
    sql = """
        SELECT l.*, CASE WHEN near THEN r.at END AS at, CASE WHEN near THEN r.v END AS v_right
        FROM (SELECT l.*, r.t AS at, r.v AS v_right, l.t - r.t <= INTERVAL 20 SECONDS AS near
              FROM trades l ASOF LEFT JOIN quotes r ON l.k = r.k AND l.t >= r.t) t,
        LATERAL (SELECT t.k, t.t, t.v) l, LATERAL (SELECT t.at, t.v_right AS v) r"""
    assert found.column_names == ["k", "t", "v", "at", "v_right"]
    assert_same_rows(found, duckdb_answer(sql, **tables))


def test_of_no_rows(env):
    none = env.from_arrow(pa.table({"k": pa.array([], pa.int64()), "t": pa.array([], pa.int64())}))
    some = env.from_collection([{"k": 1, "t": 5}])
    assert some.join_asof(none, "t", "k").collect() == [{"k": 1, "t": 5}]
    assert some.join_asof(none, "t").collect() == [{"k": 1, "t": 5, "k_right": None}]
    assert none.join_asof(some, "t").collect() == []
    assert some.cross_join(none).collect() == none.cross_join(some).collect() == []
    assert some.join(none, [("t", "<", "t")], "anti").collect() == [{"k": 1, "t": 5}]
    assert none.join(some, ["k", ("t", "<", "t")], "right").collect() == [{"k": 1, "t": None, "t_right": 5}]


def test_a_step_by_the_key_behind_it(env, tables):
    trades, quotes = (stream(env, tables, name) for name in ("trades", "quotes"))
    found = trades.join_asof(quotes, "t", "k", how="inner").key_by("k").aggregate(total=("v_right", "sum")).to_arrow()
    sql = "SELECT l.k, sum(r.v)::BIGINT AS total FROM trades l ASOF JOIN quotes r ON l.k = r.k AND l.t >= r.t GROUP BY l.k"
    assert_same_rows(found, duckdb_answer(sql, **tables))


@pytest.mark.parametrize(
    ("join", "said"),
    [
        (lambda a, b: a.join(b), r"wants on=.*cross_join"),
        (lambda a, b: a.join(b, ("k", "k")), r"is not clear.*\[\("),
        (lambda a, b: a.join(b, []), "is not clear"),
        (lambda a, b: a.join(b, "x"), "no column 'x' for the left side of the join"),
        (lambda a, b: a.join(b, ["k", "k"]), "twice"),
        (lambda a, b: a.join(b, [("k", "~", "k")]), "no condition '~'.*There are ="),
        (lambda a, b: a.join(b, [7]), "by their names, not 7"),
        (lambda a, b: a.join(b, "k", "sideways"), "no join of kind"),
        (lambda a, b: a.join(b, [("t", "<", "t")], "full"), "full join wants equal columns"),
        (lambda a, b: a.join(b, [("t", "<", "t")], broadcast="right"), "is for joins by equal columns"),
        (lambda a, b: a.join(b, ["k", ("t", "<", "t")], "full", broadcast="right"), "right side of a full join cannot be"),
        (lambda a, b: a.join(b, [("t", "<", "s")]), "compared exactly.*Cast"),
        (lambda a, b: a.join(b, [("l", "<", "l")]), "no order"),
        (lambda a, b: a.join(b, [("n", "<", "m")]), "need more than 38 digits together.*Cast"),
        (lambda a, b: a.join(b, left_on="k"), "both left_on= and right_on="),
        (lambda a, b: a.join(b, left_on=["k"], right_on=["k", "t"]), "names 1 columns, right_on 2"),
        (lambda a, b: a.join(b.key_by("k"), "k"), "wants a stream, not KeyedStream"),
        (lambda a, b: a.join_asof(b, ["t"], "k"), "does not name the column of the time"),
        (lambda a, b: a.join_asof(b, "s", "k"), "Nothing is near in a column of string.*Cast"),
        (lambda a, b: a.join_asof(b, ("t", "s"), "k"), "do not fit.*Cast"),
        (lambda a, b: a.join_asof(b, "t", "k", direction="up"), "There are backward, forward, nearest"),
        (lambda a, b: a.join_asof(b, "t", "k", how="full"), "no as-of join of kind 'full'"),
        (lambda a, b: a.join_asof(b, "t", "k", tolerance=1.5), "a whole number"),
        (lambda a, b: a.join_asof(b, "t", "k", tolerance=-1), "negative"),
        (
            lambda a, b: a.join_asof(b, "t", "k", tolerance=timedelta(1)),
            "tolerance=.* must be a whole number: 't' is compared as int64",
        ),
        (lambda a, b: a.key_by("k").join(b, on="k"), r"a.join\(b, \"k\"\)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_the_step_is_made(env, join, said):
    table = pa.table({"k": [1], "t": [2], "s": ["x"], "l": [[1]]})
    for name, type_ in (("n", pa.decimal128(38, 0)), ("m", pa.decimal128(20, 10))):
        table = table.append_column(name, pa.array([1], type_))
    rows = env.from_arrow(table)
    with pytest.raises(UsageError, match=f"(?s){said}"):
        join(rows, rows)

"""Aggregates, grouping sets, pivots and rows made of rows, as whole jobs."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from firesteel import agg, col, lit
from firesteel.errors import JobExecutionError, UsageError

SALES = pa.table(
    {
        "town": ["Ulm", "Ulm", "Bonn", "Bonn", None, "Ulm"],
        "kind": ["tea", "rice", "tea", None, "tea", "tea"],
        "n": pa.array([1, 2, 3, 4, 5, None], pa.int64()),
        "price": [2.0, 1.5, 2.5, None, 1.0, 4.0],
        "day": [3, 1, 2, 2, 1, 5],
    }
)


def by(*names):
    return lambda row: [str(row[name]) for name in names]


class Spread:
    """Of prices: the largest less the smallest."""

    def create(self):
        return None

    def update(self, state, batch):
        prices = [price for price in batch.column("price").to_pylist() if price is not None]
        found = (min(prices), max(prices)) if prices else None
        return self.merge(state, found)

    def merge(self, state, other):
        if state is None or other is None:
            return state or other
        return min(state[0], other[0]), max(state[1], other[1])

    def finish(self, state):
        return None if state is None else state[1] - state[0]


def test_expressions_filters_and_names(env):
    sales = env.from_arrow(SALES)
    found = sales.key_by("town").aggregate(
        {"n": ["sum", "max"], "price": "stddev"},
        agg.count().alias("rows"),
        agg.median("price"),
        paid=agg.sum(col("n").cast("double") * col("price")),
        dear=agg.count().where(col("price") > 2),
        teas=agg.collect_list("n", order_by="day").where(col("kind") == "tea"),
        latest=agg.last("kind", order_by=["day", "n"]),
        spread=agg.user(Spread(), "price", type="double"),
    )
    assert found.columns == [
        "town", "n_sum", "n_max", "price", "rows", "price_median", "paid", "dear", "teas", "latest", "spread",
    ]  # fmt: skip
    ulm = next(row for row in found.collect() if row["town"] == "Ulm")
    assert ulm["price"] == pytest.approx(1.3228756555322954)
    assert {name: value for name, value in ulm.items() if name != "price"} == {
        "town": "Ulm", "n_sum": 3, "n_max": 2, "rows": 3, "price_median": 2.0, "paid": 5.0, "dear": 1, "teas": [1],
        "latest": "tea", "spread": 2.5,
    }  # fmt: skip
    nothing = sales.filter(col("n") > 9).aggregate(s=agg.user(Spread(), "price", type="double"), l=agg.collect_set("n"))
    assert nothing.collect() == [{"s": None, "l": []}]
    assert sales.filter(col("n") > 9).key_by("town").aggregate(s=agg.stddev("n")).collect() == []


def test_many_rows_in_several_subtasks(env):
    rows = pa.table({"k": [i % 700 for i in range(60_000)], "x": [float(i * 7919 % 10_007) for i in range(60_000)]})
    stream = env.from_arrow(rows).repartition(3)
    found = stream.key_by("k").aggregate(
        m=agg.median("x"), n=agg.approx_count_distinct("x", 0.01), top=agg.max_by("x", "x"), v=agg.var_pop("x")
    )
    groups = defaultdict(list)
    for k, x in zip(rows["k"].to_pylist(), rows["x"].to_pylist(), strict=True):
        groups[k].append(x)
    got = {row["k"]: row for row in found.collect()}
    assert got.keys() == groups.keys()
    for k, values in groups.items():
        values.sort()
        middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
        mean = sum(values) / len(values)
        assert (got[k]["m"], got[k]["top"]) == (middle, values[-1])
        assert abs(got[k]["n"] - len(set(values))) <= 4
        assert got[k]["v"] == pytest.approx(sum((v - mean) ** 2 for v in values) / len(values))


def test_an_error_of_a_user_aggregate_ends_the_job_with_its_words(env):
    class Broken(Spread):
        def merge(self, state, other):
            raise ValueError("no two")

    stream = env.from_arrow(SALES).key_by("town").aggregate(x=agg.user(Broken(), "price", type="double"))
    with pytest.raises(JobExecutionError, match=r"Aggregate Broken: update raised ValueError: no two"):
        stream.collect()


def grouped(sets, rows):
    """Number of rows, sum and largest key by each set, in plain Python."""
    found = {}
    for kept in sets:
        number = sum(1 << place for place, key in enumerate(reversed(("town", "kind"))) if key not in kept)
        for row in rows:
            key = tuple(row[name] if name in kept else None for name in ("town", "kind"))
            one = found.setdefault((*key, number), [0, None, None])
            one[0] += 1
            one[1] = row["n"] if one[1] is None else one[1] + (row["n"] or 0)
            one[2] = max(filter(None, (one[2], row["town"])), default=None)
    return {key: tuple(value) for key, value in found.items()}


SETS = {
    "rollup": [("town", "kind"), ("town",), ()],
    "cube": [("town", "kind"), ("town",), ("kind",), ()],
    "grouping_sets": [("town", "kind"), ("kind",)],
}


@pytest.mark.parametrize("step", SETS)
def test_grouping_sets(env, step):
    sales = env.from_arrow(SALES)
    given = SETS[step] if step == "grouping_sets" else ["town", "kind"]
    groups = getattr(sales, step)(*given, grouping_id="level")
    found = groups.aggregate(agg.count().alias("rows"), n=("n", "sum"), last=("town", "max"))
    assert found.columns == ["town", "kind", "level", "rows", "n", "last"]
    got = {tuple(row[name] for name in ("town", "kind", "level")): row for row in found.collect()}
    want = grouped(SETS[step], SALES.to_pylist())
    assert {key: (row["rows"], row["n"], row["last"]) for key, row in got.items()} == want
    plain = getattr(sales, step)(*given).count()
    assert plain.columns == ["town", "kind", "count"]
    assert Counter(row["count"] for row in plain.collect()) == Counter(rows for rows, _, _ in want.values())
    assert getattr(sales.filter(col("n") > 9), step)(*given).count().collect() == []


def test_pivot(env):
    sales = env.from_arrow(SALES)
    one = sales.key_by("town").pivot("kind", values=["tea", "rice", None]).aggregate({"n": "sum"})
    assert sorted(one.collect(), key=by("town")) == [
        {"town": "Bonn", "tea": 3, "rice": None, "null": 4},
        {"town": None, "tea": 5, "rice": None, "null": None},
        {"town": "Ulm", "tea": 1, "rice": 2, "null": None},
    ]
    two = (
        sales.key_by("town")
        .pivot("day", values=[1, 2])
        .agg(rows=agg.count().where(col("price") > 1.9), all=agg.collect_list("kind"))
    )
    assert sorted(two.collect(), key=by("town"))[0] == {
        "town": "Bonn", "1_rows": 0, "1_all": [], "2_rows": 1, "2_all": ["tea"],
    }  # fmt: skip
    counted = sales.key_by("town").pivot("kind", values=["rice"]).count()
    assert sorted(counted.collect(), key=by("town"))[0] == {"town": "Bonn", "rice": None}


def test_unpivot_is_the_way_back(env):
    wide = env.from_collection([{"id": 1, "a": 2, "b": None}, {"id": 2, "a": 3, "b": 4}])
    long = wide.unpivot("id", ["a", "b"], "name", "n")
    assert sorted(long.collect(), key=by("id", "name")) == [
        {"id": 1, "name": "a", "n": 2},
        {"id": 1, "name": "b", "n": None},
        {"id": 2, "name": "a", "n": 3},
        {"id": 2, "name": "b", "n": 4},
    ]
    assert long.columns == wide.melt(["id"], variable="name", value="n").columns
    back = long.key_by("id").pivot("name", values=["a", "b"]).aggregate(n=agg.max("n"))
    assert sorted(back.collect(), key=by("id")) == wide.collect()


LISTS = [[1, 2], None, [], [None], [3]]
KINDS = {
    "list": pa.list_(pa.int64()),
    "large_list": pa.large_list(pa.int64()),
    "fixed": pa.list_(pa.int64(), 2),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "list" else pytest.mark.full) for kind in KINDS]
)
def test_explode(env, kind):
    lists = [[1, 2], None, [None, 4]] if kind == "fixed" else LISTS
    table = pa.table({"id": range(len(lists)), "xs": pa.array(lists, KINDS[kind]), "s": list("abcde")[: len(lists)]})
    stream = env.from_arrow(table.slice(0))
    want = [
        (i, place, x, s)
        for i, (xs, s) in enumerate(zip(lists, "abcde", strict=False))
        for place, x in enumerate(xs or [])
    ]
    missing = [(i, None, None, s) for i, (xs, s) in enumerate(zip(lists, "abcde", strict=False)) if not xs]
    inner = stream.posexplode("xs", into="x").select("id", "pos", "x", "s")
    assert [tuple(row.values()) for row in inner.collect()] == want
    outer = stream.posexplode_outer("xs", into="x").select("id", "pos", "x", "s")
    assert sorted(map(str, (tuple(row.values()) for row in outer.collect()))) == sorted(map(str, want + missing))
    assert stream.explode("xs").columns == ["id", "s", "xs"]
    assert stream.explode_outer("xs").count() == len(want) + len(missing)
    nested = env.from_arrow(pa.table({"xs": pa.array([[1] * 100_000, [], [2]], pa.list_(pa.int8()))}))
    assert nested.explode("xs").key_by("xs").count().count() == 2


def test_explode_of_maps(env):
    maps = pa.array([[("a", 1), ("b", None)], None, [], [("c", 3)]], pa.map_(pa.string(), pa.int64()))
    stream = env.from_arrow(pa.table({"id": [0, 1, 2, 3], "m": maps}).slice(0))
    assert [tuple(row.values()) for row in stream.explode("m").collect()] == [(0, "a", 1), (0, "b", None), (3, "c", 3)]
    outer = stream.posexplode_outer("m", into=("name", "n")).collect()
    assert [tuple(row.values()) for row in outer] == [
        (0, 0, "a", 1), (0, 1, "b", None), (1, None, None, None), (2, None, None, None), (3, 0, "c", 3),
    ]  # fmt: skip


def test_keys_stay_where_they_lie_behind_explode(env):
    """The exchange by key before is enough for a step by the same key behind."""
    rows = env.from_arrow(pa.table({"k": [1, 1, 2], "xs": [[1, 2], [3], []]}))
    lists = rows.key_by("k").aggregate(xs=agg.collect_list("xs"))
    again = lists.explode("xs").explode("xs").key_by("k").aggregate(xs=agg.collect_set("xs", sort=True))
    assert again.collect() == [{"k": 1, "xs": [1, 2, 3]}]


BAD = {
    r"There is no aggregate function 'avg'\. Did you mean 'mean'": lambda s: s.aggregate({"n": "avg"}),
    r"'max_by' cannot be given by its name alone": lambda s: s.aggregate({"n": "max_by"}),
    r"There is no column 'm' for median": lambda s: s.aggregate(x=agg.median("m")),
    r"median does not work on column 'town' of type string: it wants numbers": lambda s: s.aggregate(
        x=agg.median("town")
    ),
    r"bool_and does not work on column 'n' of type int64": lambda s: s.aggregate(x=agg.bool_and("n")),
    r"sum of an expression has no name": lambda s: s.aggregate(agg.sum(col("n") + lit(1))),
    r"aggregate makes the column 'n_sum' twice": lambda s: s.aggregate(agg.sum("n"), n_sum=("n", "max")),
    r"A filter must be true or false": lambda s: s.aggregate(x=agg.count().where(col("n"))),
    r"percentile wants a number from 0 to 1": lambda s: s.aggregate(x=agg.percentile("n", 50)),
    r"last wants the columns to order by": lambda s: s.aggregate(x=agg.last("n", order_by=None)),
    r"histogram wants at least two ascending edges": lambda s: s.aggregate(x=agg.histogram("n", [1, 1])),
    r"pivot wants the values that become columns\. Name them": lambda s: s.key_by("town").pivot("kind"),
    r"'x' is not a value for pivot of 'n', which is int64": lambda s: s.key_by("town").pivot("n", values=["x"]),
    r"unpivot puts columns of one type under each other": lambda s: s.unpivot("day", ["n", "price"]),
    r"explode wants a list or a map, and 'n' is int64": lambda s: s.explode("n"),
    r"A cube of 13 columns": lambda s: s.select(**{f"c{i}": col("n") for i in range(13)}).cube(
        *(f"c{i}" for i in range(13))
    ),
    r"grouping_sets names the set \(kind\) twice": lambda s: s.grouping_sets("kind", ("kind",)),
    r"rollup names the column 'n' twice": lambda s: s.rollup("n", "n"),
}


@pytest.mark.parametrize("said", BAD)
def test_what_does_not_fit_is_told_when_the_step_is_made(env, said):
    with pytest.raises(UsageError, match=said):
        BAD[said](env.from_arrow(SALES))

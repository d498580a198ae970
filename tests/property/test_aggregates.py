"""Aggregates of ``firesteel.agg`` over random rows, cut in any way among tasks, in any budget, against plain Python."""

from __future__ import annotations

import math
from collections import Counter
from functools import reduce
from operator import and_, or_, xor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.aggregates_kit import KEYS, VALUES, alike, check, combined, drawn, in_tasks, nodes_of
from tests.effort import examples

from firesteel import agg
from firesteel.api.steps.aggregates.written import prepared
from firesteel.errors import FiresteelError, UsageError
from firesteel.task.batches import take_rows
from operators_support import collect, context, unit, value

QUICK = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

COLUMNS = {
    "k": KEYS["int"],
    "j": KEYS["float"],
    "i": VALUES["i"],
    "u": (pa.uint64(), st.sampled_from([None, 0, 5, 2**64 - 1])),
    "f": VALUES["f"],
    "x": (pa.float64(), st.one_of(st.none(), st.floats(-1e6, 1e6))),
    "s": (pa.dictionary(pa.int8(), pa.string()), VALUES["s"][1]),
    "v": KEYS["view"],
    "d": VALUES["d"],
    "l": (pa.list_(pa.float64()), st.sampled_from([None, [], [0.0], [math.nan]])),
    "b": KEYS["bool"],
    "t": (pa.timestamp("us", "UTC"), st.sampled_from([None, 0, 1_000_000, 5_000_000])),
    "w": KEYS["bool"],
}


class Longest:
    """The longest text and how many rows were seen: states are not of Arrow."""

    def create(self):
        return ["", 0]

    def update(self, state, batch):
        assert batch.schema.names == ["s", "i"]
        texts = [text for text in batch.column("s").to_pylist() if text is not None]
        return [max([state[0], *texts], key=lambda text: (len(text), text)), state[1] + batch.num_rows]

    def merge(self, state, other):
        return [max(state[0], other[0], key=lambda text: (len(text), text)), state[1] + other[1]]

    def finish(self, state):
        return {"text": state[0], "rows": state[1]}


CALLS = {
    "n": agg.count(),
    "total": agg.sum("i"),
    "xs": agg.count_distinct("x"),
    **{
        f"{name}_{c}": getattr(agg, name)(c)
        for c in "ifxdu"
        for name in ("var_samp", "var_pop", "stddev", "stddev_pop")
    },
    **{name: getattr(agg, name)("x", "i") for name in ("covar_samp", "covar_pop", "corr")},
    **{f"median_{c}": agg.median(c) for c in "ifxdu"},
    "percentiles": agg.percentile("x", [0, 0.1, 0.5, 0.999, 1]),
    "p_f": agg.percentile("f", [0.25, 0.8]),
    "approx": agg.percentile_approx("x", [0, 0.5, 1]),
    **{f"mode_{c}": agg.mode(c) for c in "isdvtb"},
    **{f"list_{c}": agg.collect_list(c) for c in "ilbvs"},
    "ordered": agg.collect_list("s", order_by=[("t", False), "f"]),
    **{f"set_{c}": agg.collect_set(c, sort=True) for c in "ifsdbt"},
    "set_l": agg.collect_set("l"),
    **{f"any_{c}": agg.any_value(c) for c in "isdvlt"},
    "first": agg.first("s", order_by=["t", ("f", False)]),
    "first_l": agg.first("l", order_by="i"),
    "last": agg.last("i", order_by="t"),
    "last_value": agg.last("s", order_by="t", ignore_nulls=True),
    "most": agg.max_by("s", "f"),
    "least": agg.min_by("v", "t"),
    **{f"{name}_{c}": getattr(agg, name)(c) for c in "iu" for name in ("bit_and", "bit_or", "bit_xor")},
    "all": agg.bool_and("b"),
    "some": agg.bool_or("b"),
    "about": agg.approx_count_distinct("i", 0.01),
    "histogram": agg.histogram("f", [-3, 0, 1.5, 8]),
    "own": agg.user(Longest(), "s", "i", type=pa.struct({"text": pa.string(), "rows": pa.int64()})),
}
CALLS |= {f"{name}_where": call.where("w") for name, call in CALLS.items() if call.condition is None}


def ordered(v):
    """A key of the order of values: null, then numbers, then NaN."""
    if v is None:
        return (0, 0)
    return (2, 0) if isinstance(v, float) and math.isnan(v) else (1, v)


def picked(rows, order, value, last=False):
    """The value of the first row; ``last``: in the order the other way round, but of equal rows the smallest value still."""
    best = None
    for row in rows:
        by = [(row[name], up != last) for name, up in order]
        if best is None or before([*by, (row[value], True)], best[0]):
            best = [*by, (row[value], True)], row[value]
    return best[1] if best is not None else None


def before(one, other):
    for (a, up), (b, _) in zip(one, other, strict=True):
        if ordered(a) != ordered(b):
            return (ordered(a) < ordered(b)) == up
    return False


def variance(values, least):
    numbers = np.array([float(v) for v in values])
    if len(numbers) < least:
        return None
    with np.errstate(all="ignore"):
        return float(((numbers - numbers.mean()) ** 2).sum() / (len(numbers) - least + 1))


def percentile(values, p):
    values = sorted(map(float, values), key=ordered)
    if not values:
        return None
    place = (len(values) - 1) * p
    low, high = values[math.floor(place)], values[math.ceil(place)]
    if math.floor(place) == math.ceil(place) or low == high:
        return low
    return (math.ceil(place) - place) * low + (place - math.floor(place)) * high


def pairs(rows):
    found = [(row["x"], float(row["i"])) for row in rows if row["x"] is not None and row["i"] is not None]
    x, y = np.array(found).reshape(-1, 2).T
    return len(found), float(((x - x.mean()) * (y - y.mean())).sum()) if found else 0, x, y


def correlation(rows):
    n, products, x, y = pairs(rows)
    if n < 2:
        return None
    with np.errstate(all="ignore"):
        return float(np.float64(products) / np.sqrt(((x - x.mean()) ** 2).sum() * ((y - y.mean()) ** 2).sum()))


def commonest(values):
    counts = Counter(values)
    return min((v for v in counts if counts[v] == max(counts.values())), default=None)


def expected(name, rows):
    if name.endswith("_where"):
        return expected(name.removesuffix("_where"), [row for row in rows if row["w"]])
    column = name.rpartition("_")[2]
    values = [row[column] for row in rows if row[column] is not None] if column in COLUMNS else []
    kind = name.removesuffix(f"_{column}") if column in COLUMNS else name
    match kind:
        case "n":
            return len(rows)
        case "total":
            numbers = [row["i"] for row in rows if row["i"] is not None]
            return sum(numbers) if numbers else None
        case "xs":
            return len({value(row["x"]) for row in rows if row["x"] is not None})
        case "var_samp" | "var_pop" | "stddev" | "stddev_pop":
            found = variance(values, 1 if kind.endswith("pop") else 2)
            return math.sqrt(found) if kind.startswith("stddev") and found is not None else found
        case "covar_samp" | "covar_pop":
            n, products, _, _ = pairs(rows)
            less = 1 if kind == "covar_samp" else 0
            return products / (n - less) if n > less else None
        case "corr":
            return correlation(rows)
        case "median":
            return percentile(values, 0.5)
        case "percentiles" | "approx" | "p":
            of = [row["f" if kind == "p" else "x"] for row in rows]
            ps = {"percentiles": [0, 0.1, 0.5, 0.999, 1], "approx": [0, 0.5, 1], "p": [0.25, 0.8]}[kind]
            of = [v for v in of if v is not None]
            return [percentile(of, p) for p in ps] if of else None
        case "mode":
            return commonest(values)
        case "list":
            return values
        case "ordered":
            kept = [row for row in rows if row["s"] is not None]
            times = sorted(kept, key=lambda row: (ordered(row["f"]), row["s"]))
            return [row["s"] for row in sorted(times, key=lambda row: ordered(row["t"]), reverse=True)]
        case "set":
            return sorted({value(v): v for v in values}.values(), key=ordered if column != "l" else str)
        case "any":
            return values  # which one of them, is told by the order of rows no more than here
        case "first":
            if column == "l":
                return [row["l"] for row in rows if ordered(row["i"]) == min(ordered(r["i"]) for r in rows)]
            return picked(rows, [("t", True), ("f", False)], "s")
        case "last":
            return picked(rows, [("t", True)], "i", last=True)
        case "last_value":
            return picked([row for row in rows if row["s"] is not None], [("t", True)], "s", last=True)
        case "most":
            return picked([row for row in rows if row["f"] is not None], [("f", True)], "s", last=True)
        case "least":
            return picked([row for row in rows if row["t"] is not None], [("t", True)], "v")
        case "bit_and" | "bit_or" | "bit_xor":
            return reduce({"bit_and": and_, "bit_or": or_, "bit_xor": xor}[kind], values) if values else None
        case "all" | "some":
            of = [row["b"] for row in rows if row["b"] is not None]
            return (all if kind == "all" else any)(of) if of else None
        case "about":
            return len({row["i"] for row in rows if row["i"] is not None})
        case "histogram":
            of = np.array([row["f"] for row in rows if row["f"] is not None and math.isfinite(row["f"])])
            return np.histogram(of, [-3, 0, 1.5, 8])[0].tolist()
        case "own":
            texts = [row["s"] for row in rows if row["s"] is not None]
            return {"text": max(["", *texts], key=lambda text: (len(text), text)), "rows": len(rows)}
    raise AssertionError(name)


def same(name, got, want):
    kind = name.removesuffix("_where")
    if kind.startswith("list_"):
        return Counter(map(value, got)) == Counter(map(value, want))
    if kind == "set_l":
        return sorted(map(str, got)) == sorted(map(str, want))
    if kind.startswith("any_") or kind == "first_l":
        return value(got) in map(value, want) if want else got is None
    if kind == "any_value":
        return got == (min(want) if want else None)
    return alike(got, want, 1e-6 if kind == "corr" else 1e-9)


@st.composite
def tables(draw):
    return drawn(draw, COLUMNS)


@QUICK
@given(
    table=tables(),
    keys=st.sampled_from([(), ("k",), ("k", "j"), ("s",)]),
    names=st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=12, unique=True),
    budgets=st.tuples(st.sampled_from([64, 1 << 12, 1 << 24]), st.sampled_from([1 << 13, 1 << 24])),
    batch=st.integers(1, 50),
    tasks=st.integers(1, 3),
)
def test_partial_then_final(tmp_path, table, keys, names, budgets, batch, tasks):
    made = prepared([(name, CALLS[name]) for name in names], table.schema, "aggregate")
    (condition,) = made.computed or ["w"]
    table = table.append_column(condition, table["w"]) if made.computed else table
    aggs = tuple(made.aggregations)
    for result, outputs in in_tasks(tmp_path, table, keys, aggs, budgets, batch, tasks):
        check(result, table, keys, outputs, expected, same)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.float32(), pa.bool_(), pa.date32()], ids=str)
def test_a_value_of_a_short_type_is_picked(tmp_path, kind):
    """The engine makes integers of places in an order whose values are short."""
    table = pa.table({"x": pa.array([1, None, 0], pa.int32()).cast(kind)})
    aggs = prepared([("v", agg.min_by("x", "x"))], table.schema, "aggregate").aggregations
    for result, _ in in_tasks(tmp_path, table, (), tuple(aggs), (1 << 24, 1 << 24), 2, 2):
        assert result["v"].equals(pa.chunked_array([table["x"].slice(2).combine_chunks()]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_variance_of_one_value_that_is_not_finite(tmp_path, value):
    table = pa.table({"x": [None, value]})
    aggs = prepared([("v", agg.var_pop("x"))], table.schema, "aggregate").aggregations
    for result, _ in in_tasks(tmp_path, table, (), tuple(aggs), (1 << 24, 1 << 24), 2, 1):
        assert math.isnan(result["v"][0].as_py())


@QUICK
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=30),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_variance_loses_nothing_by_a_large_mean(tmp_path, values, parts, seed):
    """One far from zero is what it is near zero, however its rows are cut."""
    near = np.array([v % 16 for v in values])
    far = pa.table({"x": near + 1e9, "k": np.random.default_rng(seed).integers(0, parts, len(near))})
    aggs = prepared([("v", agg.var_pop("x"))], far.schema, "aggregate").aggregations
    (node,) = nodes_of(far.schema, (), aggs)
    ctx, pieces = context(tmp_path), [far.filter(pa.array(far["k"].to_numpy() == k)) for k in range(parts)]
    partial = [
        b for k, piece in enumerate(pieces) for b in combined(node.inputs[0].combiner, piece.to_batches(), ctx, k % 2)
    ]
    rows = unit(collect(partial, node.inputs[0].schema), ctx)
    got = collect(node.work.operator.apply_unit([rows], ctx))["v"][0].as_py()
    want = float((far["x"].to_numpy() - 1e9).var())
    assert math.isclose(
        got, want, rel_tol=1e-6, abs_tol=1e-6 * math.sqrt(want) + 1e-12
    )  # means have steps of 1e-7 there


@pytest.mark.parametrize("rsd", [0.05, 0.01])
@pytest.mark.parametrize("n", [0, 1, 10, 500, 3000, 100_000])
def test_distinct_values_are_counted_within_the_error(n, rsd):
    table = pa.table({"x": [f"value {i}" for i in range(n)]}, schema=pa.schema({"x": pa.string()}))
    (aggregation,) = prepared([("n", agg.approx_count_distinct("x", rsd))], table.schema, "aggregate").aggregations
    folding = nodes_of(table.schema, (), (aggregation,))[0].work.direct.folding
    rows = folding.to_partial(table)
    halves = [folding.merge(rows.slice(0, 2 * n // 3)), folding.merge(rows.slice(n // 3))]
    merged = folding.merge(pa.concat_tables(halves))
    assert merged.equals(folding.merge(rows))
    assert merged.nbytes <= (64 << 10) + 100
    assert math.isclose(folding.finish(merged)["n"][0].as_py(), n, rel_tol=4 * rsd)


@pytest.mark.parametrize("draw", ["uniform", "lognormal", "few values", "sorted"])
def test_a_digest_is_near_the_percentile(draw):
    random, n, groups = np.random.default_rng(7), 200_000, 3
    values = {
        "uniform": lambda: random.random(n),
        "lognormal": lambda: random.lognormal(0, 3, n),
        "few values": lambda: random.integers(0, 5, n).astype(float),
        "sorted": lambda: np.sort(random.normal(size=n)),
    }[draw]()
    ps = [0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1]
    table = pa.table({"k": random.integers(0, groups, n), "x": values})
    made = tuple(prepared([("p", agg.percentile_approx("x", ps))], table.schema, "aggregate").aggregations)
    folding = nodes_of(table.schema, ("k",), made)[0].work.direct.folding
    merged = folding.merge(folding.to_partial(table.slice(0, 1000)))
    for at in range(1000, n, 17_000):
        merged = folding.merge(pa.concat_tables([merged, folding.merge(folding.to_partial(table.slice(at, 17_000)))]))
    assert merged.nbytes < groups * 250 * 16
    for row in folding.finish(merged).to_pylist():
        held = np.sort(values[table["k"].to_numpy() == row["k"]])
        assert (row["p"][0], row["p"][-1]) == (held[0], held[-1])
        for p, got in zip(ps, row["p"], strict=True):
            low, high = np.searchsorted(held, [got, got], side="left")[0], np.searchsorted(held, got, side="right")
            gap = max(low / len(held) - p, p - high / len(held), 0)
            assert gap <= 0.006 * max(4 * p * (1 - p), 0.1), (p, gap)


@QUICK
@given(st.lists(st.sampled_from([None, -0.0, 0.0, 1.5, math.nan, 2.0, 3.0]), max_size=30), st.integers(0, 1 << 20))
def test_a_set_is_the_same_whatever_order_its_values_come_in(tmp_path, values, seed):
    table = pa.table({"x": pa.array(values, pa.float64())})
    made = tuple(prepared([("s", agg.collect_set("x"))], table.schema, "aggregate").aggregations)
    (node,) = nodes_of(table.schema, (), made)
    shuffled = take_rows(table, np.random.default_rng(seed).permutation(len(values)))
    ctx = context(tmp_path)
    found = [collect(node.work.direct.apply_unit([unit(rows, ctx)], ctx))["s"] for rows in (table, shuffled)]
    assert str(found[0]) == str(found[1])


def test_what_a_user_aggregate_raises_or_returns_is_told():
    table = pa.table({"s": ["a", "b"], "i": [1, 2]})

    class Broken(Longest):
        def update(self, state, batch):
            return 1 / 0

    class Wrong(Longest):
        def finish(self, state):
            return "no number"

    for aggregate, said in (
        (Broken(), r"Aggregate Broken: update raised ZeroDivisionError: division by zero"),
        (Wrong(), r"finish of the aggregate Wrong returned 'no number', which is not of type int64"),
    ):
        call = agg.user(aggregate, "s", "i", type="bigint")
        made = tuple(prepared([("own", call)], table.schema, "aggregate").aggregations)
        folding = nodes_of(table.schema, (), made)[0].work.direct.folding
        with pytest.raises(FiresteelError, match=said):
            folding.finish(folding.merge(folding.to_partial(table)))
    with pytest.raises(UsageError, match="Half is no aggregate: it has no merge and no finish"):
        agg.user(type("Half", (), {"create": print, "update": print})(), "s", type="bigint")
    with pytest.raises(UsageError, match="wants an object, not the class Longest"):
        agg.user(Longest, "s", type="bigint")

"""on_error: rows that a function cannot do are left out, made null or routed, by the very row, in every kind of step."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from firesteel.errors import FiresteelError, UsageError
from firesteel.model.reports import ERRORS, MOST_SAMPLES, decode, encode
from firesteel.task.functions.batch_functions import MapInArrow, MapInPandas
from firesteel.task.functions.row_errors import OnError, TooManyErrors
from firesteel.task.functions.row_functions import FilterRows, FlatMapRows, MapRows
from firesteel.task.services.calls import CallPolicy
from firesteel.task.services.map_async import MapAsync
from operators_support import collect, context

INPUT = pa.schema({"n": pa.int64(), "s": pa.dictionary(pa.int32(), pa.string())})
OUT = pa.schema({"m": pa.int64()})


def batches(sizes):
    first = 0
    for size in sizes:
        numbers = list(range(first, first + size))
        text = pa.array([f"s{n % 3}" for n in numbers]).dictionary_encode()
        yield pa.record_batch([pa.array(numbers, pa.int64()), text], schema=INPUT)
        first += size


class Steps:
    """One function on rows as each kind of step: raises for rows of ``bad``, gives back text for those of ``wrong``."""

    def __init__(self, bad, wrong):
        self.bad, self.wrong = bad, wrong

    def value(self, n):
        if n in self.bad:
            raise ValueError(f"bad {n}")
        return "text" if n in self.wrong else 10 * n

    def map(self, row):
        return self.value(row.n)

    def flat_map(self, row):
        yield 10 * row.n
        yield self.value(row.n)

    def filter(self, row):
        return self.value(row.n) % 20 == 0 if row.n not in self.wrong else self.value(min(self.bad))

    async def map_async(self, row):
        return self.value(row.n)

    def map_in_arrow(self, parts):
        for part in parts:
            yield pa.record_batch({"m": [self.value(n) for n in part["n"].to_pylist()]}, schema=None)

    def map_in_pandas(self, frames):
        import pandas as pd

        for frame in frames:
            yield pd.DataFrame({"m": [self.value(n) for n in frame["n"]]})


def run(kind, steps, policy, ctx, sizes):
    fn = getattr(steps, kind)
    made = {
        "map": lambda: MapRows("step", fn, OUT, (), policy),
        "flat_map": lambda: FlatMapRows("step", fn, OUT, (), policy),
        "filter": lambda: FilterRows("step", fn, INPUT, (), policy),
        "map_async": lambda: MapAsync("step", fn, OUT, (), policy, CallPolicy(7), ordered=True),
        "map_in_arrow": lambda: MapInArrow("step", fn, OUT, (), on_error=policy),
        "map_in_pandas": lambda: MapInPandas("step", fn, OUT, (), policy),
    }[kind]()
    return collect(made.apply(batches(sizes), ctx), INPUT if kind == "filter" else OUT)


def expected(kind, n, failed, action):
    if n in failed:
        return [None] if action == "null" else []
    return {"flat_map": [10 * n, 10 * n], "filter": [n] if n % 2 == 0 else []}.get(kind, [10 * n])


ACTIONS = ("skip", "null", "route")
KINDS = ("map", "flat_map", "filter", "map_async", "map_in_arrow", "map_in_pandas")


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        pytest.param(k, a, marks=pytest.mark.full if (k, a) == ("map_in_pandas", "null") else ())
        for k in KINDS
        for a in ACTIONS
        if (k, a) != ("filter", "null")
    ],
)
def test_every_row_is_done_or_failed(tmp_path, kind, action):
    draw = random.Random(f"{kind}/{action}")
    for sizes in ([0], [1], [3, 0, 250, 1], [1200]):
        total = sum(sizes)
        bad = set(draw.sample(range(total), min(total, draw.choice([1, 3, 20]))))
        wrong = set(draw.sample(range(total), min(total, 2))) - bad
        ctx, routed = context(tmp_path), []
        ctx.routes[4] = routed.append
        output = 4 if action == "route" else None
        found = run(kind, Steps(bad, wrong), OnError(action, None, output), ctx, sizes)
        failed = bad | wrong
        want = [value for n in range(total) for value in expected(kind, n, failed, action)]
        assert found.column(0).to_pylist() == want
        report = ctx.reports["step"]
        assert report.counts.get(ERRORS, 0) == len(failed)
        assert len(report.samples) == min(len(failed), MOST_SAMPLES)
        assert decode(encode([report])) == (report,)
        rows = [row for batch in routed for row in batch.to_pylist()]
        assert sorted(row["n"] for row in rows) == (sorted(failed) if output else [])
        for row in rows:
            assert row["s"] == f"s{row['n'] % 3}"
            assert f"bad {row['n']}" in row["error"] if row["n"] in bad else row["error"]


@pytest.mark.parametrize("kind", KINDS)
def test_more_errors_than_allowed_end_the_job(tmp_path, kind):
    steps = Steps({3, 5, 8}, set())
    run(kind, steps, OnError("skip", 3), context(tmp_path), [10])
    with pytest.raises(TooManyErrors, match=r"'step' failed for more than 2 rows.*bad 8 for Row\(n=8, s='s2'\)"):
        run(kind, steps, OnError("skip", 2), context(tmp_path), [10])


EXITS = (SystemExit, MemoryError, lambda: UsageError("no such thing"))


@pytest.mark.parametrize(
    ("kind", "error"), [(k, e) for k in KINDS for e in EXITS if (k, e) != ("map_async", SystemExit)]
)
def test_what_no_row_is_to_blame_for_ends_the_job(tmp_path, kind, error):
    class Leaving(Steps):
        def value(self, n):
            raise error()

    with pytest.raises(FiresteelError, match=r"step|no such thing"):
        run(kind, Leaving(set(), set()), OnError("skip"), context(tmp_path), [3])


def test_rows_that_are_not_wanted_any_more_are_routed_all_the_same(tmp_path):
    ctx, routed = context(tmp_path), []
    ctx.routes[0] = routed.append
    step = MapRows("step", Steps({0, 1}, set()).map, OUT, (), OnError("route", None, 0))
    made = step.apply(batches([10, 10]), ctx)
    next(made)
    made.close()
    assert sum(batch.num_rows for batch in routed) == 2


def test_rows_are_counted_only_where_they_must_not_be_told(tmp_path):
    ctx = context(tmp_path, failed_rows=False)
    run("map", Steps({1, 2}, set()), OnError("skip"), ctx, [5])
    assert (ctx.reports["step"].counts[ERRORS], ctx.reports["step"].samples) == (2, [])

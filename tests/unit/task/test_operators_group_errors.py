"""on_error of functions on groups: a group that fails is left out whole, counted once, and handed on with its rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from firesteel.errors import FiresteelError, UsageError
from firesteel.model.reports import ERRORS, GROUP_ROWS, MOST_SAMPLES, decode, encode
from firesteel.task.functions.group_functions import ApplyInArrow, ApplyInPandas, CoGroupApplyInArrow
from firesteel.task.functions.row_errors import OnError, TooManyErrors, error_schema
from firesteel.task.operators.aggregation.reduce import ReduceGroups
from operators_support import collect, context, unit

ROWS = pa.schema({"k": pa.int64(), "n": pa.int64(), "s": pa.dictionary(pa.int32(), pa.string())})
OTHER = pa.schema([pa.field("k2", pa.int32(), nullable=False), pa.field("x", pa.list_(pa.float32()))])
KINDS = ("arrow", "pandas", "cogroup", "reduce")


def grouped(keys):
    text = pa.array([f"s{k}" for k in keys], pa.string()).dictionary_encode()
    return pa.table([pa.array(keys, pa.int64()), pa.array(range(len(keys)), pa.int64()), text], schema=ROWS)


class Steps:
    """One function on groups as each kind of step: raises for keys of ``bad``, gives back what does not fit for those of ``wrong``."""

    def __init__(self, bad=(), wrong=()):
        self.bad, self.wrong = bad, wrong

    def value(self, key, n):
        if key in self.bad:
            raise ValueError(f"bad {key}")
        return "text" if key in self.wrong else n

    def arrow(self, table):
        key = table["k"][0].as_py()
        return pa.table({"k": [key], "n": [self.value(key, sum(table["n"].to_pylist()))]})

    def pandas(self, frame):
        import pandas as pd

        key = None if frame["k"].isna()[0] else int(frame["k"][0])
        return pd.DataFrame({"k": pd.array([key], "Int64"), "n": [self.value(key, int(frame["n"].sum()))]})

    def cogroup(self, left, right):
        key = left["k"][0].as_py() if left.num_rows else right["k2"][0].as_py()
        return pa.table({"k": pa.array([key], pa.int64()), "n": [self.value(key, left.num_rows + right.num_rows)]})

    def reduce(self, one, other):
        return {"k": one.k, "n": self.value(one.k, one.n + other.n), "s": one.s}

    def run(self, kind, policy, ctx, table, other=None):
        out = pa.schema({"k": pa.int64(), "n": pa.int64()})
        inputs = [unit(table, ctx, 7)]
        if kind == "cogroup":
            inputs.append(unit(OTHER.empty_table() if other is None else other, ctx, 7))
        made = {
            "arrow": lambda: ApplyInArrow("step", self.arrow, ("k",), out, (), policy),
            "pandas": lambda: ApplyInPandas("step", self.pandas, ("k",), out, (), policy),
            "cogroup": lambda: CoGroupApplyInArrow("step", self.cogroup, ("k",), ("k2",), out, (), policy),
            "reduce": lambda: ReduceGroups("step", self.reduce, ("k",), ROWS, policy),
        }[kind]()
        found = collect(made.apply_unit(inputs, ctx), ROWS if kind == "reduce" else out)
        return dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))


@pytest.mark.parametrize("action", ["skip", "route"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_group_is_done_or_failed(tmp_path, kind, action):
    draw = random.Random(f"{kind}/{action}")
    for rows, most in ((0, 1), (1, 1), (40, 5), (300, 40)):
        keys = [draw.choice([None, *range(most)]) for _ in range(rows)]
        if kind == "reduce":  # a row that is alone is passed on without a call
            keys *= 2
        table = grouped(keys)
        known = sorted(set(keys) - {None})
        bad = set(draw.sample(known, min(len(known), draw.choice([0, 1, 7]))))
        wrong = set(draw.sample(known, min(len(known), 2))) - bad
        ctx, routed = context(tmp_path), []
        ctx.routes[4] = routed.append
        found = Steps(bad, wrong).run(kind, OnError(action, None, 4 if action == "route" else None), ctx, table)
        failed = bad | wrong
        value = len if kind == "cogroup" else sum
        assert found == {key: value([n for n, k in enumerate(keys) if k == key]) for key in {*keys} - failed}
        report = ctx.reports.get("step")
        lost = [n for n, k in enumerate(keys) if k in failed]
        if report is not None:
            assert (report.counts.get(ERRORS, 0), report.counts.get(GROUP_ROWS, 0)) == (len(failed), len(lost))
            assert len(report.samples) == min(len(failed), MOST_SAMPLES)
            assert all(text.startswith("the ") and "of Row(k=" in text for text, _ in report.samples)
            assert decode(encode([report])) == (report,)
        given = [row for batch in routed for row in batch.to_pylist()]
        given = [{**row["left"], "error": row["error"]} for row in given] if kind == "cogroup" else given
        assert sorted(row["n"] for row in given) == (lost if action == "route" else [])
        for row in given:
            assert (row["k"], row["s"]) == (keys[row["n"]], f"s{row['k']}")
            assert f"bad {row['k']}" in row["error"] if row["k"] in bad else row["error"]


def test_both_sides_of_a_group_are_handed_on(tmp_path):
    ctx, routed = context(tmp_path), []
    ctx.routes[0] = routed.append
    other = pa.table(
        [pa.array([2, 3, 3], pa.int32()), pa.array([[1.0], None, [2.0]], pa.list_(pa.float32()))], schema=OTHER
    )
    found = Steps({2, 3}).run("cogroup", OnError("route", None, 0), ctx, grouped([1, 2]), other)
    assert found == {1: 1}
    schema = error_schema(ROWS, OTHER)
    table = pa.Table.from_batches(routed, schema)
    table.validate(full=True)
    assert table.to_pylist() == [
        {"left": {"k": 2, "n": 1, "s": "s2"}, "right": None, "error": "ValueError: bad 2"},
        {"left": None, "right": {"k2": 2, "x": [1.0]}, "error": "ValueError: bad 2"},
        {"left": None, "right": {"k2": 3, "x": None}, "error": "ValueError: bad 3"},
        {"left": None, "right": {"k2": 3, "x": [2.0]}, "error": "ValueError: bad 3"},
    ]
    assert [text for text, _ in ctx.reports["step"].samples] == ["the 2 rows of Row(k=2)", "the 2 rows of Row(k2=3)"]


@pytest.mark.parametrize("kind", KINDS)
def test_more_errors_than_allowed_end_the_job(tmp_path, kind):
    table = grouped([1, 1, 1, 2, 2, 3, 3])
    Steps({1, 3}).run(kind, OnError("skip", 2), context(tmp_path), table)
    with pytest.raises(TooManyErrors, match=r"failed for more than 1 group .*bad 3 for the 2 rows of Row\(k=3\)"):
        Steps({1, 3}).run(kind, OnError("skip", 1), context(tmp_path), table)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [SystemExit, MemoryError, lambda: UsageError("no such thing")])
def test_what_no_group_is_to_blame_for_ends_the_job(tmp_path, kind, error):
    class Leaving(Steps):
        def value(self, key, n):
            raise error()

    with pytest.raises(FiresteelError, match=r"step|no such thing"):
        Leaving().run(kind, OnError("skip"), context(tmp_path), grouped([1, 1]))


def test_a_row_of_another_key_is_the_error_of_its_group_alone(tmp_path):
    class Moving(Steps):
        def reduce(self, one, other):
            return {"k": 5 if one.k == 1 else one.k, "n": one.n + other.n, "s": one.s}

    ctx = context(tmp_path)
    found = Moving().run("reduce", OnError("skip"), ctx, grouped([1, 1, 2, 2, 3, 3, 4]))
    assert found == {2: 5, 3: 9, 4: 6}
    assert "returned a row of the key Row(k=5)" in ctx.reports["step"].samples[0][1]

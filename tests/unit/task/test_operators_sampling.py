"""sample, describe and drop_duplicates: what they compute, and that a rerun computes the same."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.aggregates_kit import combined

from firesteel import ExecutionEnvironment
from firesteel.api.steps.keyed import drop_duplicates
from firesteel.task.operators.relational import Sample
from operators_support import collect, context, rows, unit


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path)


NUMBERS = pa.table({"n": pa.array(range(100_000))})


def drawn(ctx, fraction=0.1, seed=7, replacement=False, batch=10_000):
    operator = pickle.loads(pickle.dumps(Sample("sample", fraction, seed, replacement)))
    return collect(operator.apply(iter(NUMBERS.to_batches(max_chunksize=batch)), ctx), NUMBERS.schema)["n"].to_pylist()


class TestSample:
    def test_draws_the_share_each_row_on_its_own(self, ctx):
        kept = drawn(ctx)
        assert abs(len(kept) - 10_000) < 5 * (100_000 * 0.1 * 0.9) ** 0.5
        assert kept == sorted(set(kept))
        gaps = np.diff(kept)
        assert abs(gaps.mean() - 10) < 0.5
        assert abs((gaps == 1).mean() - 0.1) < 0.02  # neighbours are independent
        assert drawn(ctx, 0.0) == []
        assert drawn(ctx, 1.0) == NUMBERS["n"].to_pylist()

    def test_with_replacement(self, ctx):
        kept = np.array(drawn(ctx, 1.5, replacement=True))
        times = np.bincount(kept, minlength=100_000)
        assert abs(times.mean() - 1.5) < 0.05
        assert abs(times.var() - 1.5) < 0.05  # Poisson
        assert times.max() > 4

    @pytest.mark.parametrize("replacement", [False, True])
    def test_the_same_again_however_batches_are_cut(self, ctx, tmp_path, replacement):
        first = drawn(ctx, replacement=replacement)
        assert first == drawn(context(tmp_path, attempt=3), replacement=replacement, batch=777)
        assert first != drawn(ctx, seed=8, replacement=replacement)
        assert first != drawn(context(tmp_path, subtask=1), replacement=replacement)


class TestDescribe:
    def described(self, table, columns, statistics=()):
        stream = ExecutionEnvironment().from_arrow(table)
        out = stream.select(*columns).summary(*statistics) if statistics else stream.describe(*columns)
        return {row["summary"]: row for row in out.run_locally(None)}

    def test_equals_duckdb(self):
        rng = np.random.default_rng(5)
        raw = pa.table({
            "x": pa.array(1e5 + rng.normal(size=1000), mask=rng.random(1000) < 0.1),
            "i": pa.array(rng.integers(-50, 50, 1000), pa.int16()),
            "d": pa.array([Decimal(int(v)) / 100 for v in rng.integers(0, 1000, 1000)], pa.decimal128(10, 2)),
            "s": [f"w{v}" for v in rng.integers(0, 99, 1000)],
        })  # fmt: skip
        found = self.described(raw, ("x", "i", "d", "s"))
        for name in ("x", "i", "d"):
            sql = f"select count({name}), avg({name}), stddev_samp({name}), min({name}), max({name}) from raw"
            for what, expected in zip(
                ("count", "mean", "stddev", "min", "max"), duckdb.sql(sql).fetchall()[0], strict=True
            ):
                assert float(found[what][name]) == pytest.approx(float(expected), rel=1e-9)
        assert [found[w]["s"] for w in ("count", "mean", "stddev")] == ["1000", None, None]
        assert (found["min"]["s"], found["max"]["s"]) == duckdb.sql("select min(s), max(s) from raw").fetchall()[0]

    def test_few_rows_nulls_and_nan(self):
        none = self.described(pa.table({"x": pa.array([], pa.float64()), "s": pa.array([], pa.string())}), ("x", "s"))
        assert [none[w]["x"] for w in ("count", "mean", "stddev", "min", "max")] == ["0", None, None, None, None]
        assert list(self.described(pa.table({"x": [1]}), ("x",), ("max", "count", "min"))) == ["max", "count", "min"]
        one = self.described(pa.table({"x": pa.array([None, 2.5, None])}), ("x",))
        assert [one[w]["x"] for w in ("count", "mean", "stddev", "min", "max")] == ["1", "2.5", None, "2.5", "2.5"]
        nan = self.described(pa.table({"x": [1.0, float("nan"), 3.0, 2.0]}), ("x",))
        assert [nan[w]["x"] for w in ("count", "mean", "min", "max")] == ["4", "nan", "1.0", "nan"]

    def test_other_types_have_bounds(self):
        table = pa.table({
            "day": [datetime.date(2024, 1, 2), None, datetime.date(2023, 1, 2)], "flag": [True, False, None],
            "dict": pa.array(["b", "a", None]).dictionary_encode(), "v": pa.array(["z", "y", None], pa.string_view()),
            "none": pa.nulls(3), "half": pa.array([1.5, 2.5, None], pa.float32()),
        })  # fmt: skip
        found = self.described(table, ["day", "flag", "dict", "v", "half"])
        assert found["min"] == {
            "summary": "min",
            "day": "2023-01-02",
            "flag": "False",
            "dict": "a",
            "v": "y",
            "half": "1.5",
        }
        assert set(found["count"].values()) == {"count", "2"}


class TestOnePerKey:
    def test_keeps_the_same_row_in_whatever_order_they_come(self, tmp_path):
        ctx = context(tmp_path, memory=1 << 17)
        rng = np.random.default_rng(9)
        table = pa.table({
            "k": pa.array(rng.integers(0, 500, 20_000), mask=rng.random(20_000) < 0.01), "v": rng.integers(0, 10**6, 20_000),
            "l": [[int(v)] for v in rng.integers(0, 3, 20_000)],
        })  # fmt: skip
        node = drop_duplicates(ExecutionEnvironment().from_arrow(table)._pipeline, ["k"]).node
        found = []
        for push in range(2):
            partial = combined(node.inputs[0].combiner, table.to_batches(max_chunksize=1500), ctx, push)
            half = unit(collect(partial, node.inputs[0].schema), ctx, 999)
            found.append(collect(node.work.operator.apply_unit([half], ctx), node.schema))
            table = table.take(pa.array(rng.permutation(20_000)))
        assert rows(found[0]) == rows(found[1])
        assert found[0].num_rows == 501
        assert not rows(found[0]) - rows(table)
        assert len(set(found[0]["k"].to_pylist())) == 501

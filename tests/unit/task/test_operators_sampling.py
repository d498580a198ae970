"""sample, describe and drop_duplicates: what they compute, and that a rerun computes the same."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from firesteel.task.batches import nullable
from firesteel.task.operators.aggregation.describe import (
    Describe,
    DescribePart,
    described,
    output_schema,
    partial_schema,
)
from firesteel.task.operators.aggregation.duplicates import OnePerKey, OnePerKeyCombiner
from firesteel.task.operators.sampling import Sample
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
    def described(self, ctx, table, columns=None, parts=3, statistics=("count", "mean", "stddev", "min", "max")):
        columns = tuple(columns or table.schema.names)
        types = tuple(described(table.schema, name) for name in columns)
        part = DescribePart("part", columns, types, partial_schema(table.schema, columns))
        cuts = [
            table.slice(k * table.num_rows // parts, (k + 1) * table.num_rows // parts - k * table.num_rows // parts)
            for k in range(parts)
        ]
        partial = [b for cut in cuts for b in part.apply(iter(cut.to_batches(max_chunksize=7)), ctx)]
        out = collect(Describe("all", columns, types, statistics).apply(iter(partial), ctx), output_schema(columns))
        return {row["summary"]: row for row in out.to_pylist()}

    def test_equals_duckdb(self, ctx):
        rng = np.random.default_rng(5)
        raw = pa.table({
            "x": pa.array(1e5 + rng.normal(size=1000), mask=rng.random(1000) < 0.1),
            "i": pa.array(rng.integers(-50, 50, 1000), pa.int16()),
            "d": pa.array([Decimal(int(v)) / 100 for v in rng.integers(0, 1000, 1000)], pa.decimal128(10, 2)),
            "s": [f"w{v}" for v in rng.integers(0, 99, 1000)],
        })  # fmt: skip
        found = self.described(ctx, raw)
        for name in ("x", "i", "d"):
            sql = f"select count({name}), avg({name}), stddev_samp({name}), min({name}), max({name}) from raw"
            for what, expected in zip(
                ("count", "mean", "stddev", "min", "max"), duckdb.sql(sql).fetchall()[0], strict=True
            ):
                assert float(found[what][name]) == pytest.approx(float(expected), rel=1e-9)
        assert [found[w]["s"] for w in ("count", "mean", "stddev")] == ["1000", None, None]
        assert (found["min"]["s"], found["max"]["s"]) == duckdb.sql("select min(s), max(s) from raw").fetchall()[0]

    def test_few_rows_nulls_and_nan(self, ctx):
        none = self.described(ctx, pa.table({"x": pa.array([], pa.float64()), "s": pa.array([], pa.string())}))
        assert [none[w]["x"] for w in ("count", "mean", "stddev", "min", "max")] == ["0", None, None, None, None]
        one = self.described(ctx, pa.table({"x": pa.array([None, 2.5, None])}))
        assert [one[w]["x"] for w in ("count", "mean", "stddev", "min", "max")] == ["1", "2.5", None, "2.5", "2.5"]
        nan = self.described(ctx, pa.table({"x": [1.0, float("nan"), 3.0, 2.0]}))
        assert [nan[w]["x"] for w in ("count", "mean", "min", "max")] == ["4", "nan", "1.0", "nan"]

    def test_other_types_have_bounds(self, ctx):
        table = pa.table({
            "day": [datetime.date(2024, 1, 2), None, datetime.date(2023, 1, 2)], "flag": [True, False, None],
            "dict": pa.array(["b", "a", None]).dictionary_encode(), "v": pa.array(["z", "y", None], pa.string_view()),
            "none": pa.nulls(3), "half": pa.array([1.5, 2.5, None], pa.float16()),
        })  # fmt: skip
        found = self.described(ctx, table, ["day", "flag", "dict", "v", "half"], statistics=("max", "count", "min"))
        assert list(found) == ["max", "count", "min"]
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
        found = []
        for _ in range(2):
            state = OnePerKeyCombiner(("k",), table.schema).new(ctx)
            partial = [b for batch in table.to_batches(max_chunksize=1500) for b in state.add(batch)] + list(
                state.finish()
            )
            half = pa.Table.from_batches(partial, nullable(table.schema))
            found.append(
                collect(OnePerKey("d", ("k",), table.schema).apply_unit([unit(half, ctx, 999)], ctx), table.schema)
            )
            table = table.take(pa.array(rng.permutation(20_000)))
        assert rows(found[0]) == rows(found[1])
        assert found[0].num_rows == 501
        assert not rows(found[0]) - rows(table)
        assert len(set(found[0]["k"].to_pylist())) == 501

"""map, flat_map, filter and reduce on rows: what a row is, what may come back, what is said when it does not fit."""

from __future__ import annotations

import datetime
import gc
import pickle
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from firesteel import Row
from firesteel.task.batches import nullable
from firesteel.task.functions.row_functions import FilterRows, FlatMapRows, MapRows
from firesteel.task.functions.rows import row_type, rows_of
from firesteel.task.operators.aggregation.reduce import Reduce, ReduceCombiner
from firesteel.task.runner import UserFunctionError
from operators_support import collect, context, rows, unit

N = pa.schema({"n": pa.int64()})
WORDS = pa.record_batch({"word": ["a", "bb", None], "count": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path, place="words.txt, bytes 0-100")


def mapped(fn, ctx, *batches, schema=N, kind=MapRows, side=()):
    return collect(kind("step", fn, schema, side).apply(iter(batches), ctx), schema)


def numbers(n):
    return pa.record_batch({"n": pa.array(range(n), pa.int64())})


def failing(run, *parts):
    with pytest.raises(UserFunctionError) as caught:
        run()
    for part in ("step", "words.txt, bytes 0-100", *parts):
        assert part in str(caught.value), str(caught.value)
    return caught.value


class TestRow:
    def test_a_kind_of_rows_is_whole_whenever_garbage_is_collected(self):
        before = gc.get_threshold()
        gc.set_threshold(1, 1, 1)
        try:
            kinds = [row_type((f"collected_{k}", "a", "b")) for k in range(50)]
        finally:
            gc.set_threshold(*before)
        assert [kind((1, 2, 3)).b for kind in kinds] == [3] * 50

    def test_is_a_tuple_with_names(self):
        row = list(rows_of(WORDS))[1]
        assert row == ("bb", 2)
        assert (row.word, row["word"], row[0], row.count, row[-1]) == ("bb", "bb", "bb", 2, 2)
        assert row.as_dict() == row.asDict() == {"word": "bb", "count": 2}
        assert repr(row) == "Row(word='bb', count=2)"
        assert [*row] == ["bb", 2]
        word, _ = row
        assert word == "bb"
        assert pickle.loads(pickle.dumps(row)) == row
        assert pickle.loads(pickle.dumps(row)).word == "bb"
        assert Row(word="bb", count=2) == row
        assert Row(word="bb", count=2).count == 2

    def test_says_which_columns_there_are(self):
        row = next(rows_of(WORDS))
        with pytest.raises(AttributeError, match="no column 'wrod'; there are word, count"):
            _ = row.wrod
        with pytest.raises(KeyError, match="no column 'wrod'"):
            _ = row["wrod"]

    def test_any_column_name_will_do(self):
        batch = pa.record_batch({"a b": [1], "class": [2], "__class__": [3], "as_dict": [4], "_fields": [5], "": [6]})
        row = next(rows_of(batch))
        assert [row[name] for name in batch.schema.names] == [1, 2, 3, 4, 5, 6]
        assert isinstance(row, Row)
        assert getattr(row, "class") == 2

    def test_values_are_python_values(self):
        day = datetime.datetime(2024, 2, 3, 4, 5, 6, 7)
        batch = pa.record_batch({
            "f": [1.5], "d": [Decimal("1.20")], "t": pa.array([day], pa.timestamp("us")), "s": [{"x": [1, None]}],
            "b": [b"\x00"], "u": pa.array([2**64 - 1], pa.uint64()), "flag": [True], "none": pa.nulls(1),
            "dict": pa.array(["w"]).dictionary_encode(), "half": pa.array([1.5], pa.float16()),
        })  # fmt: skip
        row = next(rows_of(batch))
        assert row == (1.5, Decimal("1.20"), day, {"x": [1, None]}, b"\x00", 2**64 - 1, True, None, "w", 1.5)
        assert [type(v) for v in row[:2]] == [float, Decimal]

    def test_nan_and_null_stay_apart(self):
        batch = pa.record_batch({"x": pa.array([float("nan"), None, 1.0])})
        first, second, _ = rows_of(batch)
        assert first.x != first.x
        assert second.x is None


class TestMap:
    def test_takes_dicts_tuples_rows_and_single_values(self, ctx):
        two = pa.schema({"word": pa.string(), "n": pa.int64()})
        for fn in (
            lambda r: {"n": r.count, "word": r.word},
            lambda r: (r.word, r["count"]),
            lambda r: [r[0], r[1]],
            lambda r: Row(word=r.word, n=r.count),
        ):
            out = mapped(fn, ctx, WORDS, schema=two)
            assert out.to_pylist() == [{"word": w, "n": n} for w, n in [("a", 1), ("bb", 2), (None, 3)]]
        assert mapped(lambda r: r.count * 2, ctx, WORDS)["n"].to_pylist() == [2, 4, 6]

    def test_keeps_order_over_batches_of_any_size(self, ctx):
        out = mapped(lambda r: r.n + 1, ctx, numbers(25_000), numbers(0), numbers(3))
        assert out["n"].to_pylist() == [*range(1, 25_001), 1, 2, 3]

    def test_no_rows(self, ctx):
        assert mapped(lambda r: 1 / 0, ctx).num_rows == 0

    def test_side_inputs_come_by_name(self, ctx):
        ctx.side_inputs["small"] = pa.table({"x": [10]})
        out = mapped(lambda r, small: r.n + small["x"][0].as_py(), ctx, numbers(2), side=("small",))
        assert out["n"].to_pylist() == [10, 11]

    def test_every_declarable_type_goes_there_and_back(self, ctx):
        table = pa.table({
            "i": pa.array([1, None], pa.int8()), "s": ["x", None], "v": pa.array(["y", None], pa.string_view()),
            "d": pa.array([Decimal("1.23"), None], pa.decimal128(5, 2)), "l": [[1, None], None],
            "st": [{"a": 1, "b": "z"}, None], "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "t": pa.array([1, None], pa.timestamp("us", "UTC")), "di": pa.array(["w", None]).dictionary_encode(),
            "day": pa.array([1, None], pa.date32()), "span": pa.array([1, None], pa.duration("us")),
        })  # fmt: skip
        out = mapped(lambda r: r, ctx, *table.to_batches(), schema=table.schema)
        assert rows(out) == rows(table)

    def test_wrong_values_are_told_with_row_value_and_column(self, ctx):
        two = pa.schema({"word": pa.string(), "n": pa.int64()})
        failing(
            lambda: mapped(lambda r: (r.word, "x" if r.count == 2 else r.count), ctx, WORDS, schema=two),
            "'x' (a str)", "column 'n'", "not of type int64", "Row(word='bb', n='x')",
        )  # fmt: skip
        failing(
            lambda: mapped(lambda r: (1, 1), ctx, WORDS, schema=two), "1 (a int)", "column 'word'", "not of type string"
        )
        failing(lambda: mapped(lambda r: 1.5, ctx, WORDS), "1.5 (a float)", "column 'n'")
        for nested, given in [
            (pa.list_(pa.int32()), [1, 2.5]),
            (pa.struct({"a": pa.int64()}), {"a": 0.5}),
            (pa.struct({"a": pa.int64()}), {"a": 1, "b": 2}),
            (pa.map_(pa.string(), pa.date32()), {"k": 1.5}),
        ]:
            schema = pa.schema({"x": nested})
            failing(
                lambda given=given, schema=schema: mapped(lambda r: (given,), ctx, WORDS, schema=schema), "column 'x'"
            )
        assert mapped(lambda r: 2.0, ctx, WORDS)["n"].to_pylist() == [2, 2, 2]
        failing(lambda: mapped(lambda r: 2**70, ctx, WORDS), "column 'n'", "int64")
        failing(lambda: mapped(lambda r: "\ud800", ctx, WORDS, schema=pa.schema({"s": pa.string()})), "column 's'")
        failing(lambda: mapped(lambda r: {"m": 1}, ctx, WORDS), "missing: n", "unexpected: m")
        failing(lambda: mapped(lambda r: (1, 2), ctx, WORDS), "has 2 values where 1 are declared (n)", "(value,)")
        failing(lambda: mapped(lambda r: None, ctx, WORDS), "nothing (None) instead of a row")
        failing(lambda: mapped(lambda r: 3, ctx, WORDS, schema=two), "returned 3 instead of a row", "word, n")
        whole = pa.schema([pa.field("n", pa.int64(), nullable=False)])
        failing(
            lambda: mapped(lambda r: (None,), ctx, WORDS, schema=whole), "column 'n', which is not null", "Row(n=None)"
        )

    def test_what_the_function_raises_is_told_with_the_row(self, ctx):
        error = failing(
            lambda: mapped(lambda r: {"n": 1 // (r.count - 2)}, ctx, WORDS),
            "ZeroDivisionError",
            "Row(word='bb', count=2)",
        )
        assert "test_operators_rows.py" in error.trace
        assert "row_functions.py" not in error.trace
        long = pa.record_batch({"s": ["x" * 5000]})
        assert len(str(failing(lambda: mapped(lambda r: r.nope, ctx, long), "no column 'nope'"))) < 600

    def test_is_picklable(self, ctx):
        operator = pickle.loads(pickle.dumps(MapRows("step", len, N)))
        assert collect(operator.apply(iter([WORDS]), ctx), N)["n"].to_pylist() == [2, 2, 2]


class TestFlatMap:
    def test_takes_iterables_and_generators(self, ctx):
        def twice(row):
            for _ in range(row.count):
                yield {"n": row.count}

        for fn in (twice, lambda r: [r.count] * r.count, lambda r: ((r.count,) for _ in range(r.count))):
            out = mapped(fn, ctx, WORDS, kind=FlatMapRows)
            assert out["n"].to_pylist() == [1, 2, 2, 3, 3, 3]

    def test_words_of_lines(self, ctx):
        lines = pa.record_batch({"line": ["a b", "", "c"]})
        schema = pa.schema({"word": pa.string()})
        out = mapped(lambda r: r.line.split(), ctx, lines, schema=schema, kind=FlatMapRows)
        assert out["word"].to_pylist() == ["a", "b", "c"]

    def test_a_row_that_gives_very_many_is_read_in_parts(self, ctx):
        alive = []

        def many(row):
            for k in range(30_000):
                alive.append(k)
                yield k

        operator = FlatMapRows("step", many, N)
        batches = operator.apply(iter([numbers(2)]), ctx)
        assert next(batches).num_rows == 10_000
        assert len(alive) == 10_000
        assert sum(b.num_rows for b in batches) == 50_000

    def test_what_is_no_list_of_rows_is_refused(self, ctx):
        failing(lambda: mapped(lambda r: None, ctx, WORDS, kind=FlatMapRows), "nothing (None) instead of the rows")
        failing(lambda: mapped(lambda r: "ab", ctx, WORDS, kind=FlatMapRows), "'ab' (a str) instead of the rows")
        failing(lambda: mapped(lambda r: {"n": 1}, ctx, WORDS, kind=FlatMapRows), "(a dict) instead of the rows")
        failing(lambda: mapped(lambda r: r, ctx, WORDS, kind=FlatMapRows), "(a Row) instead of the rows")

        def late(row):
            yield 1
            raise OSError("gone")

        failing(lambda: mapped(late, ctx, WORDS, kind=FlatMapRows), "OSError: gone", "Row(word='a', count=1)")


class TestFilter:
    def test_keeps_what_is_true(self, ctx):
        def kept(fn):
            return collect(FilterRows("step", fn, WORDS.schema).apply(iter([WORDS]), ctx), WORDS.schema)

        assert kept(lambda r: r.word is not None and r.count > 1)["word"].to_pylist() == ["bb"]
        assert kept(lambda r: None).num_rows == 0
        assert kept(lambda r: np.bool_(r.count == 3))["word"].to_pylist() == [None]
        failing(lambda: kept(lambda r: len(r.word) > 1), "TypeError", "Row(word=None, count=3)")


class TestReduce:
    TABLE = pa.table({"k": ["a", "b", None, "a", None, "c", "a"], "n": pa.array([1, 2, 3, 4, None, 6, 7], pa.int64())})

    @staticmethod
    def add(left, right):
        return left.k, None if left.n is None or right.n is None else left.n + right.n

    def reduced(self, fn, ctx, table, keys=("k",), **memory):
        """Through the combiner and behind it."""
        state = ReduceCombiner("step", fn, keys, table.schema).new(ctx)
        partial = [b for batch in table.to_batches(max_chunksize=3) for b in state.add(batch)] + list(state.finish())
        half = pa.Table.from_batches(partial, nullable(table.schema))
        return collect(Reduce("step", fn, keys, table.schema).apply_unit([unit(half, ctx, 2)], ctx), table.schema)

    def test_folds_each_key_and_all_rows(self, ctx):
        out = self.reduced(self.add, ctx, self.TABLE)
        assert {r["k"]: r["n"] for r in out.to_pylist()} == {"a": 12, "b": 2, None: None, "c": 6}
        most = self.reduced(lambda a, b: a if (a.n or 0) >= (b.n or 0) else b, ctx, self.TABLE, ())
        assert most.to_pylist() == [{"k": "a", "n": 7}]
        assert self.reduced(self.add, ctx, self.TABLE.slice(0, 0), ()).num_rows == 0

    def test_many_keys_in_little_memory_equal_duckdb(self, tmp_path):
        ctx = context(tmp_path, memory=1 << 16)
        rng = np.random.default_rng(3)
        raw = pa.table({"k": rng.integers(0, 4000, 30_000), "n": rng.integers(0, 100, 30_000)})
        schema = raw.schema
        operator = Reduce("step", lambda a, b: {"k": a.k, "n": max(a.n, b.n)}, ("k",), schema)
        out = collect(operator.apply_unit([unit(raw, ctx, 1000)], ctx), schema)
        expected = duckdb.sql("select k, max(n) as n from raw group by k").to_arrow_table()
        assert rows(out) == rows(expected.cast(schema))

    def test_another_key_is_refused(self, ctx):
        failing(lambda: self.reduced(lambda a, b: ("z", 1), ctx, self.TABLE), "key Row(k='z')", "two of Row(k='a')")

    def test_not_null_columns_and_wrong_values(self, ctx):
        schema = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
        table = pa.Table.from_arrays([pa.array(["a", "a"]), pa.array([1, 2])], schema=schema)
        assert self.reduced(self.add, ctx, table).to_pylist() == [{"k": "a", "n": 3}]
        failing(lambda: self.reduced(lambda a, b: (a.k, None), ctx, table), "column 'n', which is not null")
        failing(lambda: self.reduced(lambda a, b: (a.k, "x"), ctx, table), "'x' (a str)", "not of type int64")
        failing(lambda: self.reduced(lambda a, b: 1 / 0, ctx, table), "ZeroDivisionError")

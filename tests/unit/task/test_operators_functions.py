"""map_in_arrow, map_in_pandas, apply_in_*: what goes in, what may come out, what is said when it does not fit."""

from __future__ import annotations

import datetime
import importlib.util
import os
import pickle
import re
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from firesteel.errors import PartitionException, UsageError
from firesteel.package_files import contents
from firesteel.spark.session.shipping import build_zip
from firesteel.task.batches import DEFAULT_SIZE, BatchSize
from firesteel.task.functions import user_code
from firesteel.task.functions.batch_functions import MapInArrow, MapInPandas, input_batches
from firesteel.task.functions.group_functions import ApplyInArrow, ApplyInPandas, CoGroupApplyInArrow
from firesteel.task.functions.pandas_conversion import to_dataframe
from firesteel.task.runner import UserFunctionError
from operators_support import collect, context, rows, unit

N = pa.schema({"n": pa.int64()})


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path, place="words.txt, bytes 0-100")


def arrow(fn, ctx, *batches, schema=N, side=()):
    return collect(MapInArrow("step", fn, schema, side).apply(iter(batches), ctx), schema)


def pandas(fn, ctx, *batches, schema=N, side=()):
    return collect(MapInPandas("step", fn, schema, side).apply(iter(batches), ctx), schema)


def numbers(n, start=0):
    return pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})


def failing(run, *parts):
    with pytest.raises(UserFunctionError) as caught:
        run()
    for part in ("step", "words.txt, bytes 0-100", *parts):
        assert part in str(caught.value), str(caught.value)
    return caught.value


# --- what goes in -------------------------------------------------------------------------------------------------


def test_batches_have_at_most_ten_thousand_rows_and_keep_their_order(ctx):
    sizes = []

    def fn(batches):
        for batch in batches:
            sizes.append(batch.num_rows)
            yield batch

    result = arrow(fn, ctx, numbers(25_000), numbers(3, 25_000))
    assert sizes == [10_000, 10_000, 5_000, 3]
    assert result["n"].to_pylist() == list(range(25_003))


@pytest.mark.parametrize("run", [arrow, pandas])
def test_the_function_is_called_once_even_without_rows(ctx, run):
    def fn(batches):
        count = sum(1 for _ in batches)
        yield pa.record_batch({"n": [count]}) if run is arrow else pd.DataFrame({"n": [count]})

    assert run(fn, ctx)["n"].to_pylist() == [0]
    assert run(fn, ctx, numbers(0), numbers(2))["n"].to_pylist() == [1]


def test_a_function_may_leave_early_and_return_any_iterable(ctx):
    assert arrow(lambda batches: [next(batches)], ctx, numbers(10_000), numbers(2)).num_rows == 10_000
    assert arrow(lambda batches: (b for b in batches), ctx, numbers(2), numbers(2)).num_rows == 4


def test_the_place_of_a_batch_is_where_its_rows_are_from(ctx):
    def source():
        for place, batch in (("a", numbers(3)), ("b", numbers(4)), ("c", numbers(2))):
            ctx.place = place
            yield batch
            assert ctx.place == place
        ctx.place = ""

    found = [(batch.num_rows, ctx.place) for batch in input_batches(source(), BatchSize(rows=2), ctx)]
    assert found == [(2, "a"), (2, "a to b"), (2, "b"), (2, "b to c"), (1, "c")]
    assert [(b.num_rows, ctx.place) for b in input_batches(source(), DEFAULT_SIZE, ctx)] == [(9, "a to c")]
    assert ctx.place == ""


def test_side_inputs_come_as_a_table_or_a_dataframe(ctx):
    ctx.side_inputs["small"] = pa.table({"x": [1, 2]})
    assert arrow(lambda _, small: [pa.record_batch({"n": [small.num_rows]})], ctx, side=("small",))[
        "n"
    ].to_pylist() == [2]
    assert pandas(lambda _, small: [pd.DataFrame({"n": [small["x"].sum()]})], ctx, side=("small",))[
        "n"
    ].to_pylist() == [3]


def test_pandas_values_are_pysparks():
    batch = pa.record_batch(
        {
            "i": pa.array([1, None], pa.int32()),
            "day": [datetime.date(2020, 1, 1), None],
            "dec": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "stamp": pa.array([0, None], pa.timestamp("us", "Europe/Berlin")),
            "list": [[1, 2], None],
            "struct": [{"x": 1, "at": None}, None],
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "cat": pa.array(["a", None]).dictionary_encode(),
            "flag": [True, None],
            "raw": [b"x", None],
        }
    )
    frame = to_dataframe(batch)
    assert str(frame["i"].dtype) == "Int32"
    assert frame["day"][0] == datetime.date(2020, 1, 1) and frame["dec"][0] == Decimal("1.25")
    assert frame["stamp"][0] == pd.Timestamp("1970-01-01 01:00:00") and str(frame["stamp"].dtype) == "datetime64[ns]"
    assert (
        isinstance(frame["list"][0], np.ndarray)
        and frame["struct"][0] == {"x": 1, "at": None}
        and frame["map"][0] == {"k": 1}
    )
    assert frame["cat"].tolist() == ["a", None] and frame["flag"].tolist() == [True, None] and frame["raw"][0] == b"x"
    plain = to_dataframe(batch.select(["i", "flag", "day"]))
    assert plain["i"].dtype == np.float64, "among plain columns integers with nulls are floats"


ROUND_TRIP = {
    "i8": (pa.int8(), [1, None]),
    "u64": (pa.uint64(), [2**63 - 1, 0]),
    "f32": (pa.float32(), [1.5, None]),
    "s": (pa.string(), ["a", None]),
    "ls": (pa.large_string(), ["a", None]),
    "sv": (pa.string_view(), ["a", None]),
    "b": (pa.binary(), [b"a", None]),
    "bool": (pa.bool_(), [True, None]),
    "d32": (pa.date32(), [datetime.date(2020, 1, 1), None]),
    "t64": (pa.time64("us"), [datetime.time(1, 2, 3), None]),
    "ts": (pa.timestamp("us"), [datetime.datetime(2020, 1, 1, 12), None]),
    "tz": (pa.timestamp("us", "America/New_York"), [datetime.datetime(2020, 1, 1, 12), None]),
    "dur": (pa.duration("us"), [datetime.timedelta(1), None]),
    "dec": (pa.decimal128(10, 2), [Decimal("1.25"), None]),
    "dict": (pa.dictionary(pa.int32(), pa.string()), ["a", None]),
    "list": (pa.list_(pa.int64()), [[1, None], None]),
    "tzlist": (pa.list_(pa.timestamp("us", "Europe/Berlin")), [[datetime.datetime(2020, 7, 1, 12)], None]),
    "struct": (pa.struct({"x": pa.int64(), "t": pa.timestamp("us", "Europe/Berlin")}), [{"x": 1, "t": datetime.datetime(2020, 1, 1)}, None]),
    "map": (pa.map_(pa.string(), pa.list_(pa.int64())), [[("k", [1])], None]),
    "nested": (pa.list_(pa.struct({"x": pa.string()})), [[{"x": "q"}, {"x": None}], None]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROUND_TRIP)
def test_every_type_survives_pandas(ctx, kind):
    type_, values = ROUND_TRIP[kind]
    batch = pa.record_batch({"x": pa.array(values, type_)})
    result = pandas(lambda frames: frames, ctx, batch, schema=batch.schema)
    assert result.schema == batch.schema
    assert result["x"].to_pylist() == batch["x"].to_pylist()


# --- what may come out --------------------------------------------------------------------------------------------


def one(column, ctx, type_=None):
    return arrow(lambda _: [pa.record_batch({"n": column})], ctx, schema=pa.schema({"n": type_ or pa.int64()}))


def test_the_same_values_in_another_layout_are_accepted(ctx):
    assert one(pa.array(["a"], pa.large_string()), ctx, pa.string())["n"].to_pylist() == ["a"]
    assert one(pa.array(["a"]).dictionary_encode(), ctx, pa.string())["n"].to_pylist() == ["a"]
    assert one(pa.nulls(2), ctx)["n"].to_pylist() == [None, None]
    assert one(pa.array([5], pa.timestamp("us", "Europe/Berlin")), ctx, pa.timestamp("us", "UTC"))["n"].cast(
        pa.int64()
    ).to_pylist() == [5]


def by_position(batch, ctx, schema=N):
    """As PySpark's mapInArrow."""
    return collect(MapInArrow("step", lambda _: [batch], schema, by_position=True).apply(iter([]), ctx), schema)


def test_arrow_columns_are_matched_by_position_as_in_pyspark(ctx):
    assert by_position(pa.record_batch({"other": [1]}), ctx)["n"].to_pylist() == [1]
    assert by_position(pa.record_batch({"n": [1], "extra": ["x"]}), ctx)["n"].to_pylist() == [1]
    renamed = pa.record_batch({"n": pa.array([{"b": 1}, None])})
    schema = pa.schema({"n": pa.struct({"a": pa.int64()})})
    assert by_position(renamed, ctx, schema)["n"].to_pylist() == [{"a": 1}, None]
    inside = pa.record_batch({"n": pa.array([[{"b": 1}], None, []])})
    schema = pa.schema({"n": pa.list_(pa.struct({"a": pa.int64()}))})
    assert by_position(inside, ctx, schema)["n"].to_pylist() == [[{"a": 1}], None, []]


def test_pandas_columns_are_matched_by_name_as_in_pyspark(ctx):
    schema = pa.schema({"a": pa.string(), "b": pa.int64()})
    assert pandas(lambda _: [pd.DataFrame({"b": [1], "a": ["x"]})], ctx, schema=schema).to_pylist() == [
        {"a": "x", "b": 1}
    ]
    assert pandas(lambda _: [pd.DataFrame([["x", 1]])], ctx, schema=schema).to_pylist() == [{"a": "x", "b": 1}]
    assert pandas(lambda _: [pd.DataFrame()], ctx, schema=schema).num_rows == 0
    assert pandas(lambda _: [pd.DataFrame({"n": [1.0, 2.0]})], ctx)["n"].to_pylist() == [1, 2]
    assert pandas(lambda _: [pd.DataFrame({"n": ["1"]})], ctx)["n"].to_pylist() == [1]
    strings = pa.schema({"n": pa.string()})
    assert pandas(lambda _: [pd.DataFrame({"n": pd.Categorical(["x", None])})], ctx, schema=strings)[
        "n"
    ].to_pylist() == ["x", None]
    floats = pa.schema({"n": pa.float64()})
    assert pandas(lambda _: [pd.DataFrame({"n": [1.0, float("nan")]})], ctx, schema=floats)["n"].to_pylist() == [
        1.0,
        None,
    ]


# --- what is said when it does not fit ----------------------------------------------------------------------------


def test_wrong_types_are_named(ctx):
    error = failing(lambda: one(pa.array(["x"]), ctx), "column 'n' (expected int64, got string)")
    assert error.trace == ""
    failing(lambda: one(pa.array([1], pa.int32()), ctx), "expected int64, got int32")
    failing(lambda: one(pa.array([1.5]), ctx), "expected int64, got double")


def test_wrong_columns_are_named(ctx):
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    failing(
        lambda: arrow(lambda _: [pa.record_batch({"a": [1]})], ctx, schema=schema),
        "columns a where a, b are declared (missing: b)",
    )
    failing(
        lambda: arrow(lambda _: [pa.record_batch({"b": [1], "c": [1], "a": [1]})], ctx, schema=schema),
        "columns b, c, a where a, b are declared (unexpected: c)",
    )
    failing(
        lambda: pandas(lambda _: [pd.DataFrame({"a": [1], "c": [1]})], ctx, schema=schema),
        "missing: b",
        "unexpected: c",
    )
    failing(lambda: pandas(lambda _: [pd.DataFrame({"n": [1.5]})], ctx), "column 'n' as float64", "int64")
    failing(
        lambda: pandas(lambda _: [pd.DataFrame({"n": [1]})], ctx, schema=pa.schema({"n": pa.string()})),
        "column 'n' as int64",
        "string",
    )


SWAPPED = pa.record_batch({"b": [1], "a": [2], "s": [{"y": 3, "x": 4}], "l": [[{"y": 5, "x": 6}]]})
TURNED = pa.schema(
    {
        "a": pa.int64(),
        "b": pa.int64(),
        "s": pa.struct({"x": pa.int64(), "y": pa.int64()}),
        "l": pa.list_(pa.struct({"x": pa.int64(), "y": pa.int64()})),
    }
)


def test_columns_and_fields_are_matched_by_name(ctx):
    found = arrow(lambda _: [SWAPPED], ctx, schema=TURNED)
    assert found.to_pylist() == [{"a": 2, "b": 1, "s": {"x": 4, "y": 3}, "l": [{"x": 6, "y": 5}]}]
    renamed = pa.record_batch({"s": [{"y": 3, "z": 4}]})
    failing(
        lambda: arrow(lambda _: [renamed], ctx, schema=pa.schema([TURNED.field("s")])), "column 's' (expected struct<x"
    )


def test_columns_are_matched_by_position_where_that_is_asked_for(ctx):
    found = by_position(SWAPPED.append_column("more", pa.array([0])), ctx, TURNED)
    assert found.to_pylist() == [{"a": 1, "b": 2, "s": {"x": 3, "y": 4}, "l": [{"x": 5, "y": 6}]}]
    failing(lambda: by_position(SWAPPED.select(["b"]), ctx, TURNED), "1 columns (b) where 4 are declared (a, b, s, l)")


def test_nulls_where_none_are_declared(ctx):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    failing(
        lambda: arrow(lambda _: [pa.record_batch({"n": pa.array([None], pa.int64())})], ctx, schema=schema),
        "nulls in column 'n'",
    )
    failing(lambda: pandas(lambda _: [pd.DataFrame({"n": [None]})], ctx, schema=schema), "nulls in column 'n'")


def test_not_an_iterator(ctx):
    failing(lambda: arrow(lambda _: None, ctx), "returned nothing (None) instead of an iterator")
    failing(lambda: arrow(next, ctx, numbers(1)), "returned one RecordBatch", "'yield'")
    failing(lambda: pandas(next, ctx, numbers(1)), "returned one DataFrame")
    failing(lambda: arrow(lambda _: [pa.table({"n": [1]})], ctx), "yielded a Table", "to_batches()")
    failing(lambda: pandas(lambda _: [3], ctx), "a int instead of a pandas.DataFrame")


def test_an_exception_shows_only_the_users_frames(ctx):
    def helper(batch):
        raise KeyError("no such word")

    def fn(batches):
        for batch in batches:
            helper(batch)
            yield batch

    error = failing(lambda: arrow(fn, ctx, numbers(1)), "KeyError: 'no such word'")
    frames = re.findall(r'File "(.*)", line \d+, in (\w+)', error.trace)
    assert frames == [(__file__, "fn"), (__file__, "helper")]
    again = pickle.loads(pickle.dumps(error))
    assert (again.trace, again.place, str(again)) == (error.trace, error.place, str(error))


def test_frames_are_the_users_whatever_their_folders_are_called(ctx, tmp_path):
    folder = tmp_path / "firesteel" / "spark"
    folder.mkdir(parents=True)
    (folder / "job.py").write_text("def fn(batches):\n    raise KeyError('no such word')\n    yield\n")
    spec = importlib.util.spec_from_file_location("job", folder / "job.py")
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    error = failing(lambda: arrow(job.fn, ctx, numbers(1)), "KeyError: 'no such word'")
    assert f'File "{folder}/job.py", line 2, in fn' in error.trace
    assert "user_code.py" not in error.trace


def test_an_error_of_the_input_is_not_the_functions_even_if_it_is_swallowed(ctx):
    def broken():
        yield numbers(1)
        raise PartitionException("gone", dataset=3)

    def swallowing(batches):
        try:
            yield from batches
        except Exception:
            return

    for fn in (lambda batches: batches, swallowing):
        with pytest.raises(PartitionException) as caught:
            collect(MapInArrow("step", fn, N).apply(broken(), ctx), N)
        assert caught.value.dataset == 3


# --- groups ---------------------------------------------------------------------------------------------------------

GROUPED = pa.table({"k": [1, 2, 1, None], "s": ["a", "b", "a", None], "v": [1.0, 2.0, 3.0, 4.0]})
OUT = pa.schema({"s": pa.string(), "total": pa.float64()})


def test_apply_in_arrow_passes_scalars_as_key(ctx):
    keys = []

    def fn(key, table):
        keys.append(key)
        return pa.table({"total": [sum(table["v"].to_pylist())], "s": [key[1].as_py()]})

    result = collect(ApplyInArrow("step", fn, ("k", "s"), OUT).apply_unit([unit(GROUPED, ctx)], ctx), OUT)
    assert rows(result) == rows(pa.table({"s": ["a", "b", None], "total": [4.0, 2.0, 4.0]}))
    assert all(isinstance(scalar, pa.Scalar) for key in keys for scalar in key)


def test_apply_in_pandas_passes_values_as_key(ctx):
    def fn(key, frame):
        return pd.DataFrame({"s": [repr(key[1])], "total": [frame["v"].sum()]})

    result = collect(ApplyInPandas("step", fn, ("k", "s"), OUT).apply_unit([unit(GROUPED, ctx)], ctx), OUT)
    assert sorted(result["s"].to_pylist()) == ["'a'", "'b'", "None"]
    plain = ApplyInPandas("step", lambda frame: frame[["s", "v"]].rename(columns={"v": "total"}), ("k",), OUT)
    assert collect(plain.apply_unit([unit(GROUPED, ctx)], ctx), OUT).num_rows == 4


def test_groups_in_pandas_are_the_functions_own(ctx):
    """Many groups are converted together; each is still a frame of its own, numbered from 0, with its own types."""
    n = 1000
    table = pa.table({"k": [i // 4 for i in range(n)], "v": [None if i == 5 else i for i in range(n)], "s": ["x"] * n})
    seen = {}

    def fn(frame):
        seen[frame["k"][0]] = (list(frame.index), str(frame["v"].dtype))
        frame["s"] = "changed"
        frame.loc[0, "v"] = -1
        return frame[["s", "v"]].rename(columns={"v": "total"})

    result = collect(ApplyInPandas("step", fn, ("k",), OUT).apply_unit([unit(table, ctx)], ctx), OUT)
    assert set(result["s"].to_pylist()) == {"changed"} and result["total"].to_pylist().count(-1.0) == n // 4
    assert all(index == [0, 1, 2, 3] for index, _ in seen.values())
    assert {dtype for k, (_, dtype) in seen.items() if k != 1} == {"int64"} and seen[1][1] == "float64"
    whole = table.set_column(1, "v", table["s"])
    names = pa.schema({"s": pa.string()})
    copy = ApplyInPandas("step", lambda frame: frame.assign(s=frame["v"])[["s"]], ("k",), names)
    assert collect(copy.apply_unit([unit(whole, ctx)], ctx), names)["s"].to_pylist() == ["x"] * n


def test_apply_checks_what_comes_back(ctx):
    def run(result):
        return lambda: collect(
            ApplyInArrow("step", lambda _: result, ("k",), OUT).apply_unit([unit(GROUPED, ctx)], ctx), OUT
        )

    failing(run(pa.table({"s": ["x"]})), "missing: total")
    failing(run(pa.table({"s": ["x"], "total": [1.0], "more": [1]})), "unexpected: more")
    failing(run(pa.table({"s": ["x"], "total": [1]})), "column 'total' (expected double, got int64)")
    failing(run(None), "nothing (None) instead of a pyarrow.Table")
    assert run(pa.table({}))().num_rows == 0


def test_arguments_are_counted_before_anything_runs(ctx):
    with pytest.raises(UsageError, match=r"takes 0 arguments.*\(table\) or \(key, table\)"):
        list(ApplyInArrow("step", lambda: None, ("k",), OUT).apply_unit([unit(GROUPED, ctx)], ctx))
    ctx.side_inputs["small"] = pa.table({"x": [7.0]})
    fn = lambda table, small: pa.table({"s": ["x"], "total": small["x"]})  # noqa: E731
    result = collect(ApplyInArrow("step", fn, ("k",), OUT, ("small",)).apply_unit([unit(GROUPED, ctx)], ctx), OUT)
    assert result["total"].to_pylist() == [7.0] * 3


def test_a_one_sided_cogroup_gets_an_empty_table_of_the_right_schema(ctx):
    other = pa.table({"k2": pa.array([2, 9], pa.int8()), "w": ["x", "y"]})
    seen = []

    def fn(left, right):
        assert left.schema == GROUPED.schema and right.schema == other.schema
        seen.append((left["k"].to_pylist(), right["k2"].to_pylist()))
        return pa.table({"n": [left.num_rows]})

    operator = CoGroupApplyInArrow("step", fn, ("k",), ("k2",), N)
    collect(operator.apply_unit([unit(GROUPED, ctx), unit(other, ctx)], ctx), N)
    assert sorted(seen, key=str) == sorted([([1, 1], []), ([2], [2]), ([None], []), ([], [9])], key=str)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Unspeakable(), "Unspeakable: <its message cannot be shown>"),
    ],
)
def test_whatever_a_function_raises_is_told_with_its_own_frames_only(ctx, raised, words):
    def breaks(batches):
        yield from batches
        raise raised

    def breaks_a_table(_table):
        raise raised

    keyed = ApplyInArrow("step", breaks_a_table, ("n",), N)
    for run, name in (
        (lambda: arrow(breaks, ctx, numbers(1)), "breaks"),
        (lambda: list(keyed.apply_unit([unit(pa.Table.from_batches([numbers(1)]), ctx)], ctx)), "breaks_a_table"),
    ):
        error = failing(run, f"raised {words}")
        assert f"in {name}" in error.trace
        assert "user_code.py" not in error.trace


def test_a_very_long_message_is_cut(ctx):
    def breaks(batches):
        raise ValueError("x" * 5000)

    error = failing(lambda: arrow(breaks, ctx, numbers(1)), "raised ValueError: xxx", "(3,000 more characters)")
    assert len(str(error)) < 2200
    assert len(error.trace) < 2600


def test_a_function_may_be_left_before_its_end(ctx):
    closed = []

    def fn(batches):
        try:
            yield from batches
        finally:
            closed.append(True)

    result = MapInArrow("step", fn, N).apply(iter([numbers(1), numbers(1)]), ctx)
    next(result)
    result.close()
    assert closed == [True]


def test_frames_of_a_package_that_executors_got_as_a_zip_are_not_the_users(tmp_path):
    shipped = build_zip(tmp_path, "firesteel", contents()).name
    code = """
from firesteel.task.functions.user_code import is_foreign
from firesteel.task.executor.slots import memory_watch
print(is_foreign.__code__.co_filename, is_foreign(memory_watch.MemoryWatch.check.__code__.co_filename))
print(is_foreign("/home/me/firesteel/spark/steps.py"))
"""
    variables = {**os.environ, "PYTHONPATH": f"./{shipped}", "PYTHONSAFEPATH": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    lines = ran.stdout.split()
    assert shipped in lines[0] and lines[1:] == ["True", "False"], ran.stderr


def test_the_time_of_a_function_leaves_out_its_waits_for_rows_and_for_whoever_takes_its_own(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(user_code, "perf_counter", lambda: now[0])

    def late():
        for number in range(2):
            now[0] += 10
            yield pa.record_batch({"n": [number]})

    def working(batches):
        now[0] += 1
        for batch in batches:
            now[0] += 2
            yield batch
        now[0] += 3

    timed = context(tmp_path, ran={})
    for _ in MapInArrow("work", working, N, size=BatchSize(1)).apply(late(), timed):
        now[0] += 100
    grouped = pa.table({"k": [1, 1], "n": [3, 4]})

    def first(table):
        now[0] += 7
        return table.slice(0, 1)

    collect(
        ApplyInArrow("group", first, ("k",), grouped.schema).apply_unit([unit(grouped, timed)], timed), grouped.schema
    )
    assert timed.ran == {"work": 8.0, "group": 7.0}

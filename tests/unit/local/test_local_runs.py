"""Streams computed in the calling process: over given rows, over the first rows of their sources."""

from __future__ import annotations

import bdb
import os
import subprocess
import sys
import time
import traceback
from datetime import date, datetime

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dying_kit import PATHS
from firesteel import ExecutionEnvironment, col
from firesteel import functions as F
from firesteel.errors import UsageError


@pytest.fixture
def env():
    return ExecutionEnvironment()


@pytest.fixture
def lines(env, tmp_path):
    """A source outside: 3,000 lines in two files."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("".join(f"{name} {n}\n" for n in range(1500)))
    return env.read_text(tmp_path).name("lines")


def words(lines):
    return lines.flat_map(lambda row: row.value.split(), "word string")


def counts(lines):
    return words(lines).key_by("word").aggregate(n=("word", "count"))


def by_word(rows):
    return sorted(rows, key=lambda row: row["word"])


# --- given rows ---


def test_a_stream_is_computed_over_given_rows(env, lines):
    languages = env.from_arrow(pa.table({"word": ["a", "b"], "language": ["en", "de"]})).name("languages")
    joined = counts(lines).key_by("word").join(languages.key_by("word"))
    found = joined.test_with(
        lines=[{"value": "a b a"}, {"value": None}, {"value": "c"}][::2], languages=[("a", "fr"), ("c", "it")]
    )
    assert by_word(found) == [{"word": "a", "n": 2, "language": "fr"}, {"word": "c", "n": 1, "language": "it"}]
    assert joined.test_with(lines=[{"value": "b"}]) == [
        {"word": "b", "n": 1, "language": "de"}
    ]  # rows of the script stay
    assert joined.test_with([{"value": "b"}]) == [{"word": "b", "n": 1, "language": "de"}]  # the only one from outside
    assert joined.test_with(lines=[]) == []
    assert joined.test_with(["a"], languages=[("a", "fr")]) == [{"word": "a", "n": 1, "language": "fr"}]  # one is left
    with pytest.raises(UsageError, match="All sources of the pipeline are named"):
        joined.test_with(["a"], lines=["a"], languages=[("a", "fr")])


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"value": ["a b", "b"]}),
        pa.table({"value": ["a b", "b"]}).to_batches()[0],
        pd.DataFrame({"value": ["a b", "b"]}),
        [{"value": "a b"}, {"value": "b"}],
        [("a b",), ("b",)],
        ["a b", "b"],
    ],
    ids=["table", "batch", "pandas", "dicts", "tuples", "values"],
)
def test_rows_may_be_given_in_any_form(lines, rows):
    for given in ({"lines": rows}, rows):
        assert by_word(counts(lines).test_with(given)) == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]


def test_a_uid_or_a_step_in_the_middle_may_be_named(env, lines):
    lines.uid("lines-of-logs")
    assert counts(lines).test_with({"lines-of-logs": [{"value": "a"}]}) == [{"word": "a", "n": 1}]
    split = words(lines).name("words")
    total = split.aggregate(n=("word", "count"))
    assert total.test_with(words=[{"word": "a"}, {"word": "b"}]) == [{"n": 2}]
    with pytest.raises(UsageError, match=r"rows for step 'lines: read_text.*are not read: those for a step behind"):
        total.test_with(words=[], lines=[])


def test_days_and_clocks_need_no_zone(env):
    days = pa.table(
        {"d": [date(2024, 1, 31)], "e": [date(2024, 2, 29)], "t": [datetime(2024, 2, 29, 13, 5)], "s": ["2024-02-29"]}
    )
    step = env.from_arrow(days).select(
        a=F.date_format("d", "dd.MM.yyyy"),
        b=F.date_format("t", "HH:mm"),
        c=F.to_date("s", "yyyy-MM-dd"),
        d=F.months_between("e", "d"),
    )
    assert step.test_with() == [{"a": "31.01.2024", "b": "13:05", "c": date(2024, 2, 29), "d": 1.0}]


def test_maps_are_dicts_in_functions_and_in_rows(env):
    kind = pa.map_(pa.string(), pa.int32())
    step = env.from_arrow(pa.table({"m": pa.array([[("a", 1)], None], kind)})).map(
        lambda row: {"m": row.m and {**row.m, "b": 2}}, pa.schema([("m", kind)])
    )
    assert step.test_with() == [{"m": {"a": 1, "b": 2}}, {"m": None}]
    twice = env.from_arrow(pa.table({"m": pa.array([[("a", 1), ("a", 2)]], kind)}))
    with pytest.raises(UsageError, match="Column 'm' has a value that Python cannot hold"):
        twice.test_with()


def test_a_day_that_python_has_not_is_told(env):
    step = env.from_arrow(pa.table({"d": [date(9999, 12, 31)]})).select(later=F.date_add("d", 1))
    with pytest.raises(UsageError, match=r"Column .later. has a value that Python cannot hold.*to_arrow"):
        step.test_with()


def test_a_stream_is_left_as_it_was(lines):
    stream = counts(lines)
    before = stream.explain()
    stream.test_with(lines=[{"value": "a"}])
    assert stream.explain() == before


def test_wrong_names_and_rows_are_told(env, lines, tmp_path):
    pq.write_table(pa.table({"word": ["a"]}), tmp_path / "stop.parquet")
    stop = env.read_parquet(tmp_path / "stop.parquet")
    stream = counts(lines).key_by("word").join(stop.key_by("word"))
    with pytest.raises(
        UsageError, match=r"several sources: step 'lines: read_text.*, step 'read_parquet stop.parquet'"
    ):
        stream.test_with([{"value": "a"}])
    with pytest.raises(
        UsageError, match=r"No rows are given for step 'read_parquet stop.parquet' at .*Name the source"
    ):
        stream.test_with(lines=[{"value": "a"}])
    stop.name("lines")
    with pytest.raises(UsageError, match="More than one step of the pipeline is named 'lines'"):
        stream.test_with(lines=[{"value": "a"}])
    with pytest.raises(UsageError, match=r"No step of the pipeline is named 'line'\. Its sources are step 'lines: "):
        counts(lines).test_with(line=[])
    with pytest.raises(UsageError, match=r"rows for 'lines': Row 0 of the collection is .* no other keys than value"):
        counts(lines).test_with(lines=[{"vlaue": "a"}])
    with pytest.raises(UsageError, match="rows for 'lines': Row 1 of the collection does not fit: column 'value' is 3"):
        counts(lines).test_with(lines=["a", 3])
    with pytest.raises(UsageError, match="rows for 'lines': The table has the columns a, and the step value"):
        counts(lines).test_with(lines=pa.table({"a": [1]}))
    with pytest.raises(UsageError, match="not by 1"):
        counts(lines).test_with({1: []})
    numbers = env.from_arrow(pa.table([[1]], schema=pa.schema([pa.field("n", pa.int64(), nullable=False)])))
    with pytest.raises(UsageError, match="column 'n' is null in row 1, and its schema says NOT NULL"):
        numbers.test_with([{"n": 1}, {"n": None}])


# --- first rows ---


def test_only_the_first_rows_of_each_source_are_read(lines):
    assert counts(lines).sort("word").run_locally(rows=2) == [
        {"word": "0", "n": 1},
        {"word": "1", "n": 1},
        {"word": "a.txt", "n": 2},
    ]
    assert len(lines.run_locally()) == 1000
    assert lines.run_locally(rows=0) == []
    assert [len(lines.run_locally(rows)) for rows in (1501, 4000, None)] == [1501, 3000, 3000]
    for wrong in (-1, True, "all"):
        with pytest.raises(UsageError, match="a number of rows of each source, or None"):
            lines.run_locally(wrong)


def test_first_rows_are_those_of_the_source_not_of_a_filter_in_it(env, tmp_path):
    pq.write_table(pa.table({"n": range(100), "unread": range(100)}), tmp_path / "n.parquet", row_group_size=7)
    large = env.read_parquet(tmp_path).filter(col("n") >= 8).select("n")
    assert large.run_locally(rows=10) == [{"n": 8}, {"n": 9}]
    assert len(large.run_locally(rows=None)) == 92


def test_all_sinks_are_computed_and_none_is_written(env, lines, tmp_path):
    small = words(lines).distinct()
    small.write_parquet(tmp_path / "out").name("words")
    lines.limit(1).write_csv(tmp_path / "out2").name("words")
    lines.aggregate(n=("value", "count")).write_json(tmp_path / "out3")
    for _ in range(2):  # the sinks stay
        found = env.run_locally(rows=2)
        third = f"write_json({tmp_path}/out3)"
        assert {name: len(rows) for name, rows in found.items()} == {"words": 3, "words (2)": 1, third: 1}
        assert found[third] == [{"n": 2}]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out")]


def test_a_step_of_spark_is_refused(env, lines):
    from firesteel.api.steps.pipeline import Pipeline
    from firesteel.compile.stream_graph import DataFrameStep, StreamNode

    schema = pa.schema([("value", pa.string())])
    node = StreamNode("from_dataframe", DataFrameStep(lambda: pytest.fail("it was settled")), schema, place="job.py:7")
    stream = type(lines)(Pipeline(env, node)).name("table")
    assert counts(stream).test_with(table=["a"]) == [{"word": "a", "n": 1}]
    with pytest.raises(UsageError, match=r"step 'table: from_dataframe' at job.py:7 is computed by Spark.*without"):
        stream.run_locally()


# --- as in a real job, and yet here ---


def test_what_a_function_raises_is_raised_here_with_its_own_traceback(lines):
    def parse(row):
        return {"n": 1 // int(row.value)}

    with pytest.raises(ZeroDivisionError) as caught:
        lines.map(parse, "n bigint").test_with(["1", "0"])
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "parse"
    assert caught.value.__context__ is None
    (note,) = caught.value.__notes__
    assert note.startswith("firesteel: The function of step 'map(parse)' raised ZeroDivisionError")
    assert "test_local_runs.py:" in note
    with pytest.raises(Exception, match=r"'a' \(a str\) for column 'n'") as caught:  # a complaint of ours
        lines.map(lambda row: {"n": row.value}, "n bigint").test_with(["a"])
    assert type(caught.value).__name__ == "UserFunctionError"


def test_functions_are_called_in_this_thread_as_they_are(lines):
    seen = []

    def look(row):
        seen.append((row.value, sys._getframe().f_back is not None))
        return True

    lines.filter(look).test_with(["a", "b"])
    assert [value for value, _ in seen] == ["a", "b"]


def test_a_debugger_stops_in_a_users_function_and_may_quit(lines):
    def parse(row):
        value = row.value  # the breakpoint
        return {"n": value}

    values = []

    class Debugger(bdb.Bdb):
        def user_line(self, frame):
            if frame.f_code is parse.__code__:
                values.append(frame.f_locals["row"].value)
                if len(values) == 2:
                    self.set_quit()
                else:
                    self.set_continue()

    debugger = Debugger()
    debugger.set_break(__file__, parse.__code__.co_firstlineno + 1)
    assert debugger.runcall(lines.map(parse, "n string").test_with, ["a", "b"]) is None  # it gets its BdbQuit
    assert values == ["a", "b"]


def test_partial_aggregates_joins_sides_windows_and_sorts_are_computed(env):
    left = env.from_arrow(pa.table({"k": [1, 2, 2, None], "v": [1.0, 2.0, None, 4.0]}))
    right = env.from_arrow(pa.table({"k": [2, 3], "w": ["x", "y"]}))
    joined = left.key_by("k").join(right.key_by("k"), how="full")
    assert sorted(map(str, joined.run_locally(None))) == sorted(
        map(
            str,
            [
                {"k": 1, "v": 1.0, "w": None},
                {"k": 2, "v": 2.0, "w": "x"},
                {"k": 2, "v": None, "w": "x"},
                {"k": 3, "v": None, "w": "y"},
                {"k": None, "v": 4.0, "w": None},
            ],
        )
    )
    with_side = left.with_broadcast(right=right).map(lambda row, right: (right.num_rows,), "n bigint")
    assert with_side.limit(2).run_locally() == [{"n": 2}, {"n": 2}]
    assert left.sort("v", ascending=False).select("v").run_locally()[0] == {"v": 4.0}
    assert left.union(left).distinct().aggregate(n=("v", "count")).run_locally() == [{"n": 3}]


def test_rows_beyond_the_memory_of_a_task_go_to_disk(env):
    small = ExecutionEnvironment(options={"firesteel.memory.per-task": "1 MiB"})
    table = pa.table({"k": [i % 50_000 for i in range(200_000)], "v": range(200_000)})
    stream = small.from_arrow(table)
    found = stream.key_by("k").aggregate(n=("v", "sum")).aggregate(n=("n", "sum"), keys=("k", "count"))
    assert found.run_locally(None) == [{"n": sum(range(200_000)), "keys": 50_000}]


def test_what_functions_set_up_is_closed_at_the_end(env, tmp_path):
    notes = tmp_path / "notes"

    class Doubling:
        def setup(self):
            notes.write_text("set up")

        def __call__(self, row):
            return 2 * row.n

        def close(self):
            notes.write_text(notes.read_text() + ", closed")

    doubled = env.from_collection([{"n": 1}]).map(Doubling(), "n bigint")
    assert doubled.run_locally() == [{"n": 2}] and notes.read_text() == "set up, closed"


def test_neither_pyspark_nor_pandas_is_loaded():
    script = """
import sys
from firesteel import ExecutionEnvironment
env = ExecutionEnvironment()
lines = env.from_collection(["a b", "b"])
words = lines.flat_map(lambda row: row.value.split(), "word string")
counts = words.key_by("word").aggregate(n=("word", "count"))
joined = counts.key_by("word").join(words.distinct().key_by("word")).sort("word")
assert joined.test_with(["a b"]) == joined.run_locally(1) == [{"word": "a", "n": 1}, {"word": "b", "n": 1}], joined.run_locally(1)
print([name for name in ("pyspark", "py4j", "pandas") if name in sys.modules])
"""
    plain = {**os.environ, "PYTHONPATH": PATHS}  # without pandas: pyarrow loads it where it is there
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=plain)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_test_takes_milliseconds(env, lines):
    languages = env.from_arrow(pa.table({"word": ["a", "b"], "language": ["en", "de"]}))
    joined = counts(lines).key_by("word").join(languages.key_by("word"))
    joined.test_with(["a b a"])
    before = time.process_time()
    for _ in range(10):
        joined.test_with(["a b a"])
    assert (time.process_time() - before) / 10 < 0.05  # some 0.007 on a developer's machine

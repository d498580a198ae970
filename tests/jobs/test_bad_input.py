"""What users get wrong, and what they read then: a sentence, the place, what to do; nothing half-written, nothing left.

What the builder of a pipeline refuses without Spark is tested beside it (tests/unit); here the job is run, or nearly.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.errors import FiresteelError, JobExecutionError, UsageError
from runtime_support import left_behind

HERE = Path(__file__).name


@pytest.fixture
def env(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {
        "firesteel.progress": False,
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "restart-strategy.type": "none",
    }
    return ExecutionEnvironment(spark=session, options=options)


def rows(env):
    return env.from_collection([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])


def refused(env, tmp_path, error: type[FiresteelError], *parts: str) -> FiresteelError:
    """Runs the sinks written so far; the error, which says all of ``parts``. Nothing is published or left."""
    with pytest.raises(error) as caught:
        env.execute("bad")
    told = str(caught.value)
    for part in parts:
        assert part in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()
    assert [p.name for p in tmp_path.iterdir() if ".firesteel-" in p.name] == [], "nothing staged"
    assert left_behind(tmp_path) == []
    return caught.value


# --- input ---


def good(path: Path) -> bytes:
    pq.write_table(pa.table({"a": list(range(100_000))}), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("what", "read", "said"),
    [
        ("nothing", "missing.parquet", ("There is no ", "missing.parquet", "Did you mean", "bad.parquet")),
        ("nothing", "*.nothing", ("Nothing matches ", "*.nothing", "check the pattern")),
        ("cut", "bad.parquet", ("bad.parquet is truncated, damaged or not a Parquet file", "Write it again")),
        ("text", "bad.parquet", ("bad.parquet is truncated, damaged or not a Parquet file",)),
        ("empty", "bad.parquet", ("bad.parquet is empty",)),
        ("mixed", "*.parquet", ("do not have one schema: column 'a' is string", "bad.parquet", "whole.parquet")),
    ],
)
def test_input_that_cannot_be_read_is_found_before_the_job(env, tmp_path, what, read, said):
    whole = good(tmp_path / "whole.parquet")
    bad = tmp_path / "bad.parquet"
    if what == "mixed":
        pq.write_table(pa.table({"a": ["text"]}), bad)
    else:
        bad.write_bytes({"nothing": whole, "cut": whole[:-20], "text": b"one\ntwo\n", "empty": b""}[what])
    with pytest.raises(UsageError) as caught:
        env.read_parquet(read)
    for part in ("In step 'read_parquet' at " + HERE, *said):
        assert part in str(caught.value)


def test_input_damaged_in_the_middle_names_file_and_row_group(env, tmp_path):
    whole = bytearray(good(tmp_path / "whole.parquet"))
    whole[5_000:60_000] = b"\xff" * 55_000
    (tmp_path / "bad.parquet").write_bytes(whole)
    env.read_parquet("bad.parquet").write_parquet("out")
    refused(env, tmp_path, JobExecutionError, "bad.parquet, row group 0 cannot be read", "subtask 0")


def test_input_that_vanishes_after_planning(env, tmp_path):
    good(tmp_path / "whole.parquet")
    stream = env.read_parquet("whole.parquet")
    (tmp_path / "whole.parquet").unlink()
    stream.write_parquet("out")
    refused(env, tmp_path, FiresteelError, "whole.parquet", "gone")


# --- functions ---


def wrong_type(batches):
    for _ in batches:
        yield pa.record_batch({"a": ["text"]})


def yields_a_table(batches):
    for _ in batches:
        yield pa.table({"a": [1]})


def returns_nothing(batches):
    return None


def returns_a_batch(batches):
    return next(iter(batches))


def takes_nothing():
    return []


def kills_its_worker(batches):
    os._exit(137)
    yield


def has_no_memory(batches):
    raise MemoryError
    yield


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (wrong_type, ("returned the wrong types: column 'a' (expected int64, got string)", "Cast them")),
        (yields_a_table, ("yielded a Table instead of a pyarrow.RecordBatch", "table.to_batches()")),
        (returns_nothing, ("returned nothing (None) instead of an iterator",)),
        (returns_a_batch, ("returned one RecordBatch instead of an iterator", "'yield' instead of 'return'")),
        (takes_nothing, ("raised TypeError: takes_nothing() takes 0 positional arguments",)),
        (kills_its_worker, ("A Python worker died", "for want of memory", "give tasks less to do")),
        (has_no_memory, ("ran out of memory", "data-volume-per-task")),
    ],
)
def test_a_function_that_does_not_do_what_it_says(env, tmp_path, function, said):
    rows(env).map_in_arrow(function, "a bigint").write_parquet("out")
    place = (
        f"The job 'bad' failed in 'from_collection -> map_in_arrow({function.__name__}) -> write_parquet(out)' ({HERE}:"
    )
    refused(env, tmp_path, JobExecutionError, place, "subtask 0", *said)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda it: (b.rename(columns={"a": "q"}) for b in it), "returned columns q, b where a, b are declared"),
        (lambda it: (b.assign(a="huh") for b in it), "cannot be converted to the declared int64"),
        (lambda it: (pa.record_batch({"a": [1]}) for _ in it), "a RecordBatch instead of a pandas.DataFrame"),
    ],
)
def test_a_pandas_function_that_does_not_do_what_it_says(env, tmp_path, function, said):
    rows(env).map_in_pandas(function, "a bigint, b string").write_parquet("out")
    refused(env, tmp_path, JobExecutionError, "subtask 0", said)


def test_a_function_that_raises_shows_its_own_frames_the_vertex_the_subtask_and_the_split(env, tmp_path):
    def deep(row):
        return row["missing"]

    def step(batches):
        for batch in batches:
            deep({})
            yield batch

    (tmp_path / "in.txt").write_text("one\n")
    env.read_text("in.txt").map_in_arrow(step, "value string").write_parquet("out")
    said = ("map_in_arrow(step)", "subtask 0", "raised KeyError: 'missing' while working on", "in.txt")
    error = refused(env, tmp_path, JobExecutionError, *said)
    frames = [line.strip() for line in error.cause_trace.splitlines() if line.strip().startswith("File ")]
    assert [frame.rsplit(", in ", 1)[1] for frame in frames] == ["step", "deep"]
    assert all(HERE in frame for frame in frames)


@pytest.mark.parametrize("thing", [threading.Lock(), (i for i in range(3))], ids=["lock", "generator"])
def test_a_function_that_cannot_travel_is_found_before_the_job(env, tmp_path, thing):
    def step(batches):
        print(thing)
        yield from batches

    rows(env).map_in_arrow(step, "a bigint, b string").write_parquet("out")
    said = ("The step 'map_in_arrow(step)'", f"{HERE}:", "cannot be sent to executors", "make it inside the function")
    refused(env, tmp_path, UsageError, *said)


def test_a_function_that_holds_the_environment_cannot_travel(env, tmp_path):
    def step(batches):
        print(env.options)
        yield from batches

    rows(env).map_in_arrow(step, "a bigint, b string").write_parquet("out")
    said = (
        "The step 'map_in_arrow(step)'",
        "cannot be sent to executors: its function 'step' uses the variable 'env', which is of the driver only "
        "(type ExecutionEnvironment). Read, write and start jobs outside of functions",
    )
    refused(env, tmp_path, UsageError, *said)


def test_a_function_that_holds_a_stream_cannot_travel(env, tmp_path):
    other = rows(env)

    def step(batches, scale):
        print(other.columns, scale)
        yield from batches

    rows(env).map_in_arrow(partial(step, scale=2), "a bigint, b string").write_parquet("out")
    said = (
        "its function 'step' uses the variable 'other', which is of the driver only (type DataStream). "
        "Give its rows to the function as a side input (with_broadcast), or join the two streams."
    )
    refused(env, tmp_path, UsageError, said)


# --- places ---


def test_outputs_that_cannot_be(env, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("kept")
    for path, mode, said in (
        ("there", "error", "exists already, as a directory"),
        ("file", "overwrite", "exists already, as a file"),
        ("file/inside", "error", "is a file, not a directory"),
    ):
        rows(env).write_parquet(path, mode=mode)
        refused(env, tmp_path, UsageError, said, HERE)
    assert (tmp_path / "file").read_text() == "kept"
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_folders_that_nobody_can_write_to(env, session, tmp_path):
    rows(env).write_parquet("/proc/out")
    refused(env, tmp_path, FiresteelError, "/proc/out cannot be written")
    for key in ("firesteel.storage.directory", "firesteel.journal.directory"):
        other = ExecutionEnvironment(spark=session, options={**env.options, key: "/proc/x"})
        with pytest.raises(FiresteelError, match="/proc/x"):
            rows(other).count()


def test_rows_that_are_too_many_for_the_driver(env, session, tmp_path):
    other = ExecutionEnvironment(spark=session, options={**env.options, "max-collect-bytes": "10b"})
    with pytest.raises(JobExecutionError, match=r"to_arrow\(\) would bring 7.81 KiB.*write_parquet"):
        other.from_collection(list(range(1000))).to_arrow()
    assert left_behind(tmp_path) == []


def test_no_rows_are_no_error(env, tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    none = env.from_arrow(schema.empty_table())
    joined = none.key_by("k").join(none.key_by("k"), how="full")
    assert joined.map_in_pandas(lambda it: it, "k bigint, v string, v_right string").to_pandas().shape == (0, 3)
    assert none.key_by("k").apply_in_arrow(lambda t: t, schema).top_k(3, "k").to_arrow().num_rows == 0
    assert none.aggregate({"v": "count", "k": "sum"}).take(2) == [{"v": 0, "k": None}]
    none.write_parquet("none")
    env.execute()
    assert sorted(path.name for path in Path("none").iterdir()) == ["_SUCCESS", "part-00000.parquet"]
    assert env.read_parquet("none").distinct().count() == 0

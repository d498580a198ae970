"""examples/own_source.py and examples/own_sink.py by the protocols, without Spark; drivers that are really killed."""

from __future__ import annotations

import gzip
import importlib.util
import pickle
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from connectors_kit import read_all, run_sink
from firesteel import Sink, Source
from firesteel.errors import FiresteelError, UsageError
from firesteel.spark.driver.serialise import dumps_splits

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(monkeypatch):
    """Loads an example as a module of its own name, so that its classes can be pickled here."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def log_line(i, status=200):
    return f'10.0.0.{i % 9} - {"-" if i % 2 else "eve"} [22/Nov/2026:13:{i % 60:02}:07 +0100] "GET /p{i % 7} HTTP/1.1" {status} {i if i % 5 else "-"}\n'


@pytest.fixture
def logs(tmp_path):
    """Five packed logs of 100 to 500 lines."""
    paths = []
    for k in range(1, 6):
        paths.append(tmp_path / f"access.log.{k}.gz")
        with gzip.open(paths[-1], "wt") as file:
            file.writelines(log_line(i, 500 if i % 50 == 0 else 200) for i in range(100 * k))
    return paths


def test_logs_become_columns(example, logs):
    source = example("own_source").AccessLogs.of(logs)
    assert isinstance(source, Source)
    table = read_all(source)
    assert table.num_rows == 1500
    rows = table.slice(0, 2).to_pylist()
    assert [rows[1][name] for name in ("host", "user", "method", "path", "status", "bytes")] == [
        "10.0.0.1",
        None,
        "GET",
        "/p1",
        200,
        1,
    ]
    assert rows[0]["user"] == "eve" and rows[0]["time"].isoformat() == "2026-11-22T12:00:07+00:00"
    assert rows[0]["bytes"] == 0, "a dash"


def test_splits_go_by_the_plain_size_and_so_does_the_parallelism(example, logs):
    source = example("own_source").AccessLogs.of(logs)
    plain = sum(len(gzip.decompress(path.read_bytes())) for path in logs)
    for volume, splits in ((1, 5), (plain, 5), (4 * plain, 1)):
        found = source.list_splits(volume)
        assert sum(split.bytes for split in found) == plain
        assert source.infer_parallelism(100, volume) == len(found) <= splits
        assert sorted(file.path for split in found for file in split.payload) == sorted(map(str, logs))
    assert source.infer_parallelism(2, 1) == 2


def test_what_is_pushed_down_is_the_same_as_what_comes_after(example, logs):
    source = example("own_source").AccessLogs.of(logs)
    failed = pc.field("status") >= 500
    whole = read_all(source)
    for columns in (["path", "bytes"], ["status"], [], None):
        pushed = read_all(source.push_down(columns, failed))
        expected = whole.filter(failed)
        assert pushed.num_rows == expected.num_rows == 30
        assert pushed.equals(expected if columns is None else expected.select(columns)) or not columns
    assert read_all(source.push_down([], None)).num_rows == 1500
    assert read_all(source.push_down(["host"], None)).equals(whole.select(["host"]))


def test_logs_that_change_or_are_none_are_said(example, logs, tmp_path):
    module = example("own_source")
    source = module.AccessLogs.of(logs)
    with gzip.open(logs[0], "at") as file:
        file.write(log_line(1))
    with pytest.raises(FiresteelError, match=r"access\.log\.1\.gz has changed since the job began"):
        read_all(source)
    with gzip.open(logs[0], "at") as file:
        file.write("not a line\n")
    with pytest.raises(
        FiresteelError, match=r"access\.log\.1\.gz, line 102 is not a line of an access log: 'not a line"
    ):
        read_all(module.AccessLogs.of(logs[:1]))
    (tmp_path / "plain.log").write_text(log_line(1))
    for paths, words in (
        ([], "no access logs"),
        (["missing.gz"], "cannot be read"),
        ([tmp_path / "plain.log"], "not a gzip"),
    ):
        with pytest.raises(UsageError, match=words):
            module.AccessLogs.of(paths)


def test_splits_of_a_scripts_own_classes_reach_executors_that_cannot_import_it(example, logs):
    module = example("own_source")
    splits = module.AccessLogs.of(logs).list_splits(1)
    assert dumps_splits(splits[0].payload) == pickle.dumps(splits[0].payload, protocol=5), "nothing to carry along"
    cloudpickle.register_pickle_by_value(module)
    try:
        data = dumps_splits(splits[0].payload)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    read = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[0].path)"
    done = subprocess.run([sys.executable, "-c", read], input=data, capture_output=True, check=True, timeout=600)
    assert done.stdout.decode().strip() == str(logs[4]), "the largest"
    made_here = dumps_splits([lambda: 1])
    assert pickle.loads(made_here)[0]() == 1


# --- the sink ---------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def batches(*keys):
    return [pa.record_batch({"k": [k], "s": [f"row {k}"]}, schema=SCHEMA) for k in keys]


def stored(path, table="t"):
    with sqlite3.connect(path) as database:
        return sorted(database.execute(f"select * from {table}").fetchall())


def rows(*keys):
    return [(k, f"row {k}") for k in keys]


@pytest.fixture
def sqlite(example):
    return example("own_sink").SQLiteSink


def only_the_database(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "out.db") == []


def test_winners_are_published_together_and_losers_never(sqlite, tmp_path):
    path = tmp_path / "out.db"
    sink = sqlite(path, "t")
    assert isinstance(sink, Sink)
    winners = run_sink(sink, [batches(1, 2), batches(), batches(3)], SCHEMA)
    loser = sink.write(0, 1)
    loser.write(batches(1)[0])
    loser.finish()
    assert not path.exists(), "nothing is seen before the commit"
    sink.commit(winners)
    assert stored(path) == rows(1, 2, 3)
    assert only_the_database(tmp_path)


def test_modes(sqlite, tmp_path):
    path = tmp_path / "out.db"
    for job, (mode, key, expected) in enumerate(
        [("error", 1, [1]), ("append", 2, [1, 2]), ("overwrite", 3, [3]), ("append", 4, [3, 4])]
    ):
        sink = sqlite(path, "t", mode)
        sink.commit(run_sink(sink, [batches(key)], SCHEMA, f"job-{job}"))
        assert stored(path) == rows(*expected)
    with pytest.raises(UsageError, match="has a table t already"):
        sqlite(path, "t").check(SCHEMA)
    with pytest.raises(UsageError, match=r"has the columns \['k', 's'\]"):
        sqlite(path, "t", "append").check(pa.schema([("z", pa.int64())]))
    with pytest.raises(UsageError, match=r"cannot hold column 'l' of type list"):
        sqlite(path, "t", "append").check(pa.schema([("l", pa.list_(pa.int64()))]))
    with pytest.raises(UsageError, match="no directory"):
        sqlite(tmp_path / "nowhere" / "x.db", "t").check(SCHEMA)
    (tmp_path / "text.db").write_text("not a database, and long enough to be looked at" * 50)
    with pytest.raises(UsageError, match="not a database"):
        sqlite(tmp_path / "text.db", "t").check(SCHEMA)


def test_a_commit_that_is_called_twice_counts_once(sqlite, tmp_path):
    path = tmp_path / "out.db"
    sink = sqlite(path, "t", "append")
    winners = run_sink(sink, [batches(1), batches(2)], SCHEMA)
    copy = pickle.loads(pickle.dumps(sink))
    sink.commit(winners)
    copy.commit(winners)
    assert stored(path) == rows(1, 2)


def test_all_or_nothing_when_a_staged_file_is_damaged(sqlite, tmp_path):
    path = tmp_path / "out.db"
    before = sqlite(path, "t")
    before.commit(run_sink(before, [batches(9)], SCHEMA, "job-0"))
    sink = sqlite(path, "t", "overwrite")
    winners = run_sink(sink, [batches(1), batches(2)], SCHEMA)
    (sink.staging / winners[1].name).write_bytes(b"")
    with pytest.raises(FiresteelError, match="cannot be read"):
        sink.commit(winners)
    assert stored(path) == rows(9)
    sink.abort([])
    pickle.loads(pickle.dumps(sink)).abort([])  # once more, later
    assert only_the_database(tmp_path)


def test_an_attempt_is_aborted_alone_and_two_sinks_are_told_apart(sqlite, tmp_path):
    sink, other = sqlite(tmp_path / "out.db", "t"), sqlite(tmp_path / "out.db", "t")
    winners = run_sink(sink, [batches(1), batches(2)], SCHEMA)
    writer = sink.write(2, 0)
    writer.write(batches(3)[0])
    writer.abort()
    sink.abort(winners[:1])
    assert sorted(p.name for p in sink.staging.glob("*.arrow")) == [winners[1].name]
    with pytest.raises(UsageError, match="Two sinks of this job"):
        other.begin("job-1")
    other.begin("job-2")
    assert sink.staging.exists(), "its owner lives"
    sink.abort([])
    other.abort([])
    assert only_the_database(tmp_path)


CRASH = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {unit!r}, {examples!r}]
from own_sink import SQLiteSink
from connectors_kit import run_sink
from test_own_connectors import SCHEMA, batches

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(SQLiteSink):
    def commit(self, winners):
        if {moment!r} == "between":
            die()
        super().commit(winners)

    def staged_batches(self, staged):
        if {moment!r} == "inside" and staged.rows == 2:
            die()
        return super().staged_batches(staged)

    def forget(self):
        die()

sink = Dying({path!r}, "t", "append")
sink.commit(run_sink(sink, [batches(1), batches(2, 3)], SCHEMA, "crashed"))
"""


@pytest.mark.parametrize(
    ("moment", "there"),
    [
        pytest.param("between", [0], marks=pytest.mark.full),
        ("inside", [0]),
        pytest.param("after", [0, 1, 2, 3], marks=pytest.mark.full),
    ],
)
def test_a_killed_driver_leaves_all_rows_or_none_and_the_next_job_cleans_up(sqlite, tmp_path, moment, there):
    path = tmp_path / "out.db"
    first = sqlite(path, "t")
    first.commit(run_sink(first, [batches(0)], SCHEMA, "first"))
    script = CRASH.format(
        tests=str(TESTS), unit=str(TESTS / "unit" / "api"), examples=str(EXAMPLES), moment=moment, path=str(path)
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [p for p in tmp_path.iterdir() if p.name.endswith(".crashed")]
    assert len(left) == 1, "what was staged is still there"
    assert stored(path) == rows(*there), "SQLite rolls back what a dead process began"
    again = sqlite(path, "t", "append")
    again.commit(run_sink(again, [batches(7)], SCHEMA, "next"))
    assert stored(path) == rows(*there, 7)
    assert only_the_database(tmp_path)


def test_attempts_of_one_subtask_may_write_at_the_same_time(sqlite, tmp_path):
    sink = sqlite(tmp_path / "out.db", "t")
    sink.check(SCHEMA)
    sink.begin("job")
    shipped = pickle.loads(pickle.dumps(sink))
    one, two = shipped.write(0, 0), shipped.write(0, 0)
    for writer in (one, two):
        writer.write(batches(1)[0])
    winner = one.finish()
    two.finish()
    sink.commit([winner])
    assert stored(tmp_path / "out.db") == rows(1)

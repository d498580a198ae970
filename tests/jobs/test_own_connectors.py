"""The examples of connectors of one's own as jobs, and the blocks of docs/own-connectors.md as they stand."""

from __future__ import annotations

import gzip
import importlib.util
import sqlite3
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from firesteel import ExecutionEnvironment, col
from firesteel.errors import JobExecutionError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def example():
    """Loads an example whose classes go to executors by value, as those of a script do."""
    loaded = {}

    def load(name):
        if name in loaded:
            return loaded[name]
        spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        cloudpickle.register_pickle_by_value(module)
        return loaded.setdefault(name, module)

    yield load
    for module in loaded.values():
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]


@pytest.fixture
def logs(tmp_path):
    paths = []
    for k in range(4):
        paths.append(tmp_path / f"access.log.{k}.gz")
        with gzip.open(paths[-1], "wt") as file:
            for i in range(300):
                status = 503 if i % 10 == k else 200
                file.write(f'10.0.0.{k} - - [22/Nov/2026:13:00:07 +0000] "GET /p{i % 10} HTTP/1.1" {status} {i}\n')
    return paths


def fails_once(mark):
    def step(batches):
        yield from batches
        if not Path(mark).exists():
            Path(mark).touch()
            raise ValueError("the first attempt")

    return step


def test_logs_are_counted_with_a_failing_attempt_between(env, example, logs, tmp_path):
    requests = env.from_source(example("own_source").AccessLogs.of(logs))
    failed = requests.filter(col("status") >= 500).select("path", "host")
    again = failed.map_in_arrow(fails_once(str(tmp_path / "mark")), failed.schema)
    counted = again.key_by("path").aggregate({"n": ("host", "count")})
    assert sorted(counted.collect(), key=lambda row: row["path"]) == [{"path": f"/p{k}", "n": 30} for k in range(4)]
    assert (tmp_path / "mark").exists()
    assert requests.count() == 1200
    plan = failed.explain()
    assert "from_source(access logs)" in plan


def test_subtasks_are_as_many_as_the_source_infers(session, example, logs, tmp_path):
    source = example("own_source").AccessLogs.of(logs)
    journal = str(tmp_path / "journal")
    options = {"firesteel.progress": False, "firesteel.journal.directory": journal, "data-volume-per-task": "16 kb"}
    fine = ExecutionEnvironment(spark=session, options=options)
    fine.from_source(source).select("host").write_parquet(tmp_path / "out")
    result = fine.execute("inferred")
    (decision,) = [d for d in result.decision_records if d.what == "source parallelism"]
    assert source.infer_parallelism(128, 16 << 10) == 4
    assert decision.result == 4
    assert len(list((tmp_path / "out").glob("part-*"))) == 4


def test_a_table_is_written_in_one_transaction_with_a_failing_attempt(env, example, tmp_path):
    sink = example("own_sink").SQLiteSink
    stream = env.from_collection([{"k": i, "s": f"row {i}"} for i in range(500)])
    step = stream.map_in_arrow(fails_once(str(tmp_path / "mark")), stream.schema)
    step.write_to(sink(tmp_path / "out.db", "numbers"))
    stream.filter(col("k") < 10).write_to(sink(tmp_path / "out.db", "few"))
    env.execute("two tables")
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert sorted(database.execute("select * from numbers")) == [(i, f"row {i}") for i in range(500)]
        assert len(database.execute("select * from few").fetchall()) == 10
        assert sorted(rows for _, rows in database.execute("select * from firesteel_commits")) == [10, 500]
    assert (tmp_path / "mark").exists()

    def fail(batches):
        yield next(batches)
        raise ValueError("each attempt")

    stream.map_in_arrow(fail, stream.schema).write_to(sink(tmp_path / "out.db", "numbers", "overwrite"))
    with pytest.raises(JobExecutionError, match="each attempt"):
        env.execute("fails")
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert database.execute("select count(*) from numbers").fetchone() == (500,)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

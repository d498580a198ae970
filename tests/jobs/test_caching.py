"""cache(): what is computed once, what later jobs read, when the objects go."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caching_kit import counted
from firesteel import ExecutionEnvironment, col
from firesteel.errors import JobExecutionError, UsageError
from runtime_support import files_in


@pytest.fixture
def storage(tmp_path):
    return tmp_path / "storage"


@pytest.fixture
def calls(tmp_path):
    """Counts how often the counted function below ran, over all processes."""
    folder = tmp_path / "calls"
    folder.mkdir()
    return folder


def doubled(env, calls, rows=10, until=None):
    numbers = env.from_collection([{"n": i} for i in range(rows)])
    return numbers.map_in_arrow(counted(calls, until), "n bigint")


def objects(storage: Path) -> list[Path]:
    return [
        path for path in files_in(storage) if "-part" not in path.name and not path.name.startswith("firesteel-job-")
    ]


def count(calls: Path) -> int:
    return len(list(calls.iterdir()))


def gone(storage: Path, seconds: float = 20) -> bool:
    """Whether no object is left; those of readers go when these have ended."""
    until = time.monotonic() + seconds
    while objects(storage) and time.monotonic() < until:
        time.sleep(0.05)
    return not objects(storage)


def test_a_second_job_does_not_run_the_steps_before(env, calls, storage):
    stream = doubled(env, calls)
    assert stream.cache() is stream
    assert not stream.is_cached
    assert count(calls) == 0
    assert stream.filter(col("n") > 10).count() == 4
    first = count(calls)
    assert first > 0
    assert stream.is_cached
    assert sorted(row["n"] for row in stream.collect()) == list(range(0, 20, 2))
    assert stream.count() == 10
    totals = stream.key_by("n").aggregate(k=("*", "count")).aggregate(total=("k", "sum"), most=("n", "max"))
    assert totals.collect() == [{"total": 10, "most": 18}]
    assert count(calls) == first
    assert "cached map_in_arrow(function)" in stream.explain()
    assert stream.uncache() is stream
    assert objects(storage) == []
    assert not stream.is_cached
    assert stream.count() == 10
    assert count(calls) > first
    stream.uncache()


def test_it_is_filled_by_a_job_of_sinks_and_read_by_several_branches(env, calls, storage, tmp_path):
    stream = doubled(env, calls, 1000).persist()
    stream.filter(col("n") < 100).write_parquet(tmp_path / "small")
    stream.key_by("n").aggregate(k=("*", "count")).write_parquet(tmp_path / "keys")
    env.execute("fills")
    first = count(calls)
    assert pq.read_table(tmp_path / "small").num_rows == 50
    assert pq.read_table(tmp_path / "keys").num_rows == 1000
    united = stream.union(stream.filter(col("n") >= 1000))
    joined = stream.key_by("n").join(stream.key_by("n"), suffix="_2")
    assert (united.count(), joined.count(), count(calls)) == (1500, 1000, first)
    stream.unpersist()
    assert objects(storage) == []


def test_a_cache_of_a_cache_and_of_an_empty_stream(env, calls, storage):
    stream = doubled(env, calls).cache()
    squares = stream.with_column("m", col("n")).cache()
    assert squares.count() == 10
    assert stream.is_cached
    assert squares.is_cached
    stream.uncache()
    first = count(calls)
    assert squares.count() == 10
    assert count(calls) == first
    none = squares.filter(col("n") < 0).cache()
    assert none.collect() == []
    assert none.is_cached
    assert none.to_arrow().schema == none.schema
    squares.uncache()
    none.uncache()
    nothing = squares.select("n").map_in_arrow(
        lambda bs: (pa.record_batch([pa.nulls(b.num_rows)], ["z"]) for b in bs), pa.schema({"z": pa.null()})
    )
    assert (nothing.cache().count(), nothing.count()) == (10, 10)
    nothing.uncache()
    assert gone(storage)


def test_parallelism_of_its_reader_is_decided_by_its_bytes(env, storage):
    options = {**env.options, "data-volume-per-task": "1 MiB", "max-parallelism": 8}
    small = ExecutionEnvironment(spark=env.spark, options=options)
    big = small.from_arrow(pa.table({"n": pa.array(range(400_000)), "s": ["0123456789"] * 400_000})).rebalance()
    kept = big.map_in_arrow(lambda batches: batches, "n bigint, s string").cache()
    assert kept.count() == 400_000
    kept.filter(col("n") >= 0).write_parquet(storage.parent / "out")
    result = small.execute("reads")
    said = next(d for d in result.decision_records if d.what == "source parallelism")
    assert said.result > 1
    kept.uncache()
    assert objects(storage) == []


def damage(paths):
    """They are there when the job begins, but cannot be read."""
    for path in paths:
        data = bytearray(path.read_bytes())
        data[: len(data) // 2] = bytes(len(data) // 2)
        path.write_bytes(data)


def test_lost_objects_are_computed_again_with_a_warning(env, calls, storage, tmp_path):
    stream = doubled(env, calls).cache()
    assert stream.count() == 10
    first = count(calls)
    for path in objects(storage):
        path.unlink()
    with pytest.warns(UserWarning, match=r"cached rows of step 'map_in_arrow.*test_caching.py.*computed again"):
        assert stream.count() == 10
    assert count(calls) > first
    again = count(calls)
    damage(objects(storage))
    with pytest.warns(UserWarning, match="missing or damaged"):
        assert sorted(row["n"] for row in stream.collect()) == list(range(0, 20, 2))
    assert count(calls) > again
    damage(objects(storage))
    stream.write_parquet(tmp_path / "out")
    with pytest.warns(UserWarning, match="missing or damaged"), pytest.raises(JobExecutionError):
        env.execute("what cannot be read")
    assert objects(storage) == []
    stream.write_parquet(tmp_path / "out")
    env.execute("computed again")
    assert sorted(pq.read_table(tmp_path / "out").column("n").to_pylist()) == list(range(0, 20, 2))
    stream.uncache()
    assert objects(storage) == []


def test_a_failed_job_does_not_fill_it(env, calls, storage):
    stream = doubled(env, calls).cache()
    with pytest.raises(JobExecutionError):
        stream.map(lambda row: {}["x"], "n bigint").collect()
    assert not stream.is_cached
    assert stream.count() == 10
    assert stream.is_cached
    with pytest.raises(UsageError, match="no column 'x'"):
        stream.select("x")
    stream.uncache()
    assert objects(storage) == []


def test_two_jobs_at_once(env, calls, storage, tmp_path):
    """Only one of them keeps the rows, and neither waits for the other."""
    go = tmp_path / "go"
    stream = doubled(env, calls, 10, go).cache()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(stream.count())) for _ in range(2)]
    for thread in threads:
        thread.start()
    while count(calls) < 1:
        time.sleep(0.01)
    go.touch()
    for thread in threads:
        thread.join()
    assert answers == [10, 10]
    assert stream.is_cached
    before = count(calls)
    assert stream.count() == 10
    assert count(calls) == before
    stream.uncache()
    assert objects(storage) == []


def test_rows_that_a_running_job_reads_go_when_it_has_ended(env, calls, storage, tmp_path):
    go = tmp_path / "go"
    stream = doubled(env, calls, 100).cache()
    assert stream.count() == 100
    begun = tmp_path / "begun"
    begun.mkdir()
    stream.map_in_arrow(counted(begun, go), "n bigint").write_parquet(tmp_path / "out")
    client = env.execute_async("reads")
    while not count(begun):
        time.sleep(0.01)
    stream.uncache()
    assert objects(storage) != []
    go.touch()
    client.wait()
    assert pq.read_table(tmp_path / "out").num_rows == 100
    assert gone(storage)


def test_closing_the_environment_or_dropping_the_stream_removes_the_rows(env, calls, storage):
    other = ExecutionEnvironment(spark=env.spark, options=dict(env.options))
    stream = doubled(other, calls).cache()
    assert stream.count() == 10
    assert objects(storage) != []
    other.close()
    assert objects(storage) == []
    stream = doubled(env, calls).cache()
    stream.count()
    assert objects(storage) != []
    del stream
    assert objects(storage) == []


def test_levels_and_sides_are_refused(env):
    rows = env.from_collection([{"n": 1}])
    with pytest.raises(UsageError, match=r"no storage level.*Write cache\(\)"):
        rows.persist("MEMORY_ONLY")
    with pytest.raises(UsageError, match="is not used"):
        rows.with_broadcast(x=rows).cache()
    assert rows.uncache() is rows

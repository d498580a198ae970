"""Files there and back, overwritten in place, with lines that cannot be read; a killed attempt leaves nothing."""

from __future__ import annotations

import os
import signal
import time

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel.errors import JobExecutionError, UsageError


def test_a_directory_is_overwritten_by_what_was_read_from_it(env, tmp_path):
    env.from_collection([{"n": n} for n in range(10)]).write_csv(tmp_path / "data")
    env.execute("first")
    before = sorted(tmp_path.rglob("*.csv"))

    def fail(batches):
        yield from batches
        raise ValueError("no")

    stream = env.read_csv(tmp_path / "data")
    stream.map_in_arrow(fail, stream.schema).write_csv(tmp_path / "data", mode="overwrite")
    with pytest.raises(JobExecutionError, match="no"):
        env.execute("fails")
    assert sorted(tmp_path.rglob("*.csv")) == before
    assert sorted(r["n"] for r in env.read_csv(tmp_path / "data").collect()) == list(range(10))
    env.read_csv(tmp_path / "data").filter(col("n") > 5).write_csv(tmp_path / "data", mode="overwrite")
    env.execute("again")
    assert sorted(r["n"] for r in env.read_csv(tmp_path / "data").collect()) == [6, 7, 8, 9]


def test_a_value_that_does_not_fit_ends_the_job_with_its_line(env, tmp_path):
    (tmp_path / "a.csv").write_text("n,s\n" + "1,x\n" * 500 + "two,y\n")
    env.read_csv(tmp_path / "a.csv", schema="n int, s string").write_parquet(tmp_path / "out")
    with pytest.raises(JobExecutionError, match=r"a\.csv, line 502: column 'n' is int32, and 'two' does not fit"):
        env.execute("bad value")
    assert not (tmp_path / "out").exists()


def test_a_killed_attempt_leaves_no_files(env, tmp_path):
    marker = tmp_path / "killed"

    def die_once(batches):
        yield from batches
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    rows = [{"k": i % 4, "v": i} for i in range(2000)]
    stream = env.from_collection(rows).map_in_arrow(die_once, "k bigint, v bigint")
    stream.write_parquet(tmp_path / "out", partition_by="k", max_file_size="1 MiB")
    env.execute("killed once")
    assert marker.exists()
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    assert sorted({p.parent.name for p in files if p.suffix == ".parquet"}) == ["k=0", "k=1", "k=2", "k=3"]
    assert [p.name for p in tmp_path.iterdir() if ".firesteel-" in p.name] == []
    assert sorted(r["v"] for r in env.read_parquet(tmp_path / "out").collect()) == list(range(2000))


def test_mirrors_that_lose_leave_no_files(session, tmp_path):
    env = ExecutionEnvironment(
        spark=session,
        options={
            "firesteel.progress": False,
            "firesteel.journal.directory": str(tmp_path / "journal"),
            "firesteel.storage.directory": str(tmp_path / "storage"),
            "jobmanager.adaptive-batch-scheduler.speculative.enabled": True,
            "slow-task-detector.check-interval": "100 ms",
            "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
            "slow-task-detector.execution-time.baseline-ratio": 0.5,
        },
    )
    slept = tmp_path / "slept"

    def slow_once(batches):
        for batch in batches:
            if 7 in batch.column("v").to_pylist():
                try:
                    slept.touch(exist_ok=False)
                    time.sleep(600)
                except FileExistsError:
                    pass
            yield batch

    rows = [{"k": i % 3, "v": i} for i in range(800)]
    stream = env.from_collection(rows).rebalance().map_in_arrow(slow_once, "k bigint, v bigint").set_parallelism(4)
    stream.write_json(tmp_path / "out", partition_by="k")
    began = time.monotonic()
    env.execute("mirrored")
    assert time.monotonic() - began < 600, "no mirror won"
    assert sorted(r["v"] for r in env.read_json(tmp_path / "out").collect()) == list(range(800))
    assert [p.name for p in tmp_path.iterdir() if ".firesteel-" in p.name] == []
    parts = list((tmp_path / "out").rglob("part-*"))
    assert len(parts) == len({(p.parent, p.name.split("-")[1]) for p in parts})  # one attempt of each subtask


def test_lines_that_cannot_be_read_go_through_a_job(env, tmp_path):
    lines = [f"{i},{i / 4}" if i % 100 else f"{i},oops" for i in range(6_000)]
    (tmp_path / "a.csv").write_text("\n".join(["n,x", *lines]))
    rows = env.read_csv(tmp_path / "a.csv", schema="n bigint, x double", corrupt_column="bad")
    rows = rows.set_parallelism(3)
    assert sorted(r["bad"] for r in rows.filter(col("bad").isNotNull()).select("bad").collect()) == sorted(
        f"{i},oops" for i in range(0, 6_000, 100)
    )
    good = rows.filter(col("bad").isNull()).agg(n=("n", "sum"), rows=("n", "count")).collect()
    assert good == [{"n": sum(i for i in range(6_000) if i % 100), "rows": 5_940}]


def test_partitions_that_are_read_are_replaced_where_there_are_rows(env, tmp_path):
    """From the very directory, with an attempt that fails once after it has written."""
    env.from_collection([{"k": n % 4, "n": n} for n in range(40)]).write_parquet(tmp_path / "data", partition_by="k")
    env.execute("first")
    marker = tmp_path / "failed"

    def fail_once(batches):
        yield from batches
        if not marker.exists():
            marker.touch()
            raise ValueError("once")

    stream = env.read_parquet(tmp_path / "data").filter((col("k") >= 2) & (col("n") < 20))
    again = stream.map_in_arrow(fail_once, stream.schema)
    again.write_parquet(tmp_path / "data", mode="overwrite_partitions", partition_by="k")
    again.filter(col("n") < 0).write_csv(tmp_path / "data2", mode="overwrite_partitions", partition_by="k")
    env.execute("again")
    assert marker.exists()
    found = sorted(row["n"] for row in env.read_parquet(tmp_path / "data").collect())
    assert found == sorted(n for n in range(40) if n % 4 < 2 or n < 20)
    assert [path.name for path in (tmp_path / "data2").iterdir()] == ["_SUCCESS"]


def test_partitions_stay_where_another_sink_fails(env, tmp_path):
    """What was replaced comes back when the last of several sinks cannot be published."""

    class Refuses:
        name, supports_concurrent_execution_attempts = "refuses", True

        def check(self, schema):
            pass

        def begin(self, job_id):
            pass

        def write(self, *_):
            return self

        def finish(self):
            return None

        def commit(self, winners):
            raise OSError("no room")

        def abort(self, attempts=()):
            pass

    rows = env.from_collection([{"k": n % 4, "n": n} for n in range(8)])
    rows.write_parquet(tmp_path / "data", partition_by="k")
    env.execute("first")
    before = sorted(tmp_path.rglob("*.parquet"))
    half = rows.filter(col("k") < 2)
    half.write_parquet(tmp_path / "data", mode="overwrite_partitions", partition_by="k")
    half.filter(col("n") < 0).write_to(Refuses())
    with pytest.raises(JobExecutionError, match="could not be published: OSError: no room"):
        env.execute("refused")
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_a_delta_table_there_and_back(env, tmp_path):
    """An attempt that failed once, and a job that failed for good after the table's rows were ready, leave nothing in it."""
    from deltalake import DeltaTable

    marker = tmp_path / "failed"

    def fail_once(batches):
        yield from batches
        if not marker.exists():
            marker.touch()
            raise ValueError("once")

    stream = env.from_collection([{"k": n % 3, "n": n} for n in range(30)])
    stream.map_in_arrow(fail_once, stream.schema).write_delta(tmp_path / "table", partition_by="k")
    env.execute("write")
    assert marker.exists()
    table = env.read_delta(tmp_path / "table")
    assert sorted(row["n"] for row in table.filter(col("k") == 1).collect()) == list(range(1, 30, 3))
    table.filter(col("n") >= 28).write_delta(tmp_path / "table", mode="overwrite_partitions")
    env.execute("replace")
    assert sorted(DeltaTable(tmp_path / "table").to_pyarrow_table()["n"].to_pylist()) == [*range(0, 30, 3), 28, 29]

    def fail(batches):
        raise ValueError("for good")

    table.write_delta(tmp_path / "table", mode="overwrite")
    table.map_in_arrow(fail, table.schema).write_csv(tmp_path / "never")
    with pytest.raises(JobExecutionError, match="for good"):
        env.execute("fails")
    assert DeltaTable(tmp_path / "table").version() == 1
    assert len(list((tmp_path / "table").rglob("*.parquet"))) == 5
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.full), 5])
def test_files_are_even_however_many_subtasks_make_the_rows(env, tmp_path, parallelism):
    """Partitions with many rows have several files; one with few shares its subtask with others, not its file."""
    rows = env.from_collection([{"n": n, "k": 9 if n < 1000 else n % 2} for n in range(60_000)])
    made = rows.map_in_arrow(lambda batches: batches, rows.schema).set_parallelism(parallelism)
    made.write_arrow(tmp_path / "whole", compression=None, file_size="100 KiB")
    made.write_arrow(tmp_path / "parts", compression=None, file_size="100 KiB", partition_by="k")
    made.write_parquet(tmp_path / "small", file_size="1 GiB")
    env.execute("even")
    sizes = [path.stat().st_size for path in (tmp_path / "whole").glob("part-*")]
    assert 8 <= len(sizes) <= 11
    assert min(sizes) > 60_000
    assert max(sizes) < 130_000
    parts = {folder.name: len(list(folder.iterdir())) for folder in (tmp_path / "parts").glob("k=*")}
    assert parts["k=9"] <= 2
    assert 2 <= parts["k=0"] <= 5
    assert 2 <= parts["k=1"] <= 5
    assert len(list((tmp_path / "small").glob("part-*"))) == 1
    for name in ("whole", "parts"):
        assert sorted(row["n"] for row in env.read_arrow(tmp_path / name).collect()) == list(range(60_000))


@pytest.mark.parametrize("parallelism", [1, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "kind", ["parquet", "csv", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("arrow", "json"))]
)
def test_partitions_have_even_files_of_the_size_in_any_format(env, tmp_path, kind, parallelism):
    """What is a directory's name is in no file, and how rows shrink or grow there is measured. Whoever makes the rows: one subtask alone
    has to part a partition by what it expects."""
    days = {"2024-01-01, a Monday": 30_000, "2024-01-02, a Tuesday": 12_000, "2024-01-03, a Wednesday": 500}
    spread = [day for day, rows in days.items() for _ in range(rows)]
    rows = env.from_arrow(pa.table({"day": spread, "n": [n * 7919 % 1_000_003 for n in range(len(spread))]}))
    made = rows.repartition(parallelism) if parallelism > 1 else rows.coalesce(1)
    getattr(made, f"write_{kind}")(tmp_path / "out", file_size="50 KB", partition_by="day")
    env.execute("even")
    found = {
        folder.name.rpartition(" ")[2]: [path.stat().st_size for path in folder.glob("part-*")]
        for folder in (tmp_path / "out").glob("day=*")
    }
    assert {len(sizes) for day, sizes in found.items() if "Wednesday" in day} == {1}
    for sizes in (sizes for day, sizes in found.items() if "Wednesday" not in day):
        if sum(sizes) >= 75_000:
            assert all(30_000 <= size <= 80_000 for size in sizes), found
        else:
            assert len(sizes) == 1, found
    back = getattr(env, f"read_{kind}")(tmp_path / "out")
    assert back.count() == sum(days.values())


def test_a_size_of_files_must_be_one(env, tmp_path):
    with pytest.raises(UsageError, match=r"file_size='2 MB' is more than max_file_size='1 MB'"):
        env.from_collection([1, 2]).write_parquet(tmp_path / "out", file_size="2 MB", max_file_size="1 MB")
    with pytest.raises(UsageError, match="file_size='large' must be"):
        env.from_collection([1, 2]).write_parquet(tmp_path / "out", file_size="large")


def test_an_iceberg_table_there_and_back(env, tmp_path):
    from pyiceberg.catalog import load_catalog

    given = {"name": "c", "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    catalog = load_catalog(**given)
    catalog.create_namespace("shop")
    stream = env.from_collection([{"k": n % 3, "n": n} for n in range(30)])
    stream.write_iceberg("shop.orders", given, partition_by="k", file_size="1 MiB")
    env.execute("write")
    table = env.read_iceberg("shop.orders", given)
    table.filter(col("n") >= 28).write_iceberg("shop.orders", given, mode="overwrite_partitions")
    env.execute("replace")
    found = catalog.load_table("shop.orders").scan().to_arrow().column("n").to_pylist()
    assert sorted(found) == [*range(0, 30, 3), 28, 29]
    catalog.engine.dispose()

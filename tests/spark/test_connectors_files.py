"""Files there and back on a real Spark: what Spark wrote we read, what we wrote Spark reads, and a killed attempt leaves nothing."""

from __future__ import annotations

import datetime
import os
import signal
import time

import duckdb
import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel.errors import JobExecutionError

pytestmark = pytest.mark.spark

ROWS = [
    {
        "n": i,
        "f": i / 4,
        "s": None if i % 7 == 0 else f'v{i}, "q"',
        "d": datetime.date(2024, 1, 1 + i % 20),
        "t": datetime.datetime(2024, 1, 1, i % 24, 30, 0, 1000 * i, tzinfo=datetime.UTC),
        "year": 2020 + i % 3,
        "who": ["a/b=c", "50% é:", None][i % 3],
    }
    for i in range(60)
]
DDL = "n bigint, f double, s string, d date, t timestamp, year int, who string"


def by(rows):
    return sorted(rows, key=lambda row: row["n"])


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """Trees that Spark wrote, one a format."""
    root = tmp_path_factory.mktemp("by-spark")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = spark.createDataFrame(ROWS, DDL).repartition(2)
    frame.write.partitionBy("year", "who").parquet(str(root / "parquet"))
    frame.write.partitionBy("year", "who").json(str(root / "json"), compression="gzip")
    frame.write.partitionBy("year", "who").csv(str(root / "csv"), header=True)
    frame.select("s", "year").na.drop().write.partitionBy("year").text(str(root / "text"), compression="bzip2")
    return root


def test_what_spark_wrote_is_read(env, written):
    parquet = by(env.read_parquet(written / "parquet").collect())
    moments = [row.pop("t").tz_localize("UTC") for row in parquet]  # Spark's default, INT96, says nothing of a zone
    assert moments == [row["t"] for row in ROWS]
    assert parquet == [{name: value for name, value in row.items() if name != "t"} for row in ROWS]
    assert by(env.read_json(written / "json", schema=DDL).collect()) == ROWS
    assert by(env.read_csv(written / "csv", schema=DDL, escape="\\").collect()) == ROWS
    inferred = env.read_csv(written / "csv", escape="\\")
    assert inferred.schema.field("year").type == pa.int32()
    assert by(inferred.collect()) == ROWS
    texts = env.read_text(written / "text").filter(col("year") == 2021).to_arrow()
    assert sorted(texts["value"].to_pylist()) == sorted(r["s"] for r in ROWS if r["year"] == 2021 and r["s"])


def test_spark_and_duckdb_read_what_we_wrote(spark, env, tmp_path):
    stream = env.from_collection(ROWS, DDL)
    options = {"partition_by": ["year", "who"]}
    stream.write_parquet(tmp_path / "parquet", **options)
    stream.write_json(tmp_path / "json", compression="gzip", **options)
    stream.write_csv(tmp_path / "csv", compression="bz2", **options)
    stream.select("s", "year").filter(col("s").is_valid()).write_text(tmp_path / "text", partition_by="year")
    env.execute("write")
    read = spark.read.schema(DDL)
    expected = spark.createDataFrame(ROWS, DDL).orderBy("n").collect()
    columns = [name.split()[0] for name in DDL.split(", ")]
    assert spark.read.parquet(str(tmp_path / "parquet")).select(columns).orderBy("n").collect() == expected
    assert read.json(str(tmp_path / "json")).select(columns).orderBy("n").collect() == expected
    csv = read.csv(str(tmp_path / "csv"), header=True, escape='"')
    assert csv.select(columns).orderBy("n").collect() == expected
    texts = spark.read.text(str(tmp_path / "text")).where("year = 2022").collect()
    assert sorted(row.value for row in texts) == sorted(r["s"] for r in ROWS if r["year"] == 2022 and r["s"])
    found = duckdb.sql(
        f"select n, year, who from read_parquet('{tmp_path}/parquet/*/*/*.parquet', hive_partitioning=true) order by n"
    ).fetchall()
    assert found == [(r["n"], r["year"], r["who"]) for r in ROWS]


def test_read_key_write_append_and_read_again(env, written, tmp_path):
    for _ in range(2):
        stream = env.read_json(written / "json", schema=DDL).filter(col("year") < 2022)
        counts = stream.key_by("year", "who").aggregate({"n": "sum", "rows": ("n", "count")})
        counts.write_csv(tmp_path / "out", partition_by="year", mode="append", max_file_size="1 MiB")
        result = env.execute("append")
    assert "[2 of 3 partitions]" in result.explain()
    back = env.read_csv(tmp_path / "out").collect()
    expected = [{"who": w, "n": sum(r["n"] for r in ROWS if (r["year"], r["who"]) == (y, w)), "rows": 20, "year": y}
                for y, w in ((2020, "a/b=c"), (2021, "50% é:"))]  # fmt: skip
    assert sorted(map(str, back)) == sorted(map(str, expected * 2))
    env.read_csv(tmp_path / "out").write_arrow(tmp_path / "out.arrow", mode="ignore")
    env.execute("copy")
    assert sorted(map(str, env.read_arrow(tmp_path / "out.arrow").collect())) == sorted(map(str, back))


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
    with pytest.raises(JobExecutionError, match=r"a\.csv, line 502: column 'n' is int32, and 'two' is none"):
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


def test_mirrors_that_lose_leave_no_files(spark, tmp_path):
    env = ExecutionEnvironment(
        spark=spark,
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
                    time.sleep(120)
                except FileExistsError:
                    pass
            yield batch

    rows = [{"k": i % 3, "v": i} for i in range(800)]
    stream = env.from_collection(rows).rebalance().map_in_arrow(slow_once, "k bigint, v bigint").set_parallelism(4)
    stream.write_json(tmp_path / "out", partition_by="k")
    began = time.monotonic()
    env.execute("mirrored")
    assert time.monotonic() - began < 60  # a mirror won
    assert sorted(r["v"] for r in env.read_json(tmp_path / "out").collect()) == list(range(800))
    assert [p.name for p in tmp_path.iterdir() if ".firesteel-" in p.name] == []
    parts = list((tmp_path / "out").rglob("part-*"))
    assert len(parts) == len({(p.parent, p.name.split("-")[1]) for p in parts})  # one attempt of each subtask


def test_a_tree_whose_columns_changed_is_read_as_spark_merges_it(spark, env, tmp_path):
    old = env.from_collection([{"n": i, "gone": f"g{i}", "x": i} for i in range(50)], "n bigint, gone string, x int")
    old.write_parquet(tmp_path / "t")
    env.execute("old")
    new = env.from_collection(
        [{"n": i, "new": i % 2 == 0, "x": i} for i in range(50, 90)], "n bigint, new boolean, x int"
    )
    new.write_parquet(tmp_path / "t", mode="append", merge_schema=True)
    env.execute("new")
    ours = env.read_parquet(tmp_path / "t", merge_schema=True)
    theirs = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "t"))
    assert sorted(ours.columns) == sorted(theirs.columns)
    expected = [row.asDict() for row in theirs.orderBy("n").collect()]
    assert by(ours.collect()) == by([{name: row[name] for name in ours.columns} for row in expected])
    kept = ours.filter((col("x") >= 45) & col("new").is_null())
    assert sorted(row["n"] for row in kept.collect()) == [45, 46, 47, 48, 49]
    assert ours.key_by("new").count().to_arrow().sort_by("new").to_pylist() == [
        {"new": False, "count": 20},
        {"new": True, "count": 20},
        {"new": None, "count": 50},
    ]


def test_lines_that_cannot_be_read_go_through_a_job(env, tmp_path):
    lines = [f"{i},{i / 4}" if i % 100 else f"{i},oops" for i in range(100_000)]
    (tmp_path / "a.csv").write_text("\n".join(["n,x", *lines]))
    rows = env.read_csv(tmp_path / "a.csv", schema="n bigint, x double", corrupt_column="bad")
    rows = rows.set_parallelism(3)
    assert sorted(r["bad"] for r in rows.filter(col("bad").is_valid()).select("bad").collect()) == sorted(
        f"{i},oops" for i in range(0, 100_000, 100)
    )
    good = rows.filter(col("bad").is_null()).agg(n=("n", "sum"), rows=("n", "count")).collect()
    assert good == [{"n": sum(i for i in range(100_000) if i % 100), "rows": 99_000}]

"""Files there and back: Spark's output as input, and our output read by Spark and DuckDB."""

from __future__ import annotations

import datetime

import duckdb
import pyarrow as pa
import pytest

from firesteel import col

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
    moments = [
        row.pop("t").replace(tzinfo=datetime.UTC) for row in parquet
    ]  # Spark's default, INT96, says nothing of a zone
    assert moments == [row["t"] for row in ROWS]
    assert parquet == [{name: value for name, value in row.items() if name != "t"} for row in ROWS]
    assert by(env.read_json(written / "json", schema=DDL).collect()) == ROWS
    assert by(env.read_csv(written / "csv", schema=DDL, escape="\\").collect()) == ROWS
    inferred = env.read_csv(written / "csv", escape="\\")
    assert inferred.schema.field("year").type == pa.int32()
    assert by(inferred.collect()) == ROWS
    texts = env.read_text(written / "text").filter(col("year") == 2021).to_arrow()
    assert sorted(texts["value"].to_pylist()) == sorted(r["s"] for r in ROWS if r["year"] == 2021 and r["s"])


OLD_DAYS = (
    "-9999-12-31",
    "-0044-03-15",
    "0001-01-01",
    "0004-02-29",
    "1000-01-01",
    "1500-02-28",
    "1582-10-04",
    "1582-10-15",
    "1899-12-31",
    "9999-12-31",
)


@pytest.mark.parametrize("form", ["INT96", "TIMESTAMP_MICROS"])
def test_days_of_the_calendar_before_spark_3_are_as_spark_reads_them(spark, env, tmp_path, form):
    settings = {f"spark.sql.parquet.{key}RebaseModeInWrite": "LEGACY" for key in ("datetime", "int96")}
    settings |= {"spark.sql.parquet.outputTimestampType": form, "spark.sql.session.timeZone": "UTC"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        rows = ", ".join(
            f"(DATE'{day}')" for day in OLD_DAYS[form == "INT96" :]
        )  # Arrow reads no 96 bits before 4713 BC
        spark.sql(
            "SELECT d, t, CAST(t AS TIMESTAMP_NTZ) AS n, map(d, array(t, NULL)) AS m, named_struct('d', d, 't', t) AS s FROM "
            f"(SELECT d, CAST(d AS TIMESTAMP) + INTERVAL '1' MICROSECOND AS t FROM VALUES {rows} v(d))"
        ).write.parquet(str(tmp_path / "t"))
    finally:
        for name in settings:
            spark.conf.set(name, "UTC") if "Zone" in name else spark.conf.unset(name)
    theirs = spark.read.parquet(str(tmp_path / "t")).toArrow()
    mine = env.read_parquet(tmp_path / "t").to_arrow().cast(theirs.schema)
    assert mine.sort_by("d").equals(theirs.sort_by("d"))


def test_spark_and_duckdb_read_what_we_wrote(spark, env, tmp_path):
    stream = env.from_collection(ROWS, DDL)
    options = {"partition_by": ["year", "who"]}
    stream.write_parquet(tmp_path / "parquet", **options)
    stream.write_json(tmp_path / "json", compression="gzip", **options)
    stream.write_csv(tmp_path / "csv", compression="bz2", **options)
    stream.select("s", "year").filter(col("s").isNotNull()).write_text(tmp_path / "text", partition_by="year")
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


@pytest.mark.full
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


@pytest.mark.full
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
    kept = ours.filter((col("x") >= 45) & col("new").isNull())
    assert sorted(row["n"] for row in kept.collect()) == [45, 46, 47, 48, 49]
    assert ours.key_by("new").count().to_arrow().sort_by("new").to_pylist() == [
        {"new": False, "count": 20},
        {"new": True, "count": 20},
        {"new": None, "count": 50},
    ]

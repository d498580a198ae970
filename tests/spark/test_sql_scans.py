"""Files that Spark's plans name and our own tasks read, compared with Spark: rows, types, and how little is read."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from firesteel.compile.stream_graph import reachable
from firesteel.errors import JobExecutionError
from firesteel.sql.plans.versions import VERSIONS
from sql_plans_kit import version
from sql_scans_kit import assert_as_spark, assert_left_to_spark, rows, sources

pytestmark = pytest.mark.spark


def groups_read(stream):
    """Row groups of Parquet files."""
    (source,) = sources(stream)
    return sum(len(part.row_groups) for split in source.list_splits(1 << 30) for part in split.payload)


def files_read(stream):
    (source,) = sources(stream)
    return len({part.path for split in source.list_splits(1 << 30) for part in split.payload})


# --- partitions -----------------------------------------------------------------------------------------------------

PARTITIONED = """
    SELECT id AS n, CAST(id % 3 AS INT) AS p,
      CASE WHEN id % 4 = 0 THEN NULL WHEN id % 4 = 1 THEN 'a=1/x%20\u00e4' ELSE concat('k', id % 4) END AS q
    FROM range(48)"""
CONDITIONS = {
    "n > 40": 7,
    "p = 1": 4,
    "P IN (0, 2) AND q IS NOT NULL": 6,
    "q IS NULL": 3,
    "q LIKE 'a=%' AND n < 30": 3,
    "p + 1 = 2 OR q = 'k2'": 6,
    "p = (SELECT max(p) FROM parts)": 12,
    "p > n": 12,
    "p = 7": 0,
}


@pytest.fixture(scope="module")
def parts(spark, tmp_path_factory):
    home = str(tmp_path_factory.mktemp("parts"))
    spark.sql(PARTITIONED).repartition(1).write.mode("overwrite").partitionBy("p", "q").parquet(home)
    spark.read.parquet(home).createOrReplaceTempView("parts")
    return home


@pytest.mark.parametrize(
    "condition",
    [c if c.startswith("q LIKE") else pytest.param(c, marks=pytest.mark.full) for c in CONDITIONS],
)
def test_directories_are_left_out_by_the_querys_conditions(spark, env, parts, condition):
    stream = assert_as_spark(env, spark.sql(f"SELECT p, q, n FROM parts WHERE {condition}"))
    if "SELECT" not in condition and CONDITIONS[condition]:
        assert files_read(stream) == CONDITIONS[condition]


@pytest.mark.full
def test_only_partition_columns_are_wanted(spark, env, parts):
    assert_as_spark(env, spark.sql("SELECT q, count(*) AS c FROM parts GROUP BY q"))
    assert_as_spark(env, spark.sql("SELECT count(*) AS c FROM parts"))
    assert_as_spark(env, spark.sql("SELECT DISTINCT p FROM parts"))


VALUES = {
    "long": "CAST(id * 5000000000 AS BIGINT)",
    "decimal": "CAST(id AS DECIMAL(10,2)) / 4",
    "double": "id / 4",
    "date": "date_add(DATE'1500-12-31', CAST(id AS INT))",
    "timestamp": "timestamp_micros(1700000000123456 + id * 1000003)",
    "boolean": "id > 3",
    "string": "concat('0', id)",
    "mixed": "CASE WHEN id < 3 THEN '' WHEN id = 4 THEN 'a:b\"' ELSE concat(' ', id) END",
}


@pytest.mark.full
@pytest.mark.parametrize("infer", ["true", "false"])
@pytest.mark.parametrize("value", VALUES)
def test_values_of_partition_columns_are_sparks(spark, env, tmp_path, value, infer):
    written = spark.sql(f"SELECT id AS n, {VALUES[value]} AS p FROM range(6)")
    written.repartition(1).write.partitionBy("p").parquet(str(tmp_path / "t"))
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", infer)
    try:
        assert_as_spark(env, spark.read.parquet(str(tmp_path / "t")))
    finally:
        spark.conf.unset("spark.sql.sources.partitionColumnTypeInference.enabled")
    given = spark.read.schema(written.schema).parquet(str(tmp_path / "t"))
    assert_as_spark(env, given)


@pytest.mark.full
def test_a_partition_column_in_the_files_too(spark, env, tmp_path):
    for p in (1, 2):
        folder = tmp_path / f"P={p}"
        folder.mkdir()
        pq.write_table(pa.table({"n": [p], "p": [p * 10], "s": ["x"]}), folder / "a.parquet")
    frame = spark.read.parquet(str(tmp_path))
    assert_as_spark(env, frame)
    assert files_read(assert_as_spark(env, frame.filter("p = 2"))) == 1


@pytest.mark.full
def test_tables_of_the_catalog(spark, env):
    spark.sql("DROP TABLE IF EXISTS scans_parted")
    spark.sql("CREATE TABLE scans_parted (n BIGINT, s STRING, d DATE, k INT) USING parquet PARTITIONED BY (d, k)")
    try:
        spark.sql(
            "INSERT INTO scans_parted SELECT id, 's', date_add(DATE'2024-01-01', CAST(id % 3 AS INT)), id % 2 FROM range(12)"
        )
        spark.sql("INSERT INTO scans_parted VALUES (100, NULL, NULL, NULL)")
        table = spark.table("scans_parted")
        assert_as_spark(env, table)
        assert files_read(assert_as_spark(env, table.filter("d = DATE'2024-01-02' AND k = 1"))) <= 2
        assert files_read(assert_as_spark(env, table.filter("k IS NULL"))) == 1
        spark.sql("ALTER TABLE scans_parted ADD COLUMN (x INT)")
        assert_as_spark(env, spark.table("scans_parted"))
        query = "SELECT t.n FROM scans_parted t JOIN (SELECT DATE'2024-01-02' AS d, id FROM range(3)) r ON t.d = r.d"
        assert_as_spark(env, spark.sql(query))
    finally:
        spark.sql("DROP TABLE scans_parted")


@pytest.mark.full
def test_pruning_by_a_joins_other_side_is_only_a_hint(spark, env, parts, tmp_path):
    spark.sql("SELECT id AS k, id % 2 AS e FROM range(100)").write.parquet(str(tmp_path / "d"))
    spark.read.parquet(str(tmp_path / "d")).createOrReplaceTempView("dims")
    frame = spark.sql("SELECT n, k FROM parts JOIN dims ON p = k WHERE e = 1")
    assert "dynamicpruning" in frame._jdf.queryExecution().optimizedPlan().toString()
    assert_as_spark(env, frame)


@pytest.mark.full
def test_buckets_globs_and_folders_in_folders(spark, env, tmp_path):
    spark.sql("DROP TABLE IF EXISTS scans_bucketed")
    spark.sql(
        "CREATE TABLE scans_bucketed USING parquet CLUSTERED BY (n) INTO 3 BUCKETS AS SELECT id AS n FROM range(20)"
    )
    try:
        assert_as_spark(env, spark.table("scans_bucketed").filter("n > 3"))
    finally:
        spark.sql("DROP TABLE scans_bucketed")
    home = tmp_path / "files"
    for name in ("a/x.parquet", "b/c/x.parquet", "b/c/y.parquet"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"s": [name]}), home / name)
    assert_as_spark(env, spark.read.option("recursiveFileLookup", "true").parquet(str(home)))
    chosen = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "y*").parquet(str(home))
    assert files_read(assert_as_spark(env, chosen)) == 1
    assert_as_spark(env, spark.read.parquet(f"{home}/b/c/x.parquet", f"{home}/b/c/x.parquet"))


@pytest.mark.full
def test_odd_names(spark, env, tmp_path):
    folder = tmp_path / "sp ace%20\u00e4+#'"
    folder.mkdir()
    pq.write_table(pa.table({'a "b"': [1], "c d": ["x"], "e.f": [2]}), folder / "x %41.parquet")
    assert_as_spark(env, spark.read.parquet(str(folder)))


# --- statistics ------------------------------------------------------------------------------------------------------

ROWS = 4000
HINTS = {
    "i = 77": 1,
    "i IN (5, 3999)": 2,
    "l > 3900": 1,
    "l <= 10 OR l > 3990": 3,
    "l <= 10 OR f > 3": 9,
    "s = 'k00077'": 1,
    "s LIKE 'k0039%'": 1,
    "s IN ('k00001', NULL)": 2,
    "d < DATE'2000-02-01'": 2,
    "c >= 39.5": 1,
    "t = TIMESTAMP'2000-01-01 03:00:00'": 1,
    "z < TIMESTAMP_NTZ'2000-01-01 03:00:00'": 2,
    "u IS NOT NULL": 4,
    "i BETWEEN 100 AND 200 AND s > 'k00150'": 1,
    "5 > l": 2,
    "i IS NULL": 9,
    "i <=> 5": 1,
    "-l < -3990": 9,
    "l < 0": 0,
    "i IN (" + ", ".join(map(str, range(100, 200))) + ")": 1,
    "NOT (l < 3900)": 1,
    "l <> 5": 9,
}


@pytest.fixture(scope="module")
def stats(spark, tmp_path_factory):
    """Nine row groups, one of them with nulls and NaN alone."""
    home, n = tmp_path_factory.mktemp("stats"), range(ROWS)
    begun = dt.datetime(2000, 1, 1)
    table = pa.table(
        {
            "i": pa.array(n, pa.int32()),
            "l": pa.array(n, pa.int64()),
            "s": [f"k{j:05d}" for j in n],
            "d": [begun.date() + dt.timedelta(days=j) for j in n],
            "c": pa.array([decimal.Decimal(j) / 100 for j in n], pa.decimal128(9, 2)),
            "t": pa.array([begun + dt.timedelta(minutes=j) for j in n], pa.timestamp("us", "UTC")),
            "z": pa.array([begun + dt.timedelta(minutes=j) for j in n], pa.timestamp("us")),
            "f": [float(j) for j in n],
            "u": pa.array([j if j < ROWS // 2 else None for j in n], pa.int64()),
        }
    )
    pq.write_table(table, home / "a.parquet", row_group_size=ROWS // 8)
    odd = table.slice(0, 5).to_pydict() | {"i": [None] * 5, "u": [None] * 5, "f": [math.nan] * 5}
    pq.write_table(pa.table(odd, table.schema), home / "b.parquet")
    spark.read.parquet(str(home)).createOrReplaceTempView("stats")
    return home


@pytest.mark.full
@pytest.mark.parametrize("condition", HINTS)
def test_row_groups_are_left_out_by_statistics(spark, env, stats, condition):
    stream = assert_as_spark(
        env, spark.sql(f"SELECT count(*) AS c, sum(l) AS l, max(s) AS s FROM stats WHERE {condition}")
    )
    assert groups_read(stream) == HINTS[condition]


# --- schemas ---------------------------------------------------------------------------------------------------------

DECIMAL = decimal.Decimal


@pytest.mark.full
def test_columns_that_came_later_and_types_that_grew(spark, env, tmp_path):
    old = pa.table(
        {
            "a": pa.array([1, None], pa.int32()),
            "c": pa.array([DECIMAL("1.5"), None], pa.decimal128(5, 1)),
            "e": pa.array([1.5, 2], pa.float32()),
        }
    )
    new = pa.table(
        {
            "b": ["x"],
            "a": pa.array([1 << 40], pa.int64()),
            "c": pa.array([DECIMAL("2.25")], pa.decimal128(9, 2)),
            "e": [0.1],
        }
    )
    pq.write_table(old, tmp_path / "a.parquet")
    pq.write_table(new, tmp_path / "b.parquet")
    given = "a bigint, b string, c decimal(9,2), e double, g date"
    frame = spark.read.schema(given).parquet(str(tmp_path))
    if not VERSIONS[version()].widens:  # there Spark reads the column neither
        for name in "ace":
            assert f"the column {name} is" in env.from_dataframe(frame.select(name)).explain()
        assert_as_spark(env, frame.select("b", "g"))
        return
    assert_as_spark(env, frame)
    assert_as_spark(env, frame.filter("a > 5 OR b IS NULL"))
    assert_as_spark(env, frame.filter("g IS NULL AND c > 1"))
    assert_as_spark(env, frame.filter("a > 5"))
    assert_as_spark(env, frame.select("g"))


@pytest.mark.full
def test_merged_schemas(spark, env, tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"c": [2.5], "a": [3]}), tmp_path / "b.parquet")
    assert_as_spark(env, spark.read.option("mergeSchema", "true").parquet(str(tmp_path)))
    assert_as_spark(env, spark.read.parquet(str(tmp_path)))  # of one of the files


@pytest.mark.full
def test_names_in_another_case(spark, env, tmp_path):
    pq.write_table(pa.table({"Aa": [1], "B": ["x"]}), tmp_path / "a.parquet")
    frame = spark.read.schema("aA bigint, b string").parquet(str(tmp_path))
    assert_as_spark(env, frame.filter("AA = 1"))
    pq.write_table(pa.table({"aa": [1], "B": ["x"]}), tmp_path / "b.parquet")
    assert_left_to_spark(
        env, spark.read.schema("aA bigint, b string").parquet(str(tmp_path)), "written in several ways"
    )


@pytest.mark.full
def test_types_that_writers_choose(spark, env, tmp_path):
    when = dt.datetime(2024, 5, 6, 7, 8, 9, 123000)
    table = pa.table(
        {
            "text": pa.array(["a", None], pa.large_string()),
            "words": pa.array(["a", None]).dictionary_encode(),
            "bytes": pa.array([b"a", None], pa.large_binary()),
            "u8": pa.array([255, None], pa.uint8()),
            "u16": pa.array([65535, None], pa.uint16()),
            "u32": pa.array([4294967295, None], pa.uint32()),
            "ms": pa.array([when, None], pa.timestamp("ms", "UTC")),
            "zone": pa.array([when, None], pa.timestamp("us", "Europe/Vienna")),
            "plain": pa.array([when, None], pa.timestamp("us")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert_as_spark(env, spark.read.parquet(str(tmp_path)))


@pytest.mark.full
def test_timestamps_in_96_bits(spark, env, tmp_path):
    when = [dt.datetime(2024, 5, 6, 7, 8, 9, 123456), dt.datetime(1600, 1, 1), dt.datetime(9999, 12, 31, 23), None]
    kind = pa.timestamp("us")
    inside = {
        "s": (lambda t: {"t": t}, pa.struct([("t", kind)])),
        "l": (lambda t: [t, None], pa.list_(kind)),
        "m": (lambda t: [("k", t)], pa.map_(pa.string(), kind)),
    }
    nested = {name: pa.array([make(t) for t in when], of) for name, (make, of) in inside.items()}
    table = pa.table({"t": pa.array(when, kind), **nested})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    frame = spark.read.parquet(str(tmp_path))
    assert_as_spark(env, frame)
    assert_as_spark(env, frame.filter("t > TIMESTAMP'2024-01-01 00:00:00' AND s.t > TIMESTAMP'2024-01-01 00:00:00'"))
    local = spark.read.schema("s STRUCT<t: TIMESTAMP_NTZ>").parquet(str(tmp_path))
    assert_left_to_spark(env, local.filter("s IS NOT NULL"), "the times in the nested column s are read by Spark")
    spark.conf.set("spark.sql.parquet.int96TimestampConversion", "true")
    try:
        assert_left_to_spark(env, frame.filter("t IS NOT NULL"), "spark.sql.parquet.int96TimestampConversion")
    finally:
        spark.conf.unset("spark.sql.parquet.int96TimestampConversion")


@pytest.mark.full
def test_days_of_an_unknown_calendar(spark, env, tmp_path):
    """Spark may be told to raise where it does not know the calendar of a file that is not its own: Spark 3.5 is, if nothing is said."""
    days = pa.array([dt.date(1500, 3, 1), dt.date(2024, 5, 6)])
    moments = pa.array([dt.datetime(1899, 12, 31), None], pa.timestamp("ms", "UTC"))
    table = pa.table(
        {"n": [1, 2], "d": days, "t": moments, "s": pa.array([{"d": one} for one in days]), "w": days[1:].take([0, 0])}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path))
    settings = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
    try:
        for name in settings:
            spark.conf.set(name, "EXCEPTION")
        assert_as_spark(env, frame.select("n", "w").filter("w > DATE'2000-01-01'"))
        for name in ("d", "t", "s"):
            stream = env.from_dataframe(frame.select("n", name))
            assert f"may be in {name}: Spark judges them" in stream.explain()
            with pytest.raises(JobExecutionError, match=r"Upgrade|ANCIENT_DATETIME"):
                stream.to_arrow()
        frame.select("n", "w").write.parquet(str(tmp_path / "own"))
        assert_as_spark(env, spark.read.parquet(str(tmp_path / "own")))
        spark.conf.set(settings[0], "LEGACY")
        assert f"{settings[0]} is Spark's own" in env.from_dataframe(frame.select("n", "w")).explain()
    finally:
        for name in settings:
            spark.conf.set(name, "CORRECTED")
    assert_as_spark(env, frame)


# --- what stays with Spark -------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.skipif(pyspark.__version__ < "4", reason="all its types are known")
def test_only_the_wanted_columns_need_known_types(spark, env, tmp_path):
    spark.sql("SELECT id, parse_json('1') AS i FROM range(3)").write.parquet(str(tmp_path / "t"))
    frame = spark.read.parquet(str(tmp_path / "t"))
    assert_as_spark(env, frame.select("id").filter("id > 0"))
    assert_as_spark(env, frame.groupBy().count())


@pytest.mark.full
def test_what_spark_reads(spark, env, parts, tmp_path):
    files = spark.read.parquet(parts)
    for columns in ("_metadata.file_size", "input_file_name()"):
        frame = files.selectExpr("n", f"length({columns}) > 0 AS x")
        assert_left_to_spark(env, frame, "taken over" if "input" in columns else "")
    assert_left_to_spark(env, spark.read.option("ignoreCorruptFiles", "true").parquet(parts), "Spark's own")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        assert_left_to_spark(env, files, "spark.sql.files.ignoreMissingFiles")
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.full
def test_defaults_of_columns_that_files_lack(spark, env):
    spark.sql("DROP TABLE IF EXISTS scans_default")
    spark.sql("CREATE TABLE scans_default (n BIGINT) USING parquet")
    try:
        spark.sql("INSERT INTO scans_default VALUES (1)")
        spark.sql("ALTER TABLE scans_default ADD COLUMN (x INT DEFAULT 7)")
        assert_left_to_spark(env, spark.table("scans_default"), "the default of the column x")
        assert_as_spark(env, spark.table("scans_default").select("n"))
    finally:
        spark.sql("DROP TABLE scans_default")


@pytest.mark.full
def test_texts_padded_to_their_length(spark, env):
    spark.sql("DROP TABLE IF EXISTS scans_char")
    spark.sql("CREATE TABLE scans_char (c CHAR(5), v VARCHAR(5), n INT) USING parquet")
    try:
        spark.sql("INSERT INTO scans_char VALUES ('ab', 'ab', 1)")
        table = spark.table("scans_char")
        stream = env.from_dataframe(table.filter("c = 'ab'"))
        assert rows(stream.to_arrow()) == rows(table.filter("c = 'ab'").toArrow())
        assert_as_spark(env, table.select("v", "n"))
    finally:
        spark.sql("DROP TABLE scans_char")


@pytest.mark.full
def test_spark_reads_only_what_is_chosen_of_a_relation(spark, env, tmp_path):
    spark.sql("SELECT id AS a, id + 1 AS b, 'x' AS c FROM range(5)").write.orc(str(tmp_path / "o"))
    frame = spark.read.option("ignoreCorruptFiles", "true").orc(str(tmp_path / "o")).filter("a > 2").select("b")
    joined = frame.join(spark.range(10).toDF("b"), "b")
    stream = env.from_dataframe(joined)
    assert rows(stream.to_arrow()) == rows(joined.toArrow())
    names = [
        node.schema.names for node in reachable([stream._pipeline.node], lambda node: True) if node.kind == "spark"
    ]
    assert [len(each) for each in names] == [1]


# --- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "bounds",
    [
        "10",
        "5, 1000000, 3",
        "10, -10, -3",
        "0",
        "9223372036854775800, 9223372036854775807",
        "-4611686018427387904, 4611686018427387903, 2305843009213693952",
    ],
)
def test_ranges(spark, env, bounds):
    assert_as_spark(env, spark.sql(f"SELECT id, id % 7 AS r FROM range({bounds}) WHERE id % 2 = 0 OR id > 5"))

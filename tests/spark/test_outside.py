"""read_with_spark and write_with_spark: JDBC on an embedded Derby, Spark's own formats, a data source in Python."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage

from firesteel import col
from firesteel.cli.script import run_script
from firesteel.errors import JobExecutionError, UsageError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("s", pa.string())])
ROWS = [{"k": i, "s": f"row {i}"} for i in range(100)]


@pytest.fixture
def database(spark, tmp_path):
    """Options of a Derby database in memory, dropped after the test."""
    spark._jvm.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:memory:{uuid.uuid4().hex}"
    yield {"url": f"{url};create=true"}
    with pytest.raises(Exception, match="dropped"):
        spark._jvm.java.sql.DriverManager.getConnection(f"{url};drop=true")


def sql(spark, database, *statements):
    connection = spark._jvm.java.sql.DriverManager.getConnection(database["url"])
    try:
        for statement in statements:
            connection.createStatement().execute(statement)
    finally:
        connection.close()


def by_key(rows):
    return sorted(rows, key=lambda row: row["k"])


def table_rows(env, database, table="t"):
    """As plain Spark reads it."""
    frame = env.spark.read.format("jdbc").options(**database, dbtable=table).load()
    return by_key([row.asDict() for row in frame.collect()])


@pytest.mark.full
def test_a_database_is_written_and_read_in_parts(env, database):
    env.from_collection(ROWS, SCHEMA).filter(col("k") >= 10).write_with_spark("jdbc", **database, dbtable="t")
    env.execute("to Derby")
    assert table_rows(env, database) == ROWS[10:]
    stream = env.read_with_spark(
        "jdbc", **database, dbtable="t", partitionColumn="k", lowerBound=10, upperBound=100, numPartitions=4
    )
    assert stream.columns == ["k", "s"]
    read = stream.map_in_arrow(with_task, "k int, task bigint").collect()
    assert [row["k"] for row in by_key(read)] == list(range(10, 100))
    assert len({row["task"] for row in read}) == 4, "one subtask per partition"
    chosen = env.read_with_spark("jdbc", **database, query='select count(*) as n from t where "k" < 20').collect()
    assert [list(row.values()) for row in chosen] == [[10]]


def with_task(batches):
    from pyspark import TaskContext

    for batch in batches:
        task = TaskContext.get().partitionId()
        yield pa.record_batch({"k": batch["k"], "task": pa.array([task] * len(batch), pa.int64())})


@pytest.mark.full
def test_the_modes_are_those_of_spark(env, database):
    few = env.from_collection(ROWS[:3], SCHEMA)

    def write(stream, mode):
        stream.write_with_spark("jdbc", mode=mode, **database, dbtable="t")
        env.execute(mode)
        return table_rows(env, database)

    assert write(few, "error") == ROWS[:3]
    with pytest.raises(UsageError, match="The table t exists already"):
        write(few, "error")
    assert write(env.from_collection(ROWS[3:5], SCHEMA), "append") == ROWS[:5]
    assert write(few, "ignore") == ROWS[:5]
    assert write(few, "overwrite") == ROWS[:3]
    few.write_with_spark("jdbc", mode="append", **database, dbtable="t")
    few.write_with_spark("jdbc", mode="append", **database, dbtable="t")
    env.execute("two sinks may append to one table")
    assert len(table_rows(env, database)) == 9
    few.write_with_spark("jdbc", mode="overwrite", **database, dbtable="t")
    few.write_with_spark("jdbc", mode="overwrite", **database, dbtable="t")
    with pytest.raises(UsageError, match="are the same"):
        env.execute()
    assert write(few.filter(col("k") > 100), "overwrite") == []


@pytest.mark.full
def test_a_failed_job_has_written_nothing_to_the_database(env, database, tmp_path):
    def fail(batches):
        for batch in batches:
            yield batch
            raise ValueError("no such luck")

    stream = env.from_collection(ROWS, SCHEMA)
    stream.map_in_arrow(fail, SCHEMA).write_with_spark("jdbc", **database, dbtable="t")
    stream.write_with_spark("orc", tmp_path / "orc")
    with pytest.raises(JobExecutionError, match="no such luck"):
        env.execute("fails")
    with pytest.raises(Exception, match="does not exist"):
        table_rows(env, database)
    assert not (tmp_path / "orc").exists()


@pytest.mark.full
def test_when_the_database_refuses_rows_other_outputs_are_taken_back(env, database, tmp_path):
    sql(
        env.spark,
        database,
        'create table t ("k" int primary key, "s" varchar(20))',
        "insert into t values (99, 'was here')",
    )
    stream = env.from_collection(ROWS, SCHEMA)
    stream.write_parquet(tmp_path / "out")
    stream.write_with_spark("jdbc", mode="append", **database, dbtable="t", numPartitions=1, batchsize=10)
    with pytest.raises(JobExecutionError, match="could not be published: Spark could not write jdbc t"):
        env.execute("duplicate key")
    assert not (tmp_path / "out").exists()
    assert table_rows(env, database) == [{"k": 99, "s": "was here"}], "numPartitions=1: one transaction"


def test_spark_formats_share_a_job_with_other_sinks(env, tmp_path):
    stream = env.from_collection(ROWS, SCHEMA).with_column("part", col("k") >= 50)
    stream.write_with_spark("orc", tmp_path / "orc", partition_by="part", compression="zlib")
    stream.write_parquet(tmp_path / "parquet")
    stream.write_with_spark("noop", mode="append")
    stream.write_with_spark("noop", mode="append")
    assert not (tmp_path / "orc").exists(), "nothing is written before the job"
    env.execute("both")
    assert sorted(p.name for p in (tmp_path / "orc").glob("part=*")) == ["part=false", "part=true"]
    read = env.read_with_spark("orc", tmp_path / "orc").select("k", "s").collect()
    assert by_key(read) == ROWS == by_key(env.read_parquet(tmp_path / "parquet").select("k", "s").collect())
    stream.write_with_spark("orc", str(tmp_path / "orc"))
    with pytest.raises(UsageError, match="exists already"):
        env.execute()


@pytest.mark.full
def test_a_schema_and_options_reach_the_reader(env, tmp_path):
    (tmp_path / "a.csv").write_text("1;x\n2;y\n")
    (tmp_path / "b.csv").write_text("3;z\n")
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for schema in ("k int, s string", SCHEMA):
        read = env.read_with_spark("csv", paths, schema=schema, sep=";", header=False, nullValue=None)
        assert by_key(read.collect()) == [{"k": 1, "s": "x"}, {"k": 2, "s": "y"}, {"k": 3, "s": "z"}]


class Squares(DataSource):
    @classmethod
    def name(cls):
        return "squares"

    def schema(self):
        return "k int, s string"

    def reader(self, schema):
        return SquaresReader(int(self.options["to"]))

    def writer(self, schema, overwrite):
        return FilesWriter(self.options["path"])


class SquaresReader(DataSourceReader):
    def __init__(self, to):
        self.to = to

    def partitions(self):
        return [InputPartition(start) for start in range(0, self.to, 5)]

    def read(self, partition):
        for k in range(partition.value, min(partition.value + 5, self.to)):
            yield k, str(k * k)


class FilesWriter(DataSourceWriter):
    def __init__(self, path):
        self.path = path

    def write(self, rows):
        from pathlib import Path

        with Path(self.path).open("a") as file:
            file.writelines(f"{row.k} {row.s}\n" for row in rows)
        return WriterCommitMessage()


@pytest.mark.full
def test_a_data_source_written_in_python(env, tmp_path):
    env.spark.dataSource.register(Squares)
    stream = env.read_with_spark("squares", to=12)
    assert by_key(stream.collect()) == [{"k": k, "s": str(k * k)} for k in range(12)]
    stream.filter(col("k") > 9).write_with_spark("squares", tmp_path / "lines", mode="append")
    env.execute("squares")
    assert sorted((tmp_path / "lines").read_text().split("\n")) == ["", "10 100", "11 121"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("format", "hint"),
    [
        ("delta", "io.delta:delta-spark_2.13:VERSION"),
        ("delta", "io.delta.sql.DeltaSparkSessionExtension"),
        ("kafka", "org.apache.spark:spark-sql-kafka-0-10_2.13:4."),
        ("iceberg", "org.apache.iceberg:iceberg-spark-runtime-4."),
        ("orcc", "Did you mean 'orc'?"),
        ("nobody.knows", "spark.jars.packages"),
        (3, "Name one of Spark"),
    ],
)
def test_a_format_that_is_not_there_names_its_package(env, format, hint):
    for use in (lambda: env.read_with_spark(format), lambda: env.from_collection(ROWS).write_with_spark(format)):
        with pytest.raises(UsageError) as raised:
            use()
        assert raised.value.exit_code == 2
        assert hint in str(raised.value)
        assert "test_outside.py:" in str(raised.value)


@pytest.mark.full
def test_what_is_wrong_with_a_database_is_said_before_the_job(env, database):
    stream = env.from_collection(ROWS, SCHEMA)
    with pytest.raises(
        UsageError, match=r"does not have a driver for jdbc:postgresql URLs.*org\.postgresql:postgresql"
    ):
        env.read_with_spark("jdbc", url="jdbc:postgresql://host/db", dbtable="t")
    with pytest.raises(UsageError, match=r"does not have the class org\.mariadb\.jdbc\.Driver.*mariadb-java-client"):
        env.read_with_spark("jdbc", url="jdbc:mariadb://host/db", dbtable="t", driver="org.mariadb.jdbc.Driver")
    with pytest.raises(UsageError, match="'not a url' is not a JDBC URL"):
        env.read_with_spark("jdbc", url="not a url", dbtable="t")
    with pytest.raises(UsageError, match=r"Spark cannot read jdbc.*'NOWHERE' does not exist"):
        env.read_with_spark("jdbc", **database, dbtable="nowhere")
    with pytest.raises(UsageError, match="'dbtable' or 'query' is required"):
        env.read_with_spark("jdbc", **database)
    for options, words in [
        ({"url": "jdbc:mysql://h/d", "dbtable": "t"}, "com.mysql:mysql-connector-j"),
        ({"url": "jdbc:derby:memory:never-made", "dbtable": "t"}, "cannot be reached.*never-made"),
        (database, "needs the options url and dbtable"),
    ]:
        stream.write_with_spark("jdbc", **options)
        with pytest.raises(UsageError, match=words):
            env.execute()
    with pytest.raises(UsageError, match="mode='replace' is not a way"):
        stream.write_with_spark("orc", "x", mode="replace")
    with pytest.raises(UsageError, match="no column 'z' to partition by"):
        stream.write_with_spark("orc", "x", partition_by="z")
    with pytest.raises(UsageError, match="The option sep is a list"):
        stream.write_with_spark("csv", "x", sep=[";"])


@pytest.mark.full
def test_secrets_are_in_no_message_and_leave_the_driver_in_no_sink(env, database):
    import pickle

    secret = "open-sesame"
    node = env.from_collection(ROWS, SCHEMA).write_with_spark("jdbc", **database, dbtable="t", password=secret)._node
    assert secret not in repr(node)
    assert secret.encode() not in pickle.dumps(node.work.sink)
    env.compile()
    for url in (f"jdbc:derby:memory:none;password={secret}", f"jdbc:oops://me:{secret}@host/db?pwd={secret}"):
        with pytest.raises(UsageError) as raised:
            env.read_with_spark("jdbc", url=url, dbtable="t")
        assert secret not in str(raised.value)


@pytest.mark.full
def test_a_script_with_a_missing_driver_exits_with_2(spark, tmp_path, capsys):
    script = tmp_path / "load.py"
    script.write_text(
        "from firesteel import ExecutionEnvironment\n"
        "env = ExecutionEnvironment.get_or_create()\n"
        "env.read_with_spark('jdbc', url='jdbc:sqlite:x.db', dbtable='t').show()\n"
    )
    assert run_script(script, []) == 2
    told = capsys.readouterr().err
    assert "load.py:3" in told and "org.xerial:sqlite-jdbc" in told and "Traceback" not in told

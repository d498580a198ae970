"""Which Sparks are refused, what is asked of PySpark where its versions differ, and which Java each can have."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas import types as pyspark_types
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import Row, StructType

from firesteel import ExecutionEnvironment
from firesteel.errors import UsageError
from firesteel.spark.session import gateway, older_rows, versions
from firesteel.spark.session import sessions as session


@pytest.mark.parametrize("version", ["3.5.0", "3.5.9", "4.0.5", "4.3.1-SNAPSHOT", "4.10.0"])
def test_these_are_taken(version):
    versions.check_spark(version)


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8", "5.0.0", "preview"])
def test_these_are_refused(version):
    with pytest.raises(UsageError, match=rf"runs Spark {version}, and this Firesteel works with Spark 3\.5 to 4"):
        versions.check_spark(version)


def test_an_older_pyspark_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(UsageError, match=r"Installed is Spark 3\.4\.4") as told:
        _ = ExecutionEnvironment(master="local[1]").spark
    assert "pip install 'pyspark>=3.5,<5'" in str(told.value)


def test_streams_need_spark_4():
    versions.check_streaming("4.0.0")
    with pytest.raises(UsageError, match=r"Streams need Spark 4\.0 or newer, and this session runs Spark 3\.5\.9"):
        versions.check_streaming("3.5.9")


def test_an_older_pyspark_gives_timestamps_in_the_zone_that_was_asked_for(monkeypatch):
    def older(_schema):
        utc = pa.timestamp("us", "UTC")
        nested = pa.struct([("a", pa.list_(utc)), ("m", pa.map_(pa.string(), utc))])
        naive = pa.field("n", pa.timestamp("us"), nullable=False)
        return pa.schema([("t", utc), naive, ("s", nested), ("i", pa.int32())])

    monkeypatch.setattr(pyspark_types, "to_arrow_schema", older)
    found = versions.arrow_schema(None, "Europe/Berlin")
    there = pa.timestamp("us", "Europe/Berlin")
    assert found.field("t").type == there
    assert found.field("n") == pa.field("n", pa.timestamp("us"), nullable=False)
    assert found.field("s").type == pa.struct([("a", pa.list_(there)), ("m", pa.map_(pa.string(), there))])
    assert found.field("i").type == pa.int32()


def test_an_older_pyspark_gives_the_rows_of_a_newer_one():
    """Of the values that the JVM would have given it: bytes are a bytearray there."""
    moments = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 10, 27, 1, 30), None]
    utc, local = (pa.array(moments, kind) for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")))
    table = pa.table(
        {
            "n": [1, None, 3],
            "d": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("0.00")], pa.decimal128(9, 2)),
            "day": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
            "utc": utc,
            "local": local,
            "bytes": [b"a", None, b""],
            "list": pa.array([[moments[0], None], [], None], pa.list_(pa.timestamp("us", "UTC"))),
            "map": pa.array([[("k", moments[1].date())], None, []], pa.map_(pa.string(), pa.date32())),
            "struct": pa.array([{"a": moments[1], "b": [{"c": b"x"}]}, None, {"a": None, "b": None}]),
        }
    )
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    newer = ArrowTableToRowsConversion.convert(table, schema, binary_as_bytes=False)
    older = older_rows.rows_of_table(table, schema)
    assert older == newer
    assert repr(older) == repr(newer)
    assert older_rows.rows_of_table(table.select([]), StructType()) == [Row()] * 3
    late = pa.table({"t": pa.array([1 << 62], pa.timestamp("us"))})
    with pytest.raises((OverflowError, ValueError)):
        older_rows.rows_of_table(late, from_arrow_schema(late.schema, prefer_timestamp_ntz=True))


def test_a_pyspark_that_wants_distutils_where_there_is_none_says_what_to_install(monkeypatch):
    def as_in_spark_3_5(schema):
        return __import__("distutils.version")

    monkeypatch.setattr(pyspark_types, "to_arrow_schema", as_in_spark_3_5)
    monkeypatch.setitem(sys.modules, "distutils", None)
    with pytest.raises(UsageError, match=r"needs the module 'distutils'.*pip install setuptools"):
        versions.arrow_schema(StructType(), "UTC")


def test_naive_timestamps_stay_naive():
    made = versions.spark_schema(pa.schema([("n", pa.timestamp("us")), ("t", pa.timestamp("us", "UTC"))]))
    assert [type(field.dataType).__name__ for field in made] == ["TimestampNTZType", "TimestampType"]


@pytest.mark.parametrize(("spark", "newest"), [("3.5.9", 23), ("4.1.4", 23), ("4.2.0", None), ("4.3.0", None)])
def test_the_newest_java_of_a_spark(spark, newest):
    assert versions.newest_java(spark) == newest


def test_a_java_that_is_too_new_is_passed_over_or_refused(tmp_path, monkeypatch):
    for version in ("25", "21"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "java").write_text("#!/bin/sh\n")
        (tmp_path / version / "bin" / "java").chmod(0o755)
        (tmp_path / version / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    monkeypatch.setattr(gateway, "_wheel_home", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "25"))
    monkeypatch.setenv("PATH", str(tmp_path / "21" / "bin"))
    assert gateway.find_java_home() is None, "Spark takes that of JAVA_HOME"
    assert gateway.find_java_home(23) == str(tmp_path / "21")
    monkeypatch.setenv("PATH", str(tmp_path / "25" / "bin"))
    monkeypatch.setattr(session, "newest_java", lambda _: 23)
    with pytest.raises(UsageError, match=r"Spark 3\.5\.9 needs Java 17 to 23, and .*bin/java is Java 25"):
        session._interpreter_variables("3.5.9")


def test_dataframes_on_a_java_that_the_sparks_arrow_does_not_know_are_refused():
    def session_on(spark, java):
        system = SimpleNamespace(getProperty=lambda _: java)
        jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        frame = SimpleNamespace(mapInArrow=lambda *_: None)
        return SimpleNamespace(version=spark, sparkContext=SimpleNamespace(_jvm=jvm), range=lambda _: frame)

    for spark, good in (("3.5.9", "17"), ("4.0.5", "21"), ("4.3.0", "25")):
        versions.check_frames(session_on(spark, good))
    with pytest.raises(
        UsageError, match=r"Spark 3\.5\.9 cannot pass a DataFrame on with Java 21: its Arrow needs Java 20"
    ):
        versions.check_frames(session_on("3.5.9", "21"))


def test_the_rows_of_an_rdd_come_by_a_context_or_an_iterator(monkeypatch):
    """PySpark 4 gives something to close, 3.5 an iterator."""
    jvm = SimpleNamespace(PythonRDD=SimpleNamespace(runJob=lambda *_: "socket"))
    context = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(sc=lambda: None))
    rdd = SimpleNamespace(_jrdd=None, _jrdd_deserializer=None)
    monkeypatch.setattr("pyspark.util._load_from_socket", lambda *_: iter([1, 2]))
    with versions.rows_of(context, rdd, []) as rows:
        assert list(rows) == [1, 2]


def test_an_old_pyarrow_is_refused():
    versions.check_pyarrow()
    versions.check_pyarrow("27.1.0")
    with pytest.raises(
        UsageError, match=r"^Installed is pyarrow 25\.0\.1, and this Firesteel works with 26\.0 and newer"
    ):
        versions.check_pyarrow("25.0.1")

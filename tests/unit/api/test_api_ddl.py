"""Schemas as users write them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from firesteel.api.ddl import check_spark_types, parse_ddl, to_schema
from firesteel.errors import UsageError

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("tinyint", pa.int8()), ("BYTE", pa.int8()), ("smallint", pa.int16()), ("short", pa.int16()),
        ("int", pa.int32()), ("integer", pa.int32()), ("bigint", pa.int64()), ("long", pa.int64()),
        ("float", pa.float32()), ("real", pa.float32()), ("double", pa.float64()), ("string", pa.string()),
        ("varchar(10)", pa.string()), ("char(3)", pa.string()), ("binary", pa.binary()), ("Boolean", pa.bool_()),
        ("date", pa.date32()), ("timestamp", UTC), ("timestamp_ltz", UTC), ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)), ("decimal(5)", pa.decimal128(5, 0)), ("dec(38, 18)", pa.decimal128(38, 18)),
        ("numeric(12,2)", pa.decimal128(12, 2)), ("void", pa.null()), ("interval day to second", pa.duration("us")),
        ("interval hour", pa.duration("us")), ("time", pa.time64("ns")), ("time(6)", pa.time64("ns")),
        ("array<int>", pa.list_(pa.field("element", pa.int32()))),
        ("map<string, array<date>>", pa.map_(pa.string(), pa.list_(pa.field("element", pa.date32())))),
        ("struct<a: int, b string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("struct<>", pa.struct([])),
    ],
)  # fmt: skip
def test_types(ddl, kind):
    assert parse_ddl(f"x {ddl}").field("x").type == kind


def test_names_nulls_and_comments():
    schema = parse_ddl("a: int NOT NULL, `b ``c` string COMMENT 'it''s, all', 3d double comment \"x\", größe int")
    assert schema.names == ["a", "b `c", "3d", "größe"]
    assert [field.nullable for field in schema] == [False, True, True, True]
    nested = parse_ddl("s struct<x: int not null comment 'deep', y: double>").field("s").type
    assert not nested.field("x").nullable


def test_a_whole_struct_is_a_schema():
    assert parse_ddl("struct<a: int, b: string>") == pa.schema([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("a strin", "no type 'strin'.*Did you mean 'string'"),
        ("a", "column 'a' has no type"),
        ("a int b string", "expected ',' but found 'b'"),
        ("a int,", "expected a column name but found the end"),
        ("a array<int", "expected '>' but found the end"),
        ("a map<int>", "expected ',' but found '>'"),
        ("", "there is no column"),
        ("a interval year to month", "DAY TO SECOND"),
        ("a decimal(40, 2)", "1 to 38 digits"),
        ("a decimal(x)", "expected a number"),
        ("a int $", "cannot read"),
        ("a int, a string", "'a' twice"),
    ],
)
def test_errors_say_where(ddl, said):
    with pytest.raises(UsageError, match=said):
        to_schema(ddl)


def test_other_schemas():
    schema = pa.schema([("a", pa.int8())])
    assert to_schema(schema) is schema
    spark = T.StructType([T.StructField("a", T.ArrayType(T.TimestampType())), T.StructField("b", T.LongType(), False)])
    assert to_schema(spark) == parse_ddl("a array<timestamp>, b bigint not null")
    with pytest.raises(UsageError, match="not list"):
        to_schema(["a"])
    with pytest.raises(UsageError, match="at least one column"):
        to_schema(pa.schema([]))


def test_a_type_that_spark_lacks_is_found_before_the_job():
    check_spark_types(pa.schema([("a", pa.int64()), ("b", pa.large_string())]), "to_dataframe")
    with pytest.raises(UsageError, match=r"to_dataframe: Spark has no type for column 'u' of type uint64\. Cast it"):
        check_spark_types(pa.schema([("a", pa.int64()), ("u", pa.uint64())]), "to_dataframe")

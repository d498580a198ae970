"""Rows between Arrow and PySpark on Spark 3.5, whose PySpark has no way of its own for tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def rows_of_table(table: pa.Table, schema: Any) -> list[Any]:
    """PySpark's rows, made of the values that the JVM hands over, by PySpark's own types. Raises ValueError and OverflowError for years
    that Python does not know."""
    kinds = [field.dataType for field in schema.fields]
    columns = [column.cast(_numbered(column.type)).to_pylist() for column in table.columns]
    values = [[_internal(value, kind) for value in column] for column, kind in zip(columns, kinds, strict=True)]
    rows = zip(*values, strict=True) if values else (() for _ in range(table.num_rows))
    return [schema.fromInternal(row) for row in rows]


def local_dataframe(table: pa.Table, schema: Any, session: Any) -> Any:
    """A DataFrame of Java's that holds the rows itself."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    jvm = session._jvm
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    rows = session.sparkContext._serialize_to_jvm(
        batches, ArrowStreamSerializer(), jvm.PythonSQLUtils.readArrowStreamFromFile, jvm.ArrowIteratorServer
    )
    return jvm.PythonSQLUtils.toDataFrame(rows, schema.json(), session._jsparkSession)


def _numbered(kind: pa.DataType) -> pa.DataType:
    """Days and microseconds as numbers."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbered(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_type), _numbered(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbered(field.type)) for field in kind])
    return pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


def _internal(value: Any, kind: Any) -> Any:
    """A value as PySpark's types take it from the JVM."""
    name = kind.typeName()
    if value is None:
        return None
    if name == "binary":
        return bytearray(value)
    if name == "array":
        return [_internal(one, kind.elementType) for one in value]
    if name == "map":
        return {_internal(key, kind.keyType): _internal(one, kind.valueType) for key, one in value}
    if name == "struct":
        return tuple(_internal(value[field.name], field.dataType) for field in kind.fields)
    return value

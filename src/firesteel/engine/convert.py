"""Arrow's values on their way into the engine and out of it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def has_endless(batch: pa.RecordBatch | pa.Table) -> bool:
    """Days or timestamps at the ends of their type, which the engine takes for infinity, and which are days like others in Spark."""
    for column in batch.columns:
        is_day = pa.types.is_date32(column.type)
        if is_day or pa.types.is_timestamp(column.type):
            most = 2**31 - 1 if is_day else 2**63 - 1
            ends = pc.min_max(column.cast(pa.int32() if is_day else pa.int64())).as_py()
            if ends["max"] is not None and (ends["max"] == most or ends["min"] <= -most):
                return True
    return False


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns, by position, under the names and types of ``schema``."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

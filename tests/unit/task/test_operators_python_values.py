"""Python values become Arrow's without loss, or not at all."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.errors import UsageError
from firesteel.task.functions.python_values import exact_array


@pytest.mark.parametrize(
    ("value", "type_", "why"),
    [
        (1.5, pa.int32(), "not a whole number"),
        (Decimal("1.5"), pa.int32(), "not a whole number"),
        (Decimal("NaN"), pa.int64(), "not a whole number"),
        (1.7, pa.date32(), "not a whole number"),
        (1.5, pa.timestamp("us"), "not a whole number"),
        ([1, 1.5], pa.list_(pa.int32()), "not a whole number"),
        ({"x": 1.5}, pa.struct([("x", pa.int32())]), "not a whole number"),
        ({"x": 1, "y": 2}, pa.struct([("x", pa.int32())]), "no field y"),
        ({"k": 1.5}, pa.map_(pa.string(), pa.int8()), "not a whole number"),
        (datetime(2024, 1, 1, 12), pa.date32(), "time of day"),
        ([[datetime(2024, 1, 1, 12)]], pa.list_(pa.list_(pa.date32())), "time of day"),
        (datetime(2024, 1, 1, 0, 0, 0, 5), pa.timestamp("s"), "finer"),
        (time(1, 2, 3, 500), pa.time32("ms"), "finer"),
        (timedelta(microseconds=5), pa.duration("ms"), "finer"),
        (1e300, pa.float32(), "too large"),
        ([1e300], pa.list_(pa.float32()), "too large"),
    ],
)
def test_what_would_be_lost_is_refused(value, type_, why):
    with pytest.raises(ValueError, match=why):
        exact_array([None, value], type_)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1.0, pa.int32()),
        (Decimal(2), pa.int64()),
        (datetime(2024, 1, 1), pa.date32()),
        (datetime(2024, 1, 1, 1, 1, 1, 123000), pa.timestamp("ms")),
        (datetime(2024, 1, 1, 1, 1, 1, 123456), pa.timestamp("us")),
        (timedelta(seconds=5), pa.duration("s")),
        (float("inf"), pa.float32()),
        (1e300, pa.float64()),
        ([1, None], pa.list_(pa.int8())),
        ({"a": 1}, pa.map_(pa.string(), pa.int32())),
    ],
)
def test_what_keeps_its_value_is_taken(value, type_):
    assert exact_array([None, value], type_) == pa.array([None, value], type_)


def test_a_collection_names_the_row():
    with pytest.raises(
        UsageError, match=r"Row 1 of the collection .*column 'a' is 2\.7.*int32 \(2\.7 is not a whole number"
    ):
        ExecutionEnvironment().from_collection([{"a": 1}, {"a": 2.7}], "a int")

"""Key types of joins, to be drawn at random."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa

ints = [None, 0, 1, 2, 3, 100]
floats = [None, -0.0, 0.0, 1.5, math.nan]
strings = [None, "", "a", "b"]
KEY_PAIRS = {  # left type, right type, values
    "ints": (pa.int32(), pa.int64(), ints),
    "signs": (pa.uint64(), pa.int8(), ints),
    "floats": (pa.float32(), pa.float64(), floats),
    "strings": (pa.string(), pa.dictionary(pa.int8(), pa.large_string()), strings),
    "decimals": (pa.decimal128(9, 2), pa.decimal128(20, 4), [None, Decimal("0.00"), Decimal("1.25")]),
    "stamps": (pa.timestamp("s"), pa.timestamp("us"), [None, 0, 10]),
    "structs": (
        pa.struct({"x": pa.int64()}),
        pa.struct({"x": pa.int64()}),
        [None, {"x": None}, {"x": 1}],
    ),
    "nulls": (pa.null(), pa.int64(), [None]),
}
KEY_UNITS = {"stamps": (1, 1_000_000)}
"""Where the two types count in other units: what one means in each."""

"""Tables of all types that rows can be ordered by, for the tests of orders."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
from hypothesis import strategies as st

from firesteel.model.order import Order, OrderColumn

BIG = 2**63
VALUES = {
    "int64": (pa.int64(), st.sampled_from([-BIG, -1, 0, 1, 255, 256, BIG - 1])),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint32": (pa.uint32(), st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1])),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, BIG - 1, BIG, 2 * BIG - 1])),
    "double": (pa.float64(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324])),
    "float": (pa.float32(), st.floats(width=32)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(alphabet="a\x00\x01bé\U0001f600\uffff", max_size=4)),
    "large_string": (pa.large_string(), st.text(alphabet="ab", max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "date": (pa.date32(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    "instant": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),
    ),
    "decimal": (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["b", "a", "", "ab"])),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    rows = draw(st.integers(0, 30))
    columns = {}
    for place, kind in enumerate(kinds):
        arrow, values = VALUES[kind]
        cells = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns[f"c{place}"] = pa.array(cells, arrow)
    order = Order(tuple(OrderColumn(name, draw(st.booleans())) for name in columns))
    return pa.table(columns), order


def columns_of(table: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in table.columns]

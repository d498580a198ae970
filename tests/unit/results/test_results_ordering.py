"""Keys as bytes: they must compare as DuckDB orders the rows, whatever the types and directions."""

from __future__ import annotations

import decimal
import math

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.effort import examples

from firesteel.model.order import Order, OrderColumn
from firesteel.results.order.ordering import can_order, encode_keys, key_list, suffix_of
from ordering_kit import VALUES, columns_of, tables

CONNECTION = duckdb.connect()
CONNECTION.execute("SET threads = 1")


def oracle(table: pa.Table, order: Order) -> list[int]:
    """DuckDB's stable order of the rows."""
    numbered = table.append_column("row", pa.array(np.arange(table.num_rows)))
    by = ", ".join(f"{c.name} {'ASC NULLS FIRST' if c.ascending else 'DESC NULLS LAST'}" for c in order.columns)
    CONNECTION.register("t", numbered)
    return [row for (row,) in CONNECTION.execute(f"SELECT row FROM t ORDER BY {by}, row").fetchall()]


@settings(max_examples=examples(25), deadline=None)
@given(tables())
def test_keys_compare_as_the_rows_do(given_rows):
    table, order = given_rows
    keys = key_list(columns_of(table), order)
    assert sorted(range(len(keys)), key=lambda row: (keys[row], row)) == oracle(table, order)


@settings(max_examples=examples(30), deadline=None)
@given(tables())
def test_no_key_is_the_beginning_of_another_so_a_suffix_may_follow(given_rows):
    table, order = given_rows
    keys = set(key_list(columns_of(table), order))
    assert not any(one != other and other.startswith(one) for one in keys for other in keys)


def test_a_slice_has_the_keys_of_its_rows():
    table = pa.table({"a": pa.array([3, None, 1, 2]), "b": pa.array(["x", "y", None, "z"])})
    for ascending in (True, False):
        order = Order((OrderColumn("b", ascending), OrderColumn("a", not ascending)))
        columns = [table.column("b").combine_chunks(), table.column("a").combine_chunks()]
        whole = key_list(columns, order)
        assert key_list([column.slice(1, 2) for column in columns], order) == whole[1:3]
        assert key_list([column.slice(4) for column in columns], order) == []


def test_all_zeros_are_one_and_so_are_all_nan():
    other_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    keys = key_list([pa.array([0.0, -0.0, math.nan, *other_nan])], Order((OrderColumn("x"),)))
    assert keys[0] == keys[1]
    assert len(set(keys[2:])) == 1


def test_wide_decimals_and_every_unit_of_time_keep_their_order():
    wide = [decimal.Decimal(n) for n in (-(10**60), -1, 0, 1, 10**60)]
    arrays = [
        pa.array(wide, pa.decimal256(70, 0)),
        pa.array([-5, -1, 0, 1, 9], pa.duration("ms")),
        pa.array([-5, -1, 0, 1, 9], pa.timestamp("ns", tz="Europe/Paris")),
        pa.array([0, 1, 2, 3, 4], pa.time32("s")),
        pa.array([b"\x00\x00", b"\x00\x01", b"\x01\x00", b"\xfe\xff", b"\xff\xff"], pa.binary(2)),
        pa.array(np.array([-2.5, -0.5, 0.0, 0.5, np.nan], np.float16)),
    ]
    for array in arrays:
        up = key_list([array], Order((OrderColumn("x"),)))
        down = key_list([array], Order((OrderColumn("x", False),)))
        assert up == sorted(set(up)), array.type
        assert down == sorted(set(down), reverse=True), array.type


def test_a_column_of_nothing_but_nulls_orders_nothing():
    assert len(set(key_list([pa.nulls(3)], Order((OrderColumn("x"),))))) == 1


def test_equal_rows_of_two_producers_are_parted_only_where_asked():
    assert suffix_of(Order((OrderColumn("x"),)), 7) == b""
    assert suffix_of(Order((OrderColumn("x"),), split_equal=True), 258) == b"\x00\x00\x01\x02"


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())], ids=str
)
def test_a_type_without_an_order_is_refused(kind):
    assert not can_order(kind)
    with pytest.raises(TypeError, match="cannot be ordered"):
        encode_keys([pa.array([], kind)], Order((OrderColumn("x"),)))


def test_every_type_that_has_an_order_says_so():
    assert all(can_order(kind) for kind, _ in VALUES.values())


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="order by b"):
        Order((OrderColumn("b"),)).places(pa.schema([("a", pa.int8())]))

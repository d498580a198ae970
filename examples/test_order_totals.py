# test_order_totals.py
"""Unit tests of order_totals.py, without Spark."""

import pytest
from order_totals import totals

from firesteel import ExecutionEnvironment


@pytest.fixture(scope="module")
def stream():
    env = ExecutionEnvironment()
    orders = env.from_collection([], "value string").name("orders")
    customers = env.from_collection([(1, "FR"), (2, "IT")], "customer bigint, country string").name("customers")
    return totals(orders, customers)


def test_orders_are_added_up_by_country(stream):
    assert stream.test_with(orders=["2;1.10", "1;5", "2;0.20", "7;100"]) == [
        {"country": "FR", "orders": 1, "cents": 500},
        {"country": "IT", "orders": 2, "cents": 130},
    ]


def test_a_customer_may_have_moved(stream):
    moved = [{"customer": 1, "country": "IT"}]
    assert stream.test_with(orders=["1;5"], customers=moved) == [{"country": "IT", "orders": 1, "cents": 500}]


def test_a_line_without_an_amount_is_an_error(stream):
    with pytest.raises(ValueError, match="not enough values to unpack"):
        stream.test_with(orders=["1"])

# order_totals.py
"""Totals of orders by the customer's country. ``firesteel run examples/order_totals.py ORDERS CUSTOMERS OUT``"""

import sys
from dataclasses import dataclass

from firesteel import DataStream, ExecutionEnvironment, Row


@dataclass
class Line:
    customer: int
    cents: int


def parse(row: Row) -> Line:
    customer, amount = row.value.split(";")
    return Line(int(customer), round(float(amount) * 100))


def totals(orders: DataStream, customers: DataStream) -> DataStream:
    lines = orders.map(parse, Line)
    by_country = lines.key_by("customer").join(customers.key_by("customer")).key_by("country")
    return by_country.aggregate(orders=("cents", "count"), cents=("cents", "sum")).sort("country")


if __name__ == "__main__":
    env = ExecutionEnvironment()
    orders, customers, out = sys.argv[1:]
    totals(env.read_text(orders), env.read_csv(customers)).write_parquet(out)
    env.execute("order totals")

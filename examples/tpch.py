"""Five TPC-H queries as Firesteel pipelines: Q1, Q3, Q5, Q13 and Q18.

    tpchgen-cli parquet -s 1 -o data         # or any other generator of TPC-H tables as Parquet
    firesteel run examples/tpch.py data q3   # no query named: all of them

How parallel each step runs is decided while it runs, from the bytes its inputs produced; nothing here says so.
"""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pyarrow as pa

from firesteel import DataStream, ExecutionEnvironment, col
from firesteel.errors import UsageError

# Rates have two digits; narrow types leave room for the digits of products (a decimal has 38 at most).
_RATE = pa.decimal128(4, 2)
_REVENUE = col("l_extendedprice") * (1 - col("l_discount").cast(_RATE))


class Tables:
    """The TPC-H tables under a directory: ``lineitem.parquet``, or ``lineitem/*.parquet``."""

    def __init__(self, env: ExecutionEnvironment, data: Path | str) -> None:
        self._env = env
        self._data = Path(data)

    def __getattr__(self, table: str) -> DataStream:
        several = self._data / table
        return self._env.read_parquet(several if several.is_dir() else several.with_suffix(".parquet"))


def q1(tables: Tables) -> DataStream:
    """Pricing summary: what was billed, shipped and returned, by return flag and line status."""
    charge = _REVENUE * (1 + col("l_tax").cast(_RATE))
    return (
        tables.lineitem.filter(col("l_shipdate") <= date(1998, 9, 2))
        .select(
            "l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", disc_price=_REVENUE, charge=charge
        )
        .key_by("l_returnflag", "l_linestatus")
        .aggregate(
            sum_qty=("l_quantity", "sum"),
            sum_base_price=("l_extendedprice", "sum"),
            sum_disc_price=("disc_price", "sum"),
            sum_charge=("charge", "sum"),
            avg_qty=("l_quantity", "mean"),
            avg_price=("l_extendedprice", "mean"),
            avg_disc=("l_discount", "mean"),
            count_order=("*", "count"),
        )
    )  # fmt: skip


def q3(tables: Tables) -> DataStream:
    """Shipping priority: the ten orders of the building segment with the largest revenue not yet shipped."""
    day = date(1995, 3, 15)
    builders = tables.customer.filter(col("c_mktsegment") == "BUILDING").select("c_custkey")
    orders = tables.orders.filter(col("o_orderdate") < day).select(
        "o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"
    )
    lines = tables.lineitem.filter(col("l_shipdate") > day).select("l_orderkey", revenue=_REVENUE)
    return (
        orders.key_by("o_custkey").join(builders.key_by("c_custkey"), "semi")
        .key_by("o_orderkey").join(lines.key_by("l_orderkey"))
        .key_by("o_orderkey", "o_orderdate", "o_shippriority").aggregate(revenue=("revenue", "sum"))
        .select("o_orderkey", "revenue", "o_orderdate", "o_shippriority")
        .top_k(10, ("revenue", False), ("o_orderdate", True))
    )  # fmt: skip


def q5(tables: Tables) -> DataStream:
    """Local supplier volume: revenue in Asia where customer and supplier are of one nation, by nation."""
    asia = tables.region.filter(col("r_name") == "ASIA").select("r_regionkey")
    nations = tables.nation.select("n_nationkey", "n_name", "n_regionkey")
    nations = nations.key_by("n_regionkey").join(asia.key_by("r_regionkey"), "semi").drop("n_regionkey")
    suppliers = tables.supplier.select("s_suppkey", "s_nationkey")
    suppliers = suppliers.key_by("s_nationkey").join(nations.key_by("n_nationkey"))
    begin, end = date(1994, 1, 1), date(1995, 1, 1)
    orders = tables.orders.filter((col("o_orderdate") >= begin) & (col("o_orderdate") < end)).select(
        "o_orderkey", "o_custkey"
    )
    customers = tables.customer.select("c_custkey", "c_nationkey")
    orders = orders.key_by("o_custkey").join(customers.key_by("c_custkey"))
    lines = tables.lineitem.select("l_orderkey", "l_suppkey", revenue=_REVENUE)
    return (
        lines.key_by("l_orderkey").join(orders.key_by("o_orderkey"))
        .key_by("l_suppkey", "c_nationkey").join(suppliers.key_by("s_suppkey", "s_nationkey"))
        .key_by("n_name").aggregate(revenue=("revenue", "sum"))
    )  # fmt: skip


def q13(tables: Tables) -> DataStream:
    """Customer distribution: how many customers placed how many orders; those without any count too."""
    ordinary = ~col("o_comment").like("%special%requests%")
    orders = tables.orders.filter(ordinary).select("o_orderkey", "o_custkey")
    return (
        tables.customer.select("c_custkey")
        .key_by("c_custkey").join(orders.key_by("o_custkey"), "left")
        .key_by("c_custkey").aggregate(c_count=("o_orderkey", "count"))
        .key_by("c_count").aggregate(custdist=("*", "count"))
    )  # fmt: skip


def q18(tables: Tables, quantity: int = 300) -> DataStream:
    """Large volume customers: the hundred dearest orders of more than ``quantity`` pieces."""
    large = (
        tables.lineitem.key_by("l_orderkey").aggregate(sum_qty=("l_quantity", "sum"))
        .filter(col("sum_qty") > quantity)
    )  # fmt: skip
    orders = tables.orders.select("o_orderkey", "o_custkey", "o_orderdate", "o_totalprice")
    customers = tables.customer.select("c_name", "c_custkey")
    return (
        large.key_by("l_orderkey").join(orders.key_by("o_orderkey"))
        .key_by("o_custkey").join(customers.key_by("c_custkey"))
        .select("c_name", "o_custkey", "l_orderkey", "o_orderdate", "o_totalprice", "sum_qty")
        .top_k(100, ("o_totalprice", False), ("o_orderdate", True))
    )  # fmt: skip


QUERIES = {"q1": q1, "q3": q3, "q5": q5, "q13": q13, "q18": q18}


def main(arguments: list[str]) -> None:
    data, names = arguments[0] if arguments else "data", arguments[1:] or list(QUERIES)
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        raise UsageError(f"There is no query '{unknown[0]}' here.", hint=f"There are {', '.join(QUERIES)}.")
    with ExecutionEnvironment.get_or_create() as env:
        for name in names:
            print(f"{name}: {(QUERIES[name].__doc__ or '').strip()}")
            QUERIES[name](Tables(env, data)).show(10)


if __name__ == "__main__":
    main(sys.argv[1:])

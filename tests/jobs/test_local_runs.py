"""A local run gives the rows that the job gives."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel import col


def joined(orders, people):
    return orders.key_by("who").join(people.key_by("who"), how="full")


def totals(orders, people):
    return (
        joined(orders, people)
        .key_by("city")
        .aggregate(n=("cents", "count"), sum=("cents", "sum"), most=("cents", "max"))
    )


def distinct(orders, people):
    return (
        orders.key_by("who").aggregate(cents=("cents", "count_distinct")).union(people.select("who", cents=col("who")))
    )


def functions(orders, people):
    def halved(table: pa.Table) -> pa.Table:
        return table.slice(0, table.num_rows // 2)

    def cents(batches, people):
        for batch in batches:
            yield pa.record_batch({"cents": pc.multiply(batch["cents"], people.num_rows)})

    some = orders.sort("cents").key_by("who").apply_in_arrow(halved, orders.schema)
    return some.with_broadcast(people=people).map_in_arrow(cents, "cents bigint")


def last(orders, people):
    return orders.filter(lambda row: row.cents % 7 != 0).sort("cents", ascending=False).limit(25)


def apart(orders, people):
    return orders.select("who").subtract(people.select("who"))


@pytest.mark.parametrize("pipeline", [joined, totals, distinct, functions, last, apart], ids=lambda f: f.__name__)
def test_a_local_run_gives_the_rows_of_the_job(env, pipeline):
    n = 3000
    who = [None if i % 50 == 0 else i * i % 97 for i in range(n)]
    orders = env.from_arrow(pa.table({"who": who, "cents": range(n)})).name("orders")
    people = env.from_arrow(pa.table({"who": range(60), "city": [f"city {i % 5}" for i in range(60)]}))
    stream = pipeline(orders, people)
    ran, locally = stream.collect(), stream.run_locally(None)
    assert locally
    assert sorted(map(str, locally)) == sorted(map(str, ran))
    if pipeline is last:
        assert locally == ran

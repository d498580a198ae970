"""The order of rows: what the keys say, ties in row order, for words of all kinds and any number of ties."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.effort import examples

from firesteel.model.order import Order, OrderColumn
from firesteel.results.order.ordering import key_list
from firesteel.results.order.sorting import row_order
from ordering_kit import columns_of, tables


def by_keys(columns, order):
    keys = key_list(columns, order)
    return sorted(range(len(keys)), key=lambda row: (keys[row], row))


@settings(max_examples=examples(15), deadline=None)
@given(tables())
def test_the_order_is_that_of_the_keys_and_stable(given_rows):
    table, order = given_rows
    assert row_order(columns_of(table), order).tolist() == by_keys(columns_of(table), order)


def columns(rows):
    rng = np.random.default_rng(2)
    mask = rng.random(rows) < 0.1
    long = ["x" * 200 + str(k) for k in rng.integers(0, 40, rows)]
    return {
        "wide": pa.array(rng.integers(-(2**63), 2**63 - 1, rows)),
        "all": pa.array(rng.choice([-(2**63), 0, 2**63 - 1], rows), mask=mask),
        "few": pa.array(rng.integers(0, 5, rows), mask=mask),
        "float": pa.array(rng.normal(size=rows), mask=mask),
        "word": pa.array([f"prefix-{k}" for k in rng.integers(0, 10**6, rows)], mask=mask),
        "long": pa.array(long, mask=mask),
        "zeros": pa.array(["a" + "\0" * k for k in rng.integers(0, 20, rows)]),
        "fixed": pa.array([b"%06d" % k for k in rng.integers(0, 500, rows)], pa.binary(6), mask=mask),
        "nothing": pa.nulls(rows),
    }


MIXES = [
    ("wide",),
    ("all", "few"),
    ("few", "wide"),
    ("float",),
    ("word",),
    ("few", "word", "float"),
    ("long",),
    ("long", "few"),
    ("zeros", "few"),
    ("fixed", "all"),
    ("nothing",),
    ("nothing", "few"),
]


@pytest.mark.parametrize("names", MIXES, ids=" ".join)
@pytest.mark.parametrize("ascending", [True, False])
def test_many_rows_and_many_ties(names, ascending):
    rows = 3000
    order = Order(tuple(OrderColumn(name, ascending ^ bool(k % 2)) for k, name in enumerate(names)))
    chosen = [columns(rows)[name] for name in names]
    assert row_order(chosen, order).tolist() == by_keys(chosen, order)
    chosen[0] = chosen[0].take(pa.array(np.random.default_rng(1).permutation(rows)))
    sliced = [column.slice(100, 500) for column in chosen]
    assert row_order(sliced, order).tolist() == by_keys(sliced, order)


def test_no_rows_and_one_row_are_in_order():
    order = Order((OrderColumn("s"), OrderColumn("i")))
    for rows in (0, 1):
        given_columns = [pa.array(["x"] * rows, pa.string()), pa.array([1] * rows, pa.int64())]
        assert row_order(given_columns, order).tolist() == list(range(rows))

"""Rows of a heavy key that leave a task before the exchange: few, whatever folds them, and whatever becomes of all other rows."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.aggregates_kit import combined as combined_rows
from tests.aggregates_kit import nodes_of

from firesteel import ExecutionEnvironment
from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.keyed import drop_duplicates
from firesteel.task.operators.aggregation.folding import CHUNK_ROWS
from firesteel.task.operators.aggregation.reduce import ReduceCombiner
from firesteel.task.operators.grouping import SHARE, SLICE_ROWS, SLICES, heavy_rows
from operators_support import collect, context, unit

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})
FUNCTIONS = ("sum", "min", "max", "count", "mean")


def combiner_of(function):
    pipeline = ExecutionEnvironment().from_arrow(SCHEMA.empty_table())._pipeline
    if function in ("drop_duplicates", "distinct"):
        return drop_duplicates(pipeline, ["k"] if function == "drop_duplicates" else ["k", "v"]).node.inputs[0].combiner
    return nodes_of(SCHEMA, ("k",), [Aggregation(function, ("v",), "x")])[0].inputs[0].combiner


FOLDING = {
    **{f: combiner_of(f) for f in (*FUNCTIONS, "count_distinct", "drop_duplicates", "distinct")},
    "reduce": ReduceCombiner("add", lambda a, b: (a.k, a.v + b.v), ("k",), SCHEMA),
}


def rows(shares, rows_each: int = CHUNK_ROWS) -> pa.Table:
    """A chunk of rows for each share: so many of them have the key 7, and one of two values; the others have keys of their own."""
    rng = np.random.default_rng(3)
    chunks, low = [], 1000
    for share in shares:
        keys = np.arange(low, low + rows_each)
        keys[rng.random(rows_each) < share] = 7
        low += rows_each
        chunks.append(pa.table({"k": keys, "v": rng.integers(0, 2, rows_each)}))
    return pa.concat_tables(chunks)


def combined(combiner, table: pa.Table, ctx) -> pa.Table:
    return pa.Table.from_batches(combined_rows(combiner, table.to_batches(max_chunksize=1 << 16), ctx))


@pytest.mark.parametrize(
    "shares",
    [pytest.param([0.6] * 2, marks=pytest.mark.full), [0.15] * 3, [0.0, 0.0, 0.6]],
    ids=["60 %", "15 %", "60 % of the last chunk"],
)
@pytest.mark.parametrize("folding", [f for f in FOLDING if f != "reduce"])
def test_a_heavy_key_leaves_in_few_rows(tmp_path, folding, shares):
    """Of the second and third, four of five rows of the first chunk are alone with their keys, so that all are passed through."""
    table = rows(shares)
    out = combined(FOLDING[folding], table, context(tmp_path, 1 << 30))
    left = int((np.asarray(out["k"]) == 7).sum())
    assert left <= 2 * (1 + 2 * len(shares)) < 0.01 * shares[-1] * CHUNK_ROWS
    assert out.num_rows > 0.3 * table.num_rows


def test_the_function_of_a_user_folds_them_too(tmp_path):
    out = combined(FOLDING["reduce"], rows([0.0, 0.2], 9000), context(tmp_path, 1 << 20))
    heavy = out.filter(pa.compute.equal(out["k"], 7))
    table = rows([0.0, 0.2], 9000)
    wanted = pa.compute.sum(table.filter(pa.compute.equal(table["k"], 7))["v"]).as_py()
    assert heavy.num_rows < 200
    assert pa.compute.sum(heavy["v"]).as_py() == wanted


@pytest.mark.parametrize("memory", [1 << 18, 1 << 22, 1 << 30])
def test_nothing_is_lost_between_what_is_folded_and_what_passes(tmp_path, memory):
    table = rows([0.0, 0.1, 0.5, 0.0, 0.08], 20_000)
    ctx = context(tmp_path, memory)
    (node,) = nodes_of(SCHEMA, ("k",), [Aggregation(f, ("v",), f) for f in FUNCTIONS])
    partial = combined(node.inputs[0].combiner, table, ctx)
    found = collect(node.work.operator.apply_unit([unit(partial, ctx)], ctx))
    wanted = table.group_by("k").aggregate([("v", f) for f in FUNCTIONS])
    order = [("k", "ascending")]
    assert found.sort_by(order).to_pydict() == wanted.sort_by(order).rename_columns(["k", *FUNCTIONS]).to_pydict()


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1], pa.int32()),
        pa.array([1.5], pa.float32()),
        pa.array([None], pa.null()),
        pa.array([None], pa.string()),
        pa.array(["a longer string beyond the inline part"], pa.string_view()),
        pa.array(["a"]).dictionary_encode(),
        pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        pa.array([1_600_000_000_000], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([True]),
        pa.array([b"x"], pa.binary(1)),
    ],
    ids=lambda key: str(key.type),
)
def test_keys_of_any_type_that_an_exchange_can_be_by(key):
    n = 2 * SLICES * SLICE_ROWS
    mask = heavy_rows(pa.table({"k": pa.concat_arrays([key] * n)}), ["k"])
    assert mask is not None and mask.to_pylist() == [True] * n


def test_where_no_key_is_heavy_or_rows_are_few():
    n = 4 * SLICES * SLICE_ROWS
    assert heavy_rows(pa.table({"k": np.arange(n)}), ["k"]) is None
    assert heavy_rows(pa.table({"k": np.zeros(2 * SLICES * SLICE_ROWS - 1)}), ["k"]) is None
    many = np.arange(n) % int(2 / SHARE)
    assert heavy_rows(pa.table({"k": many}), ["k"]) is None, "each of them has half of what is heavy"


def test_rows_in_the_order_of_their_keys_show_as_well():
    n = 8 * SLICES * SLICE_ROWS
    keys = np.sort(np.where(np.arange(n) < 0.2 * n, 7, np.arange(n)))
    mask = heavy_rows(pa.table({"k": keys}), ["k"])
    assert mask is not None and np.asarray(mask).sum() == np.ceil(0.2 * n)

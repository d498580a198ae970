"""The keyed head: units within the budget, subpartitions beyond it in buckets on disk, giant keys, composed operators."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from tests.aggregates_kit import nodes_of

from firesteel import ExecutionEnvironment
from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.keyed import drop_duplicates
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.task.functions.group_functions import ApplyInArrow
from firesteel.task.operators.composed import UnitedInput
from firesteel.task.operators.join import HashJoin, join_schema
from firesteel.task.operators.units import SpoolInput, run_keyed, run_unit, unit_limit, units
from operators_support import TableReader, collect, context, files_in, rows, unit


def subpartitions(table: pa.Table, n: int, key: str = "k") -> list[pa.Table]:
    targets = np.asarray(subpartition_of(hash_columns([table[key]]), n))
    return [table.filter(pa.array(targets == k)) for k in range(n)]


@dataclass
class Recording:
    """Keeps the sizes of its units; passes rows."""

    seen: list
    name: str = "recording"
    keys: tuple = (("k",),)

    def apply_unit(self, inputs, ctx):
        self.seen.append((inputs[0].nbytes, inputs[0].table()["k"].to_pylist()))
        yield from inputs[0].batches()


def test_units_cover_the_range_within_the_limit():
    class Sizes:
        def __init__(self, first, sizes):
            self._answer = first, np.array(sizes, np.int64)

        def bytes_per_subpartition(self):
            return self._answer

    found = list(units([Sizes(4, [10, 0, 50, 60, 200, 0, 0]), Sizes(4, [10, 0, 30, 10, 0, 0, 5])], 100))
    assert found == [(4, 7, [60, 40]), (7, 8, [60, 10]), (8, 9, [200, 0]), (9, 11, [0, 5])]
    assert list(units([Sizes(0, [])], 100)) == []
    assert list(units([Sizes(2, [0, 0])], 100)) == [(2, 4, [0])]


def test_units_and_buckets_stay_within_the_limit_and_keep_keys_together(tmp_path):
    ctx = context(tmp_path, 64 << 10)
    table = pa.table({"k": [i % 5000 for i in range(20_000)], "v": range(20_000)})
    operator = Recording([])
    result = collect(run_keyed(operator, [TableReader(subpartitions(table, 4), first=2)], [table.schema], ctx))
    assert rows(result) == rows(table)
    assert max(size for size, _ in operator.seen) <= unit_limit(ctx)
    keys = [set(keys) for _, keys in operator.seen]
    assert sum(map(len, keys)) == 5000, "a key came in two units"
    assert not list(tmp_path.iterdir())


def test_a_giant_key_comes_whole_and_alone_as_far_as_can_be(tmp_path):
    ctx = context(tmp_path, 64 << 10)
    table = pa.table({"k": [0] * 20_000 + list(range(1, 2001)), "v": range(22_000)})
    operator = Recording([])
    collect(run_unit(operator, [unit(table, ctx, 1000)], ctx))
    giant = [keys for _, keys in operator.seen if 0 in keys]
    assert len(giant) == 1 and giant[0].count(0) == 20_000
    assert len(giant[0]) < 20_600


def test_one_unit_is_worked_on_even_when_there_are_no_rows(tmp_path):
    ctx = context(tmp_path)
    schema = pa.schema({"k": pa.int64()})
    count = nodes_of(schema, (), [Aggregation("count", (), "n")])[0].work.direct
    assert collect(run_keyed(count, [TableReader([schema.empty_table()])], [schema], ctx)).to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("how", ["inner", "full", "anti"])
def test_a_skewed_join_is_streamed_in_bounded_chunks(tmp_path, how):
    ctx = context(tmp_path, 1 << 20)
    left = pa.table({"k": np.zeros(100_000, np.int64), "a": np.arange(100_000)})
    right = pa.table({"k": np.zeros(100_000, np.int64), "b": np.arange(100_000)})
    join = HashJoin(
        "join",
        how,
        ("k",),
        ("k",),
        left.schema,
        right.schema,
        join_schema(left.schema, right.schema, ("k",), ("k",), how),
    )
    batches = run_unit(join, [unit(left, ctx, 10_000), unit(right, ctx, 10_000)], ctx)
    if how == "anti":
        assert not list(batches)
        return
    before, peak, seen = pa.total_allocated_bytes(), 0, 0
    for batch in batches:
        seen += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
        if seen > 5_000_000:
            break
    batches.close()
    assert peak < 16 << 20
    assert files_in(tmp_path) == []


def test_memory_is_bounded_by_the_budget_not_by_the_input(tmp_path):
    """Groups by key of four times the budget: what the aggregate holds does not grow with it."""
    budget = 4 << 20
    ctx = context(tmp_path, budget)
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})

    class Endless:
        schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
        nbytes = 16 << 20

        def batches(self):
            for i in range(100):
                yield pa.record_batch({"k": np.arange(10_000) * 100 + i, "v": np.ones(10_000, np.int64)})

    operator = nodes_of(schema, ("k",), [Aggregation("sum", ("v",), "s")])[0].work.direct
    before, peak, groups = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for batch in run_unit(operator, [Endless()], ctx):
        groups += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    numpy_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert groups == 1_000_000
    assert peak < 3 * budget and numpy_peak < 3 * budget


def test_buckets_are_removed_when_a_consumer_stops_or_fails(tmp_path):
    ctx = context(tmp_path, 16 << 10)
    table = pa.table({"k": range(10_000)})

    def fail(group):
        raise ValueError("no")

    operator = ApplyInArrow("step", fail, ("k",), table.schema)
    with pytest.raises(Exception, match="ValueError: no"):
        list(run_unit(operator, [unit(table, ctx, 500)], ctx))
    batches = run_unit(Recording([]), [unit(table, ctx, 500)], ctx)
    next(batches)
    assert list(tmp_path.iterdir())
    batches.close()
    assert not list(tmp_path.iterdir())


def test_a_union_of_inputs_that_differ_in_nullability_is_one_input(tmp_path):
    ctx = context(tmp_path)
    strict = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    loose = pa.schema([pa.field("k", pa.int64())])
    parts = [unit(pa.table({"k": [1, 2]}, schema=strict), ctx), unit(pa.table({"k": [None, 2]}, schema=loose), ctx)]
    united = UnitedInput(parts, loose)
    assert united.table().schema == loose
    pipeline = ExecutionEnvironment().from_arrow(loose.empty_table())._pipeline
    distinct = drop_duplicates(pipeline, ["k"]).node.work.direct
    assert rows(collect(distinct.apply_unit([united], ctx))) == rows(pa.table({"k": [1, 2, None]}))


def test_a_spool_is_read_any_number_of_times_and_keeps_every_type(tmp_path):
    table = pa.table(
        {"d": pa.array(["a", None, "b"] * 50).dictionary_encode(), "l": [[1], None, []] * 50, "z": pa.nulls(150)}
    )
    spool = SpoolInput(table.schema, tmp_path, 100)
    for batch in table.to_batches(max_chunksize=7):
        spool.write(batch)
    spool.finish()
    assert len(list(tmp_path.iterdir())) == 1
    assert spool.table().to_pylist() == table.to_pylist() == spool.table().to_pylist()
    spool.close()
    spool.close()
    assert not list(tmp_path.iterdir())

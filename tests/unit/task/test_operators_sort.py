"""A sort as its tasks run it: producers that write in order and sketch, ranges cut from the sketches, consumers that merge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from firesteel.errors import FiresteelError, PartitionException
from firesteel.model.order import Order, OrderColumn
from firesteel.model.sketches import decode_sketch, merge_sketches
from firesteel.results.order import range_reader
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.task.operators import sort as sort_module
from firesteel.task.operators.sort import Sort
from firesteel.task.program import (
    Gate,
    GateHead,
    KeyedHead,
    ResultOutput,
    SourceHead,
    VertexProgram,
)
from firesteel.task.runner import run_task
from operators_support import context
from oracle import duck

TOKEN = 77


@dataclass
class Tables:
    """A source whose splits are tables."""

    def read(self, split, ctx):
        yield from split.to_batches(1000)


class Sorting:
    """Runs producers over tables, decides ``n`` ranges, and runs consumers of them."""

    def __init__(self, tmp_path, tables, order, n, *, memory=64 << 20):
        self.store, self.order, self.n = ResultStore(str(tmp_path / "job")), order, n
        self.store.create()
        self.schema, self.producers, self.memory = tables[0].schema, len(tables), memory
        self.scratch = tmp_path
        produce = VertexProgram(SourceHead(Tables()), (), (ResultOutput(1, self.schema, order=order),))
        self.written = []
        for producer, table in enumerate(tables):
            ctx = self.context(producer, self.producers)
            self.written += run_task(produce, ctx, [], [table], self.store, {1: n}, "lz4").partitions
        self.boundaries = merge_sketches([decode_sketch(partition.sketch) for partition in self.written], n)

    def context(self, subtask, parallelism):
        return context(self.scratch, self.memory, subtask=subtask, parallelism=parallelism, token=TOKEN)

    def gate(self, low, high):
        attempts, tokens = np.zeros(self.producers, np.int64), np.full(self.producers, TOKEN)
        rects = np.array([[0, self.producers, low, high]], np.int32)
        return Gate(1, self.n, attempts, tokens, rects, boundaries=self.boundaries.keys)

    def consume(self, ranges, head=None):
        """What each consumer gives, as one table each. ``ranges``: [low, high) of each."""
        head = head or KeyedHead(Sort("sort", self.order), (0,))
        program = VertexProgram(head, (), (ResultOutput(2, self.schema),), (self.schema,), gate_orders=(self.order,))
        tables = []
        for subtask, (low, high) in enumerate(ranges):
            ctx = self.context(subtask, len(ranges))
            self.outcome = run_task(program, ctx, [self.gate(low, high)], [], self.store, {2: 1}, "lz4")
            where = np.zeros(subtask + 1, np.int64), np.full(subtask + 1, TOKEN)
            rect = np.array([[subtask, subtask + 1, 0, 1]], np.int32)
            batches = list(GateReader(self.store, 2, self.schema, 1, *where, rect).read())
            tables.append(pa.Table.from_batches(batches, self.schema))
        return tables


def table(producer, rows, seed=0):
    rng = np.random.default_rng([producer, seed])
    return pa.table(
        {
            "a": pa.array(rng.integers(-50, 50, rows), mask=rng.random(rows) < 0.05),
            "f": pa.array(
                np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows).round(1)), mask=rng.random(rows) < 0.1
            ),
            "s": pa.array([f"word {k}" for k in rng.integers(0, 300, rows)]),
            "producer": pa.array(np.full(rows, producer)),
            "row": pa.array(np.arange(rows)),
        }
    )


def oracle(tables, order):
    everything = pa.concat_tables(tables)
    by = ", ".join(f"{c.name} {'ASC NULLS FIRST' if c.ascending else 'DESC NULLS LAST'}" for c in order.columns)
    with duck() as connection:
        connection.register("t", everything)
        return connection.execute(f"SELECT producer, row FROM t ORDER BY {by}, producer, row").fetchall()


def pairs(tables):
    rows = pa.concat_tables(tables)
    return list(zip(rows["producer"].to_pylist(), rows["row"].to_pylist(), strict=True))


ORDERS = [
    Order((OrderColumn("a"),), split_equal=True),
    Order((OrderColumn("f", ascending=False), OrderColumn("a")), split_equal=True),
    Order((OrderColumn("s", ascending=False), OrderColumn("f")), split_equal=True),
    Order((OrderColumn("s"),), split_equal=False),
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("memory", [64 << 20, 256 << 10], ids=["at once", "in parts"])
def test_the_consumers_together_give_the_order_of_duckdb_and_it_is_stable(tmp_path, order, memory):
    tables = [table(producer, 4000) for producer in range(3)]
    sorting = Sorting(tmp_path, tables, order, 12, memory=memory)
    got = sorting.consume([(0, 5), (5, 6), (6, 12)])
    assert pairs(got) == oracle(tables, order)
    assert sorting.outcome.rows_in == got[-1].num_rows
    assert all(part.bytes.shape == (1,) for part in sorting.written)


def test_one_heavy_key_is_spread_over_the_consumers(tmp_path):
    order = Order((OrderColumn("a"),), split_equal=True)
    rows = 3000
    tables = [pa.table({"a": np.full(rows, 7), "producer": np.full(rows, p), "row": np.arange(rows)}) for p in range(8)]
    got = Sorting(tmp_path, tables, order, 4).consume([(k, k + 1) for k in range(4)])
    assert [one.num_rows for one in got] == [2 * rows] * 4
    assert pairs(got) == oracle(tables, order)


def test_a_key_that_is_too_heavy_for_the_budget_is_passed_on_unsorted(tmp_path, monkeypatch):
    order = Order((OrderColumn("s"),), split_equal=False)
    tables = [table(producer, 30_000) for producer in range(2)]
    words = pa.array(["heavy" if k % 3 else f"w{k}" for k in range(30_000)])
    heavy = [one.set_column(2, "s", words) for one in tables]
    sorting = Sorting(tmp_path, heavy, order, 1, memory=2 << 20)
    sizes = []
    sorted_at_once = sort_module.in_order

    def watched(batches, by):
        held = list(batches)
        sizes.append(sum(batch.nbytes for batch in held))
        return sorted_at_once(held, by)

    monkeypatch.setattr(sort_module, "in_order", watched)
    assert pairs(sorting.consume([(0, 1)])) == oracle(heavy, order)
    total = sum(one.nbytes for one in heavy)
    assert max(sizes) < total / 5
    assert sum(sizes) < total / 2


def test_a_range_far_beyond_the_budget_is_sorted_within_it(tmp_path):
    order = Order((OrderColumn("a"),), split_equal=True)
    rng = np.random.default_rng(1)
    rows = 150_000
    tables = [
        pa.table({"a": rng.integers(0, 1 << 60, rows), "b": rng.random(rows), "c": rng.random(rows)}) for _ in range(4)
    ]
    budget = 4 << 20
    sorting = Sorting(tmp_path, tables, order, 1, memory=budget)
    ctx = sorting.context(0, 1)
    peak = held = pa.total_allocated_bytes()
    take = sort_module.cut_rows

    def watched(*given):
        nonlocal peak
        batch = take(*given)
        peak = max(peak, pa.total_allocated_bytes())
        return batch

    sort_module.cut_rows = watched
    try:
        [got] = sorting.consume([(0, 1)])
    finally:
        sort_module.cut_rows = take
    assert got.num_rows == 4 * rows
    assert (np.diff(got["a"].to_numpy()) >= 0).all()
    assert peak - held < ctx.memory_budget
    assert got.nbytes > 3 * budget


def test_many_regions_and_a_small_budget_are_parted_on_disk_and_each_message_is_read_once(tmp_path, monkeypatch):
    order = Order((OrderColumn("a"), OrderColumn("s", ascending=False)), split_equal=True)
    tables = [table(producer, 20_000) for producer in range(3)]
    sorting = Sorting(tmp_path, tables, order, 5, memory=512 << 10)
    spools, rows = [], []
    spool, decode = sort_module.SpoolInput, range_reader.decode_message
    monkeypatch.setattr(sort_module, "SpoolInput", lambda *given: spools.append(spool(*given)) or spools[-1])

    def decoded(*given):
        rows.append(decode(*given))
        return rows[-1]

    monkeypatch.setattr(range_reader, "decode_message", decoded)
    got = sorting.consume([(0, 5)])
    assert pairs(got) == oracle(tables, order)
    assert len(spools) > 3
    assert sum(batch.num_rows for batch in rows) == 60_000
    assert not list(tmp_path.glob("spool*"))


def test_range_partition_keeps_equal_keys_together_without_an_operator(tmp_path):
    order = Order((OrderColumn("s"),), split_equal=False)
    tables = [table(producer, 3000) for producer in range(3)]
    got = Sorting(tmp_path, tables, order, 6).consume([(0, 2), (2, 3), (3, 6)], GateHead((0,)))
    keys = [set(one["s"].to_pylist()) for one in got]
    assert sum(map(len, keys)) == len(set.union(*keys))
    assert max(keys[0]) < min(keys[1]) and max(keys[1]) < min(keys[2])
    assert sorted(pairs(got)) == sorted(pairs(tables))


def test_producers_without_rows_and_no_rows_at_all(tmp_path):
    order = Order((OrderColumn("a"),), split_equal=True)
    tables = [table(1, 500).slice(500), table(1, 500), table(2, 500).slice(500)]
    assert pairs(Sorting(tmp_path, tables, order, 3).consume([(0, 1), (1, 3)])) == oracle(tables, order)
    assert pairs(Sorting(tmp_path / "none", tables[:1], order, 3).consume([(0, 1), (1, 3)])) == []


def test_a_lost_object_is_told_with_its_producer(tmp_path):
    sorting = Sorting(tmp_path, [table(p, 100) for p in range(2)], ORDERS[0], 2)
    sorting.store.delete([object_name(1, 1, 0, TOKEN)])
    with pytest.raises(PartitionException) as error:
        sorting.consume([(0, 2)])
    assert (error.value.dataset, error.value.partition) == (1, 1)


def test_what_was_not_written_in_order_is_refused(tmp_path):
    sorting = Sorting(tmp_path, [table(0, 100)], ORDERS[0], 2)
    unsaid = replace(sorting.gate(0, 2), boundaries=None)
    program = VertexProgram(GateHead((0,)), (), (), (sorting.schema,), gate_orders=(sorting.order,))
    with pytest.raises(FiresteelError, match="its ranges are not given"):
        run_task(program, sorting.context(0, 1), [unsaid], [], sorting.store, {}, "lz4")
    program = replace(program, head=KeyedHead(Sort("sort", sorting.order), (0,)), gate_orders=())
    with pytest.raises(PartitionException, match="another schema"):
        run_task(program, sorting.context(0, 1), [unsaid], [], sorting.store, {}, "lz4")

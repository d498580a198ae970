"""Rows in order come back by ranges of keys: each once, in order, and only the messages that are needed are read."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

import far_storage
from firesteel.errors import PartitionException
from firesteel.model.order import Order, OrderColumn
from firesteel.model.sketches import Boundaries, decode_sketch, merge_sketches
from firesteel.results.order.ordering import key_list, suffix_of
from firesteel.results.order.range_reader import RangeReader
from firesteel.results.order.sorting import SortedWriter, row_order
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, object_name

DATASET = 4


def write(store, tables, order, *, ranges=8, budget=64 << 20, codec="lz4", rows_per_batch=None):
    """One object per table. Gives the summaries."""
    summaries = []
    for producer, table in enumerate(tables):
        writer = SortedWriter(
            store,
            object_name(DATASET, producer, 0, 7),
            table.schema,
            order,
            producer=producer,
            producers=len(tables),
            ranges=ranges,
            memory_budget=budget,
            codec=codec,
        )
        for batch in table.to_batches(rows_per_batch):
            writer.write(batch)
        summaries.append(writer.finish())
    return summaries


def reader(store, schema, order, boundaries, producers, low=0, high=None):
    rects = np.array([[0, producers, low, len(boundaries) if high is None else high]], np.int32)
    attempts, tokens = np.zeros(producers, np.int64), np.full(producers, 7)
    return RangeReader(store, DATASET, schema, order, boundaries, attempts, tokens, rects)


def boundaries_of(summaries, n):
    return merge_sketches([decode_sketch(summary.sketch) for summary in summaries], n)


def read(gate, schema, *bounds):
    return pa.Table.from_batches(list(gate.read(*bounds)), schema=schema)


def keys_of(table, order, producer):
    columns = [table.column(name).combine_chunks() for name in order.names]
    return key_list(columns, order, suffix_of(order, producer))


def expected(tables, order, boundaries, number):
    """The rows of one range, as (producer, row) pairs in the order of keys, producers, rows."""
    low, high = boundaries.low(number), boundaries.high(number)
    found = []
    for producer, table in enumerate(tables):
        for row, key in enumerate(keys_of(table, order, producer)):
            if (low is None or key >= low) and (high is None or key < high):
                found.append((key[: len(key) - (4 if order.split_equal else 0)], producer, row))
    return [(producer, row) for _, producer, row in sorted(found)]


def numbered(producer, columns):
    rows = len(next(iter(columns.values())))
    return pa.table(columns | {"p": pa.array([producer] * rows, pa.int32()), "row": pa.array(range(rows), pa.int32())})


@st.composite
def cases(draw):
    cells = {
        "i": (pa.int64(), st.none() | st.integers(-3, 3)),
        "f": (pa.float64(), st.none() | st.sampled_from([math.nan, 0.0, -0.0, 1.0, -1.0])),
        "s": (pa.string(), st.none() | st.text(alphabet="a\x00b", max_size=3)),
    }
    names = draw(st.lists(st.sampled_from(sorted(cells)), min_size=1, max_size=2, unique=True))
    order = Order(tuple(OrderColumn(name, draw(st.booleans())) for name in names), draw(st.booleans()))
    tables = []
    for producer in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 30))
        columns = {
            name: pa.array(draw(st.lists(cells[name][1], min_size=rows, max_size=rows)), cells[name][0])
            for name in names
        }
        tables.append(numbered(producer, columns))
    return tables, order, draw(st.integers(1, 5)), draw(st.sampled_from([700, 64 << 20]))


@settings(max_examples=examples(25), deadline=None)
@given(cases())
def test_each_row_comes_once_in_its_range_whatever_the_regions(tmp_path_factory, case):
    tables, order, n, budget = case
    store = ResultStore(str(tmp_path_factory.mktemp("job")))
    summaries = write(store, tables, order, ranges=n, budget=budget, rows_per_batch=5)
    boundaries = boundaries_of(summaries, n)
    seen = 0
    for number in range(n):
        gate = reader(store, tables[0].schema, order, boundaries, len(tables), number, number + 1)
        got = read(gate, tables[0].schema)
        columns = [got.column(name).combine_chunks() for name in order.names]
        merged = got.take(row_order(columns, order)) if got.num_rows else got
        pairs = list(zip(merged["p"].to_pylist(), merged["row"].to_pylist(), strict=True))
        assert pairs == expected(tables, order, boundaries, number)
        assert gate.rows_read == got.num_rows
        seen += got.num_rows
    assert seen == sum(table.num_rows for table in tables) == sum(summary.rows for summary in summaries)


def big(producer, rows=120_000):
    rng = np.random.default_rng(producer)
    words = np.array(
        [f"https://example.org/a/rather/long/beginning/that/all/of/them/share/{k:06d}" for k in range(3000)]
    )
    return numbered(producer, {"k": rng.integers(0, 10_000, rows), "s": words[rng.integers(0, len(words), rows)]})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    store = ResultStore(str(tmp_path_factory.mktemp("job")))
    order = Order((OrderColumn("s", ascending=False), OrderColumn("k")), split_equal=True)
    tables = [big(producer) for producer in range(3)]
    return store, tables, order, write(store, tables, order, ranges=16, budget=16 << 20)


def test_a_range_reads_about_its_share_and_the_ranges_are_even(written):
    store, tables, order, summaries = written
    total = sum(int(summary.bytes.sum()) for summary in summaries)
    boundaries = boundaries_of(summaries, 16)
    sizes = []
    for number in range(16):
        gate = reader(store, tables[0].schema, order, boundaries, 3, number, number + 1)
        chunks = []
        took = gate._trimmed
        gate._trimmed = lambda chunk, *rest, took=took, chunks=chunks: chunks.append(chunk) or took(chunk, *rest)
        said = gate.bytes_per_subpartition()
        read(gate, tables[0].schema)
        sizes.append(gate.bytes_read)
        assert said[0] == number
        assert abs(int(said[1].sum()) - gate.bytes_read) < 0.5 * total / 16
        messages = sum(len(chunk.messages) for chunk in chunks)
        rows = sum(run.message_rows[k + 1] - run.message_rows[k] for c in chunks for run, k in c.messages)
        assert messages and rows < 2 * 360_000 / 16
    assert sum(sizes) == total
    assert max(sizes) < 1.1 * total / 16


def test_a_range_is_parted_by_the_keys_of_the_index(written):
    store, tables, order, summaries = written
    schema = tables[0].schema
    boundaries = boundaries_of(summaries, 2)
    gate = reader(store, schema, order, boundaries, 3)
    limit = 4 << 20
    parts = gate.ranges(0, 2, limit)
    rows, last = 0, b""
    for part in parts:
        batches = list(gate.read_keys(part))
        table = pa.Table.from_batches(batches, schema=schema)
        assert table.nbytes < 1.8 * limit
        keys = [key for p in range(3) for key in keys_of(table.filter(pa.compute.equal(table["p"], p)), order, p)]
        assert min(keys) >= last
        last = max(keys)
        rows += table.num_rows
    assert rows == 360_000
    assert 4 <= len(parts) < 40


def test_a_key_heavier_than_the_limit_is_a_part_of_its_own(tmp_path):
    store = ResultStore(str(tmp_path))
    order = Order((OrderColumn("k"),))
    heavy = [numbered(p, {"k": [5] * 200_000 + list(range(10))}) for p in range(2)]
    boundaries = boundaries_of(write(store, heavy, order), 1)
    gate = reader(store, heavy[0].schema, order, boundaries, 2)
    parts = gate.ranges(0, 1, 1 << 20)
    [one] = [part for part in parts if part.is_one_key]
    got = pa.Table.from_batches(list(gate.read_keys(one)))
    assert got["k"].unique().to_pylist() == [5]
    assert got.num_rows == 400_002
    assert got["p"].to_numpy().tolist() == sorted(got["p"].to_pylist())
    others = sum(b.num_rows for part in parts if part is not one for b in gate.read_keys(part))
    assert others == 18


def test_rows_that_came_in_order_are_written_as_they_are(tmp_path):
    store = ResultStore(str(tmp_path))
    order = Order((OrderColumn("k"),))
    table = numbered(0, {"k": np.arange(100_000)})
    boundaries = boundaries_of(write(store, [table], order, budget=2 << 20), 4)
    assert read(reader(store, table.schema, order, boundaries, 1), table.schema).equals(table)


def test_declared_types_come_back(tmp_path):
    store = ResultStore(str(tmp_path))
    kind = pa.dictionary(pa.int8(), pa.string())
    table = pa.table(
        {
            "d": pa.array([f"w{k % 200}" for k in range(500)])
            .dictionary_encode()
            .cast(pa.dictionary(pa.int32(), pa.string()))
        }
    )
    order = Order((OrderColumn("d", ascending=False),))
    boundaries = boundaries_of(write(store, [table], order), 3)
    got = read(reader(store, pa.schema([("d", kind)]), order, boundaries, 1), pa.schema([("d", kind)]))
    assert got["d"].to_pylist() == sorted(table["d"].to_pylist(), reverse=True)


def test_no_rows_are_no_rows(tmp_path):
    store = ResultStore(str(tmp_path))
    order = Order((OrderColumn("k"),), split_equal=True)
    empty = numbered(0, {"k": pa.array([], pa.int64())})
    summaries = write(store, [empty, empty], order)
    gate = reader(store, empty.schema, order, boundaries_of(summaries, 3), 2)
    assert list(gate.read()) == []
    assert gate.bytes_per_subpartition()[1].tolist() == [0, 0, 0]
    assert [list(gate.read_keys(part)) for part in gate.ranges(0, 3, 100)] == [[]]


def test_a_missing_object_is_blamed_on_its_producer(tmp_path):
    store = ResultStore(str(tmp_path))
    order = Order((OrderColumn("k"),), split_equal=True)
    tables = [numbered(p, {"k": np.arange(50)}) for p in range(2)]
    boundaries = boundaries_of(write(store, tables, order), 2)
    store.delete([object_name(DATASET, 1, 0, 7)])
    for ask in (lambda g: list(g.read()), lambda g: g.bytes_per_subpartition(), lambda g: g.ranges(0, 2, 10)):
        with pytest.raises(PartitionException) as error:
            ask(reader(store, tables[0].schema, order, boundaries, 2))
        assert (error.value.partition, error.value.token) == (1, 7)


def test_damage_anywhere_is_noticed_or_does_not_matter(tmp_path):
    store = ResultStore(str(tmp_path))
    order = Order((OrderColumn("s"),), split_equal=True)
    table = numbered(0, {"s": [f"key {k % 7}" * (1 + k % 3) for k in range(60)]})
    boundaries = boundaries_of(write(store, [table], order, budget=1500, codec="none", rows_per_batch=5), 3)
    path = tmp_path / object_name(DATASET, 0, 0, 7)
    content = path.read_bytes()
    whole = [read(reader(store, table.schema, order, boundaries, 1, n, n + 1), table.schema) for n in range(3)]
    refused = 0
    for place in [*range(0, len(content) - 1500, 111), *range(len(content) - 1500, len(content), 9)]:
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        for n in range(3):
            gate = reader(store, table.schema, order, boundaries, 1, n, n + 1)
            try:
                assert read(gate, table.schema).equals(whole[n]), place
            except PartitionException as error:
                refused += 1
                assert error.partition == 0
    assert refused > 150
    for length in range(0, len(content), 61):
        path.write_bytes(content[:length])
        with pytest.raises(PartitionException):
            read(reader(store, table.schema, order, boundaries, 1), table.schema)


def test_another_order_is_not_taken_for_this_one(tmp_path):
    store = ResultStore(str(tmp_path))
    table = numbered(0, {"k": np.arange(50)})
    write(store, [table], Order((OrderColumn("k"),)))
    other = Order((OrderColumn("k", ascending=False),))
    with pytest.raises(PartitionException, match="another schema"):
        list(reader(store, table.schema, other, Boundaries(()), 1).read())
    plain = GateReader(store, DATASET, table.schema, 1, np.zeros(1, np.int64), np.full(1, 7), np.array([[0, 1, 0, 1]]))
    with pytest.raises(PartitionException, match="another schema"):
        list(plain.read())


def test_from_a_far_store_each_object_is_asked_for_little(tmp_path, monkeypatch):
    monkeypatch.setenv(far_storage.COUNTS, str(tmp_path / "counts"))
    store = ResultStore(str(tmp_path / "job"), "far_storage:open_far")
    store.create()
    order = Order((OrderColumn("k"),), split_equal=True)
    tables = [numbered(p, {"k": np.random.default_rng(p).integers(0, 1000, 3000)}) for p in range(6)]
    boundaries = boundaries_of(write(store, tables, order), 4)
    before = far_storage.counts(tmp_path / "counts")
    gate = reader(store, tables[0].schema, order, boundaries, 6, 1, 3)
    got = read(gate, tables[0].schema)
    after = far_storage.counts(tmp_path / "counts")
    assert gate.bytes_per_subpartition()[0] == 1
    pairs = sorted(zip(got["p"].to_pylist(), got["row"].to_pylist(), strict=True))
    assert pairs == sorted(expected(tables, order, boundaries, 1) + expected(tables, order, boundaries, 2))
    assert after["opens"] - before["opens"] <= 6
    assert after["reads"] - before["reads"] <= 3 * 6


def test_parts_of_a_range_cover_it_without_overlap_and_are_of_the_size_they_say(tmp_path):
    store = ResultStore(str(tmp_path))
    order = Order((OrderColumn("k"),))
    rng = np.random.default_rng(5)
    tables = [numbered(p, {"k": rng.zipf(1.5, 60_000).clip(max=1 << 40)}) for p in range(4)]
    boundaries = boundaries_of(write(store, tables, order, budget=4 << 20), 3)
    gate = reader(store, tables[0].schema, order, boundaries, 4)
    limit = 200 << 10
    parts = gate.ranges(0, 3, limit)
    assert [part.high for part in parts[:-1]] == [part.low for part in parts[1:]]
    assert (parts[0].low, parts[-1].high) == (None, None)
    rows = 0
    for part in parts:
        batches = list(gate.read_keys(part, keep_bytes=limit))
        size = sum(batch.num_rows for batch in batches) * 16
        rows += sum(batch.num_rows for batch in batches)
        distinct = {key for batch in batches for key in batch["k"].to_pylist()}
        assert len(distinct) == 1 if part.is_one_key else size <= 2.5 * limit
    assert rows == 240_000
    assert sum(part.nbytes for part in parts) == pytest.approx(240_000 * 16, rel=0.01)
    assert any(part.is_one_key for part in parts)


@pytest.mark.parametrize("kind", ["numbers", pytest.param("text", marks=pytest.mark.full)])
def test_the_writer_stays_within_its_budget(tmp_path, kind):
    rng = np.random.default_rng(1)
    rows = 300_000
    numbers = rng.integers(0, 1 << 60, rows)
    wide = [f"{'x' * 60}{k}" for k in numbers.tolist()]
    table = pa.table({"k": wide, "a": numbers}) if kind == "text" else pa.table({"k": numbers, "a": numbers})
    order, budget = Order((OrderColumn("k"),), split_equal=True), 6 << 20
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        [summary] = write(ResultStore(str(tmp_path)), [table], order, budget=budget, rows_per_batch=5000)
        peak = pool.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    assert summary.rows == rows
    assert table.nbytes > 0.7 * budget
    assert peak < 1.5 * budget  # the two peaks need not fall together: their sum is more than was ever held

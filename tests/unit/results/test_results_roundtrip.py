"""What is written comes back: all types, slices, empties, ranges, regions, codecs, local and remote stores."""

from __future__ import annotations

import datetime as dt
import errno
import os
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from firesteel.errors import PartitionException, UsageError
from firesteel.results import messages
from firesteel.results import reader as reader_module
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.reader import GateReader
from firesteel.results.storage import store as store_module
from firesteel.results.storage.store import ResultStore, StorageError, object_name
from firesteel.results.writer import ResultWriter

BUDGET = 64 << 20


@pytest.fixture
def store(tmp_path):
    made = ResultStore(str(tmp_path / "job"))
    made.create()
    return made


def write(store, batches, schema, subpartitions=1, keys=(), *, partition=0, budget=BUDGET, **more):
    writer = ResultWriter(
        store, object_name(1, partition, 0, 7), schema, subpartitions, keys, memory_budget=budget, **more
    )
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def gate(store, schema, subpartitions=1, partitions=1, rects=None):
    rects = [[0, partitions, 0, subpartitions]] if rects is None else rects
    return GateReader(
        store,
        1,
        schema,
        subpartitions,
        np.zeros(partitions, np.int64),
        np.full(partitions, 7),
        np.array(rects, np.int32),
    )


def test_a_gate_may_speak_of_some_partitions_only(store):
    schema = pa.schema([("x", pa.int64())])
    for partition in (3, 8):
        write(store, [pa.record_batch([pa.array([partition])], schema=schema)], schema, partition=partition)
    attempts, tokens, named = np.zeros(2, np.int64), np.full(2, 7), np.array([3, 8])
    rects = np.array([[8, 9, 0, 1], [3, 4, 0, 1]], np.int32)
    reader = GateReader(store, 1, schema, 1, attempts, tokens, rects, named)
    assert read_table(reader)["x"].to_pylist() == [8, 3]
    store.delete([object_name(1, 8, 0, 7)])
    with pytest.raises(PartitionException) as error:
        read_table(GateReader(store, 1, schema, 1, attempts, tokens, rects, named))
    assert (error.value.partition, error.value.token) == (8, 7)


def read_table(reader, *bounds):
    batches = list(reader.read(*bounds))
    return pa.Table.from_batches(batches, schema=reader._schema)


class Celsius(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.float32(), "firesteel.test.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def utc(*args):
    return dt.datetime(*args, tzinfo=dt.UTC)


WORDS = ["a", None, "", "eins", "zwei", "a", "ü" * 40]
DICT = pa.dictionary(pa.int8(), pa.string())
SAMPLES = [
    pa.array([1, None, -3], pa.int8()),
    pa.array([1, None, 65535], pa.uint16()),
    pa.array([1, None, 2**64 - 1], pa.uint64()),
    pa.array([True, None, False]),
    pa.array([None, None, None], pa.null()),
    pa.array(np.array([1, 2, 3], np.float16)),
    pa.array([1.5, None, float("nan")], pa.float32()),
    pa.array([-0.0, None, float("inf")]),
    pa.array(WORDS),
    pa.array(WORDS, pa.large_string()),
    pa.array(WORDS, pa.string_view()),
    pa.array([b"a", None, b"\xff" * 50], pa.binary()),
    pa.array([b"a", None, b"\xff" * 50], pa.large_binary()),
    pa.array([b"a", None, b"\xff" * 50], pa.binary_view()),
    pa.array([b"abc", None, b"xyz"], pa.binary(3)),
    pa.array([dt.date(2020, 1, 1), None], pa.date32()),
    pa.array([dt.date(2020, 1, 1), None], pa.date64()),
    pa.array([1, None], pa.time32("ms")),
    pa.array([1, None], pa.time64("ns")),
    pa.array([utc(2020, 1, 1), None], pa.timestamp("us", "Europe/Berlin")),
    pa.array([-(2**35), None], pa.timestamp("s")),
    pa.array([2, None], pa.duration("ms")),
    pa.array([Decimal("1.50"), None], pa.decimal32(7, 2)),
    pa.array([Decimal("1.50"), None], pa.decimal64(14, 2)),
    pa.array([Decimal("1.50"), None, Decimal("-9.99")], pa.decimal128(30, 2)),
    pa.array([Decimal("1.50"), None], pa.decimal256(60, 2)),
    pa.array([[1, None], None, []], pa.list_(pa.int32())),
    pa.array([[1, None], None, []], pa.large_list(pa.int32())),
    pa.array([[1, None], None, [3, 4]], pa.list_(pa.int32(), 2)),
    pa.array([["a"], None, ["b", None]], pa.list_view(pa.string())),
    pa.array([["a"], None, ["b", None]], pa.large_list_view(pa.string())),
    pa.array([{"x": 1, "y": ["p"]}, None, {"x": None, "y": None}]),
    pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    pa.array(WORDS).dictionary_encode().cast(DICT),
    pa.array([1.5, 1.5, None]).dictionary_encode(),
    pa.array([["a", "b"], None, ["a"]], pa.list_(DICT)),
    pa.array([{"d": "a"}, None, {"d": None}], pa.struct([("d", DICT)])),
    pa.array([[("k", "a")], None, []], pa.map_(pa.string(), DICT)),
    pa.array([["a", "b"], None, ["c", "a"]], pa.list_(DICT, 2)),
    pa.RunEndEncodedArray.from_arrays([3, 5, 6], ["a", None, "b"]),
    pa.ExtensionArray.from_storage(Celsius(), pa.array([1, None, 3], pa.float32())),
    pa.ListArray.from_arrays(
        [0, 2, 3], pa.ExtensionArray.from_storage(Celsius(), pa.array([1, None, 3], pa.float32()))
    ),
]


@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda a: str(a.type).replace(" ", ""))
def test_every_type_keeps_values_and_type(store, sample, codec):
    column = pa.concat_arrays([sample, sample.slice(1), sample.slice(0, 0)]) if codec == "zstd" else sample
    number = pa.array(range(len(column)), pa.int64())
    schema = pa.schema([pa.field("n", pa.int64(), metadata={"a": "b"}), ("v", column.type)], metadata={"m": "n"})
    batch = pa.record_batch([number, column], schema=schema)
    pieces = [batch.slice(1), batch.slice(0, 1), batch.slice(0, 0)]
    summary = write(store, pieces, schema, 5, ("n",), codec=codec)
    table = read_table(gate(store, schema, 5))
    assert table.schema.equals(schema, check_metadata=True)
    assert summary.rows == len(column)
    assert sorted(table.column("n").to_pylist()) == number.to_pylist()
    found = dict(zip(table.column("n").to_pylist(), map(str, table.column("v").to_pylist()), strict=True))
    assert found == dict(enumerate(map(str, column.to_pylist())))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda a: str(a.type).replace(" ", ""))
def test_sliced_and_unpartitioned(store, sample):
    schema = pa.schema([("v", sample.type)])
    batch = pa.record_batch([sample], schema=schema).slice(1)
    summary = write(store, [batch, batch], schema)
    table = read_table(gate(store, schema))
    assert [str(v) for v in table.column("v").to_pylist()] == [str(v) for v in batch.column(0).to_pylist()] * 2
    assert summary.bytes.shape == (1,)


def numbers(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": rng.integers(0, 1000, rows),
            "s": pa.array([("x" * (i % 7)) + str(i) for i in range(rows)]),
            "i": np.arange(rows),
        }
    )


@pytest.mark.parametrize("budget", [pytest.param(1, marks=pytest.mark.full), 3000, 1 << 16, BUDGET])
def test_ranges_hold_exactly_their_rows_in_order(store, budget):
    table = numbers(1200)
    parts = [table.slice(0, 600), table.slice(600)]
    sizes = np.zeros(16, np.int64)
    for partition, part in enumerate(parts):
        sizes += write(store, part.to_batches(250), table.schema, 16, ("k",), partition=partition, budget=budget).bytes
    where = subpartition_of(hash_columns([table.column("k")]), 16)
    for low, high in [(0, 16), (3, 4), (5, 11), (15, 16), (7, 7)]:
        reader = gate(store, table.schema, 16, 2, [[0, 2, low, high]])
        found = read_table(reader)
        expected = table.filter(pa.array((where >= low) & (where < high)))
        assert found.sort_by("i").equals(expected)
        first, per = reader.bytes_per_subpartition()
        assert low == high or (first == low and per.tolist() == sizes[low:high].tolist())
        assert reader.rows_read == len(expected)
        assert reader.bytes_read == sizes[low:high].sum()
    whole = gate(store, table.schema, 16, 2)
    for sub in range(16):
        unit = read_table(whole, sub, sub + 1)
        assert unit.sort_by("i").equals(table.filter(pa.array(where == sub)))


def test_order_within_producer_and_subpartition(store):
    table = numbers(5000)
    write(store, table.to_batches(100), table.schema, 4, ("k",))
    for sub in range(4):
        rows = read_table(gate(store, table.schema, 4), sub, sub + 1).column("i").to_numpy()
        assert (np.diff(rows) > 0).all()


def test_rectangles_of_cells(store):
    table = numbers(900)
    for partition in range(3):
        write(
            store, table.slice(300 * partition, 300).to_batches(), table.schema, 4, partition=partition, start=partition
        )
    rects = [[0, 1, 2, 4], [1, 2, 0, 4], [2, 3, 0, 1]]
    reader = gate(store, table.schema, 4, 3, rects)
    rows = read_table(reader)
    assert len(rows) == 150 + 300 + 75
    first, sizes = reader.bytes_per_subpartition()
    assert first == 0
    assert sizes.sum() == reader.bytes_read
    assert len(read_table(gate(store, table.schema, 4, 3, rects), 3, 4)) == 150


@pytest.mark.parametrize("budget", [1000, BUDGET])
def test_round_robin_is_even_over_time(store, budget):
    table = numbers(1003)
    summary = write(store, table.to_batches(37), table.schema, 8, start=5, budget=budget)
    counts = [len(read_table(gate(store, table.schema, 8), s, s + 1)) for s in range(8)]
    assert max(counts) - min(counts) <= 1
    assert [s for s in range(8) if counts[s] == max(counts)] == [5, 6, 7]
    assert sum(counts) == summary.rows == 1003
    one = write(store, table.slice(0, 1).to_batches(), table.schema, 8, start=13, partition=1)
    assert np.flatnonzero(one.bytes).tolist() == [5]


def test_empty_partition_is_a_valid_object(store):
    schema = numbers(0).schema
    summary = write(store, [], schema, 16, ("k",))
    assert summary.rows == 0
    assert summary.bytes.tolist() == [0] * 16
    assert list(gate(store, schema, 16).read()) == []
    assert gate(store, schema, 16).bytes_per_subpartition()[1].sum() == 0


def test_rows_without_columns_are_counted(store):
    batch = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), 5, [None]))
    write(store, [batch, batch], pa.schema([]), 3)
    assert sum(b.num_rows for b in gate(store, pa.schema([]), 3).read()) == 10
    write(store, [batch, batch], pa.schema([]), 1, partition=1)
    assert sum(b.num_rows for b in gate(store, pa.schema([]), 1, 2, [[1, 2, 0, 1]]).read()) == 10


def test_plain_bytes_are_exact_and_do_not_depend_on_cuts(store):
    strings = pa.array(["", "abc", None, "xx"])
    lists = pa.array([["a", "bc"], [], None, ["d"]])
    table = pa.table({"k": pa.array([1, 2, 3, 4], pa.int32()), "s": strings, "l": lists})
    expected = 4 * 4 + (4 * 4 + 5) + (4 * 4 + 3 * 4 + 4)
    assert write(store, table.to_batches(), table.schema, 3, ("k",)).bytes.sum() == expected
    assert write(store, table.to_batches(1), table.schema, 3, ("k",), partition=1, budget=1).bytes.sum() == expected
    assert write(store, table.to_batches(3), table.schema, partition=2).bytes.sum() == expected


def test_dictionary_with_more_values_than_its_index_counts(store):
    """Two producers' dictionaries of 100 values each do not fit one int8 index: the batch is cut until they do."""
    schema = pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])
    batches = []
    for base in (0, 1000):
        values = pa.array([str(base + i) for i in range(100)])
        batches.append(
            pa.record_batch([pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), values)], schema=schema)
        )
    write(store, batches, schema)
    table = read_table(gate(store, schema))
    assert table.column("d").to_pylist() == [str(base + i) for base in (0, 1000) for i in range(100)]


def test_shared_dictionaries_are_not_written_again_and_again(store):
    words = pa.array([f"word number {i}" for i in range(5000)])
    codes = pa.array(np.arange(5000, dtype=np.int32))
    column = pa.DictionaryArray.from_arrays(codes, words)
    schema = pa.schema([("k", pa.int64()), ("d", column.type)])
    batch = pa.record_batch([pa.array(np.arange(5000)), column], schema=schema)
    summary = write(store, [batch.slice(i, 50) for i in range(0, 5000, 50)], schema, 128, ("k",), codec="none")
    assert summary.stored_bytes < 400_000


def test_small_subpartitions_share_messages_and_sparse_indexes_are_small(store):
    table = numbers(100)
    assert write(store, table.to_batches(), table.schema, 4096, ("k",)).stored_bytes < 8_000
    many = numbers(20_000)
    assert write(store, many.to_batches(), many.schema, 4096, ("k",), partition=1, codec="none").stored_bytes < 900_000


def test_small_slices_of_many_producers_are_joined(store):
    table = numbers(640)
    for partition in range(20):
        write(store, table.slice(32 * partition, 32).to_batches(), table.schema, 8, ("k",), partition=partition)
    assert len(list(gate(store, table.schema, 8, 20).read(2, 3))) == 1


def test_memory_stays_within_the_budget(store):
    table = numbers(200_000)
    budget = 2 << 20
    base = pa.total_allocated_bytes()
    writer = ResultWriter(store, object_name(1, 0, 0, 7), table.schema, 64, ("k",), memory_budget=budget)
    peak = 0
    for batch in table.to_batches(2000):
        writer.write(batch)
        peak = max(peak, pa.total_allocated_bytes() - base)
    writer.finish()
    assert peak < budget
    base, peak, rows = pa.total_allocated_bytes(), 0, 0
    for batch in gate(store, table.schema, 64).read():
        rows += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - base)
    assert rows == 200_000
    assert peak < 24 << 20


def test_many_tiny_batches_count_too(store):
    schema = pa.schema([(name, pa.int64()) for name in "kabcdefg"])
    one = pa.record_batch([pa.array([i]) for i in range(8)], schema=schema)
    writer = ResultWriter(store, object_name(1, 0, 0, 7), schema, 4, ("k",), memory_budget=1 << 20)
    base, peak = pa.total_allocated_bytes(), 0
    for _ in range(1000):
        writer.write(one.take(pa.array([0])))
        peak = max(peak, pa.total_allocated_bytes() - base)
    assert writer.finish().rows == 1000
    assert peak < 1 << 20


def test_kept_slices_do_not_keep_whole_messages(store):
    table = numbers(20_000)
    write(store, table.to_batches(), table.schema, 64, ("k",))
    kept = [batch for sub in range(64) for batch in gate(store, table.schema, 64).read(sub, sub + 1)]
    assert sum(batch.get_total_buffer_size() for batch in kept) < 3 * table.nbytes


def test_one_huge_row_and_rows_of_very_different_sizes(store):
    sizes = [10, 5_000_000, 20, 3_000_000] + [5] * 1000
    table = pa.table({"k": np.zeros(len(sizes), np.int64), "s": ["x" * size for size in sizes]})
    summary = write(store, table.to_batches(), table.schema, 2, ("k",), budget=1 << 20)
    back = read_table(gate(store, table.schema, 2))
    assert [len(s) for s in back.column("s").to_pylist()] == sizes
    assert summary.bytes.sum() == sum(sizes) + 12 * len(sizes)


def test_bad_batches_and_arguments_are_sentences(store):
    schema = pa.schema([("a", pa.int64())])
    writer = ResultWriter(store, "x", schema, 1, memory_budget=BUDGET)
    with pytest.raises(ValueError, match=r"columns \(b\) came where \(a\)"):
        writer.write(pa.record_batch({"b": [1]}))
    with pytest.raises(ValueError, match="Column 'a' is string where int64"):
        writer.write(pa.record_batch({"a": ["x"]}))
    writer.abort()
    assert store.list() == []
    with pytest.raises(ValueError, match="Unknown codec"):
        ResultWriter(store, "x", schema, 1, memory_budget=BUDGET, codec="gzip")
    with pytest.raises(ValueError, match="Cannot partition by z"):
        ResultWriter(store, "x", schema, 2, ("z",), memory_budget=BUDGET)


def test_store_is_picklable_lists_and_deletes(store):
    again = pickle.loads(pickle.dumps(store))
    for name in ("b", "a"):
        out = again.open_output(name)
        out.write(b"12345")
        out.close()
    assert store.list() == ["a", "b"]
    with pytest.raises(StorageError, match="cannot take the new object a"):
        store.open_output("a")
    store.delete(["a", "never there"])
    assert store.list() == ["b"]
    store.delete_all()
    store.delete_all()
    assert store.list() == []
    with pytest.raises(StorageError, match="no such directory"):
        store.open_output("a")


def test_full_disk_is_a_sentence(store, monkeypatch):
    out = store.open_output("a")
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(out, "_fd", full)
    with pytest.raises(StorageError, match="is full") as error:
        out.write(b"x")
    assert error.value.errno == errno.ENOSPC
    out.close()


def test_unknown_location_is_a_sentence():
    with pytest.raises(UsageError, match="cannot lie at s3a://bucket"):
        ResultStore("s3a://bucket/dir").create()


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A store that goes through pyarrow.fs as a remote one does."""
    root = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    monkeypatch.setattr(store_module, "open_location", lambda url, function: (root, "bucket/job"))
    made = ResultStore("s3://bucket/job/")
    made.create()
    return made


def test_remote_store(remote):
    table = numbers(20_000)
    write(remote, table.to_batches(1000), table.schema, 64, ("k",), budget=1 << 18)
    assert read_table(gate(remote, table.schema, 64)).sort_by("i").equals(table)
    assert remote.list() == [object_name(1, 0, 0, 7)]
    with pytest.raises(PartitionException, match="is missing"):
        list(gate(remote, table.schema, 64, 2, [[1, 2, 0, 64]]).read())
    remote.delete([object_name(1, 0, 0, 7), "never there"])
    assert remote.list() == []
    remote.delete_all()
    remote.delete_all()
    assert remote.list() == []


@pytest.mark.parametrize("chunk", [1, 10_000, 4 << 20])
def test_remote_producers_are_read_ahead_in_order(remote, monkeypatch, chunk):
    monkeypatch.setattr(reader_module, "CHUNK_BYTES", chunk)
    table = numbers(9000)
    for partition in range(9):
        part = table.slice(1000 * partition, 1000)
        write(remote, part.to_batches(100), table.schema, partition=partition, budget=1 << 15, codec="none")
    reader = gate(remote, table.schema, 1, 9)
    assert read_table(reader).equals(table)
    assert read_table(reader).equals(table)  # from indexes that were kept
    assert gate(remote, table.schema, 1, 9).bytes_per_subpartition()[1].sum() == reader.bytes_read / 2
    some = reader.read()
    assert next(some).num_rows > 0
    some.close()  # does not wait for what was not begun
    remote.delete([object_name(1, 6, 0, 7)])
    with pytest.raises(PartitionException, match="is missing") as error:
        read_table(gate(remote, table.schema, 1, 9))
    assert error.value.partition == 6


def test_lists_are_gathered_some_rows_at_a_time(monkeypatch):
    """As their values are found by an index of each, which may need many times their bytes."""
    monkeypatch.setattr(messages, "STEP_BYTES", 100)
    rng = np.random.default_rng(3)
    rows = [None if n % 7 == 0 else {"l": list(range(n % 5)), "m": [(n, str(n))]} for n in range(400)]
    kind = pa.struct([("l", pa.list_(pa.int8())), ("m", pa.map_(pa.int64(), pa.string()))])
    column, order = pa.array(rows, kind), rng.permutation(400)
    columns = [column, column.field("l"), column.field("m")]
    expected = [each.take(pa.array(order)) for each in columns]
    messages.put_in_order(columns, order)
    assert all(a.equals(b) for a, b in zip(columns, expected, strict=True))

"""Merged objects: what they save, what they hold, and what a reader says of one that is damaged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import far_storage
from firesteel.errors import MERGED_ATTEMPT, PartitionException
from firesteel.results.merging import MergeInput, merge_objects, windows
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, merged_name, object_name
from firesteel.results.writer import ResultWriter

BUDGET = 64 << 20
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def fill(store, producers, rows, subpartitions, width=1, codec="none"):
    for p in range(producers):
        name = object_name(0, p, 0, p)
        writer = ResultWriter(store, name, SCHEMA, subpartitions, ("k",), memory_budget=BUDGET, codec=codec)
        keys = np.arange(rows)
        strings = [f"{k} of {p} " * width for k in keys]
        writer.write(pa.record_batch([pa.array(keys), pa.array(strings)], schema=SCHEMA))
        writer.finish()


def merge(store, first, end, subpartitions, *, token=5, budget=BUDGET, producers=None):
    count = producers or end
    given = MergeInput(0, SCHEMA, subpartitions, np.zeros(count, np.int64), np.arange(count), first, end)
    name = merged_name(0, first, end, token)
    merge_objects(store, given, name, memory_budget=budget, codec="lz4")
    return name


def reader(store, producers, subpartitions, rect=None, merged=None):
    rects = np.array([rect or [0, producers, 0, subpartitions]])
    return GateReader(
        store, 0, SCHEMA, subpartitions, np.zeros(producers, np.int64), np.arange(producers), rects, merged=merged
    )


def columns(*merged):
    return tuple(np.array(column) for column in zip(*merged, strict=True))


def table(gate):
    return pa.Table.from_batches(list(gate.read()), SCHEMA)


@pytest.fixture
def counted(tmp_path, monkeypatch):
    monkeypatch.setenv(far_storage.COUNTS, str(tmp_path / "counts"))
    store = ResultStore(str(tmp_path / "job"), "far_storage:open_far")
    store.create()
    return store, lambda: far_storage.counts(tmp_path / "counts")


def test_a_merge_reads_each_small_object_once(counted):
    store, counts = counted
    fill(store, 20, 300, 50)
    before = counts()
    merge(store, 0, 20, 50)
    after = counts()
    assert after["opens"] - before["opens"] == after["reads"] - before["reads"] == 20
    assert after["creates"] - before["creates"] == 1


def test_readers_of_a_merged_object_ask_for_one_slice_each(counted):
    store, counts = counted
    fill(store, 20, 3000, 50)
    merge(store, 0, 20, 50)
    merged = columns((0, 20, 5))
    before = counts()
    rows = [table(reader(store, 20, 50, [0, 20, s, s + 1], merged)) for s in range(50)]
    found = counts()
    assert found["opens"] - before["opens"] <= 2 * 50
    assert found["reads"] - before["reads"] <= 3 * 50
    assert sum(map(len, rows)) == 20 * 3000


def test_large_messages_are_copied_as_they_are(tmp_path, monkeypatch):
    store = ResultStore(str(tmp_path))
    fill(store, 4, 8000, 4, width=20)
    expected = table(reader(store, 4, 4)).sort_by([("k", "ascending"), ("s", "ascending")])

    def refuse(*_):
        raise AssertionError("decoded what could be copied")

    with monkeypatch.context() as patch:
        patch.setattr("firesteel.results.merging.decode_message", refuse)
        merge(store, 0, 4, 4)
        merge(store, 0, 4, 4, token=6, budget=1)  # each subpartition streamed
    for token in (5, 6):
        found = table(reader(store, 4, 4, merged=columns((0, 4, token))))
        assert found.sort_by([("k", "ascending"), ("s", "ascending")]).equals(expected)


def test_partitions_outside_the_merged_ones_are_read_from_their_own_objects(tmp_path):
    store = ResultStore(str(tmp_path))
    fill(store, 9, 100, 3)
    merge(store, 2, 4, 3, producers=9)
    merge(store, 6, 9, 3, producers=9)
    merged = columns((2, 4, 5), (6, 9, 5))
    for rect in ([0, 9, 0, 3], [3, 9, 1, 2], [2, 8, 0, 3], [4, 6, 0, 3], [2, 4, 2, 3]):
        found, expected = table(reader(store, 9, 3, rect, merged)), table(reader(store, 9, 3, rect))
        keys = [("k", "ascending"), ("s", "ascending")]
        assert found.sort_by(keys).equals(expected.sort_by(keys))
    store.delete([object_name(0, p, 0, p) for p in (2, 3, 6, 7, 8)])
    assert len(table(reader(store, 9, 3, merged=merged))) == 900
    with pytest.raises(PartitionException) as error:  # a rectangle that cuts a merged object needs the originals
        table(reader(store, 9, 3, [3, 9, 0, 3], merged))
    assert (error.value.partition, error.value.attempt) == (3, 0)


@pytest.mark.parametrize("harm", ["missing", "cut", "changed"])
def test_a_damaged_merged_object_is_named(tmp_path, harm):
    store = ResultStore(str(tmp_path))
    fill(store, 5, 500, 3)
    path = tmp_path / merge(store, 1, 5, 3)
    content = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[:-30])
    else:
        content[200] ^= 1
        path.write_bytes(content)
    with pytest.raises(PartitionException, match="their own objects can be read") as error:
        table(reader(store, 5, 3, merged=columns((1, 5, 5))))
    assert (error.value.dataset, error.value.partition, error.value.attempt, error.value.token) == (
        0,
        1,
        MERGED_ATTEMPT,
        5,
    )


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_a_damaged_input_ends_the_merge_and_leaves_nothing(tmp_path, harm):
    store = ResultStore(str(tmp_path))
    fill(store, 3, 500, 3)
    path = tmp_path / object_name(0, 1, 0, 1)
    if harm == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[200] ^= 1
        path.write_bytes(content)
    before = store.list()
    with pytest.raises(PartitionException) as error:
        merge(store, 0, 3, 3)
    assert (error.value.partition, error.value.attempt, error.value.token) == (1, 0, 1)
    assert store.list() == before


def test_a_merge_stays_within_its_budget(tmp_path):
    store = ResultStore(str(tmp_path))
    fill(store, 30, 10_000, 64, width=8, codec="lz4")
    base = pa.total_allocated_bytes()
    budget, peak = 16 << 20, 0
    open_output = store.open_output

    def watched(name):
        target = open_output(name)
        write = target.write

        def noting(*parts):
            nonlocal peak
            peak = max(peak, pa.total_allocated_bytes() - base)
            write(*parts)

        target.write = noting
        return target

    store.open_output = watched
    merge(store, 0, 30, 64, budget=budget)
    assert 0 < peak < budget
    assert len(table(reader(store, 30, 64, merged=columns((0, 30, 5))))) == 300_000


def test_rows_without_columns_and_empty_partitions_are_merged(tmp_path):
    store, schema = ResultStore(str(tmp_path)), pa.schema([])
    batch = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), 5, [None]))
    for p, batches in enumerate(([batch], [], [batch])):
        writer = ResultWriter(store, object_name(0, p, 0, p), schema, 2, memory_budget=BUDGET)
        for one in batches:
            writer.write(one)
        writer.finish()
    zeros = np.zeros(3, np.int64)
    for first, end in ((0, 3), (1, 2)):
        given = MergeInput(0, schema, 2, zeros, np.arange(3), first, end)
        merge_objects(store, given, merged_name(0, first, end, 1), memory_budget=BUDGET, codec="lz4")
        gate = GateReader(
            store, 0, schema, 2, zeros, np.arange(3), np.array([[0, 3, 0, 2]]), merged=columns((first, end, 1))
        )
        assert sum(found.num_rows for found in gate.read()) == 10


def test_windows_cover_all_and_keep_the_limit():
    sizes = np.array([5, 5, 5, 40, 0, 0, 3, 9])
    assert list(windows(sizes, 10)) == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 8)]
    assert list(windows(np.zeros(3, np.int64), 10)) == [(0, 3)]

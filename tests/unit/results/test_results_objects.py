"""What a worker keeps of the objects it reads, counted in requests; storages opened by a function of the user's."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import far_storage
from firesteel.errors import PartitionException, UsageError
from firesteel.results.reader import GateReader
from firesteel.results.storage import objects
from firesteel.results.storage.objects import ObjectCache, worker_cache
from firesteel.results.storage.store import ResultStore, StorageError, object_name
from firesteel.results.writer import ResultWriter

FAR = "far_storage:open_far"
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
PRODUCERS, SUBPARTITIONS = 6, 40


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """(store, function that gives what was asked of it since the last call)."""
    path = tmp_path / "counts"
    monkeypatch.setenv(far_storage.COUNTS, str(path))
    store = ResultStore(str(tmp_path / "job"), FAR)
    store.create()
    before = dict.fromkeys(far_storage.NAMES, 0)

    def since() -> dict[str, int]:
        now = far_storage.counts(path)
        found = {name: now[name] - before[name] for name in now}
        before.update(now)
        return found

    return store, since


def fill(store, rows=4000, dataset=0):
    for p in range(PRODUCERS):
        writer = ResultWriter(
            store, object_name(dataset, p, 0, p), SCHEMA, SUBPARTITIONS, ("k",), memory_budget=1 << 24, codec="none"
        )
        keys = np.arange(rows) + p
        writer.write(pa.record_batch([pa.array(keys), pa.array([f"row {k} of {p}" for k in keys])], schema=SCHEMA))
        writer.finish()


def read(store, low, high, cache=None, dataset=0):
    attempts, tokens = np.zeros(PRODUCERS, np.int64), np.arange(PRODUCERS)
    rects = np.array([[0, PRODUCERS, low, high]])
    reader = GateReader(store, dataset, SCHEMA, SUBPARTITIONS, attempts, tokens, rects, cache=cache)
    assert reader.bytes_per_subpartition()[1].sum() > 0
    return pa.Table.from_batches(list(reader.read()), SCHEMA)


def test_a_far_object_costs_one_opening_and_one_request_and_a_second_reader_nothing(counted):
    store, since = counted
    fill(store, 200)
    since()
    cache = ObjectCache(store, files=100)
    rows = read(store, 0, 20, cache)
    found = since()
    assert (found["opens"], found["reads"]) == (PRODUCERS, PRODUCERS)
    rows = pa.concat_tables([rows, read(store, 20, 40, cache)])
    assert far_storage.requests(since()) == 0
    assert sorted(rows["s"].to_pylist()) == sorted(f"row {k + p} of {p}" for p in range(PRODUCERS) for k in range(200))


def test_a_second_reader_of_large_objects_asks_for_its_rows_only(counted):
    store, since = counted
    fill(store)
    cache = ObjectCache(store, files=100)
    read(store, 0, 1, cache)
    since()
    again = read(store, 1, 2, cache)
    found = since()
    assert (found["opens"], found["reads"]) == (0, PRODUCERS)
    assert again.equals(read(store, 1, 2))
    cache.close()


def test_objects_far_away_stay_open(counted):
    store, since = counted
    fill(store)
    cache = ObjectCache(store, files=4)
    read(store, 0, 1, cache)
    assert since()["opens"] > 0
    read(store, 1, 2, cache)
    # two of six did not fit, and the first ones stayed: each is opened for its index and for its rows at most
    assert since()["opens"] <= 2 * (PRODUCERS - 4)
    cache.close()


def test_a_local_object_that_is_deleted_gives_its_disk_space_back(tmp_path):
    store = ResultStore(str(tmp_path))
    fill(store)
    cache = ObjectCache(store, files=100)
    read(store, 0, 1, cache)
    folder = Path("/proc/self/fd")
    held = [fd for fd in folder.iterdir() if os.path.realpath(fd).startswith(str(tmp_path))]
    assert held == []
    cache.close()


def test_a_file_that_failed_is_opened_anew(counted):
    store, since = counted
    fill(store)
    cache = ObjectCache(store, files=100)
    read(store, 0, 1, cache)
    name = object_name(0, 0, 0, 0)
    file = cache.take_file(name)
    assert file is not None
    file.close()  # as a connection that broke
    cache.give_file(name, file)
    since()
    with pytest.raises((PartitionException, StorageError)):
        read(store, 1, 2, cache)
    assert read(store, 1, 2, cache).equals(read(store, 1, 2))
    cache.close()


def test_data_sets_in_use_do_not_push_each_other_out(counted):
    store, since = counted
    fill(store, dataset=1)
    fill(store, dataset=2)
    cache = ObjectCache(store, files=PRODUCERS)
    cache.use([1, 2])
    for dataset in (1, 2):
        read(store, 0, 1, cache, dataset)
    since()
    read(store, 1, 2, cache, 1)
    assert since()["opens"] == 0
    cache.use([2])
    read(store, 0, 1, cache, 2)
    since()
    read(store, 1, 2, cache, 2)
    assert since()["opens"] == 0
    cache.close()


def test_workers_of_an_executor_share_indexes_on_disk(counted, tmp_path):
    store, since = counted
    fill(store)
    shared = tmp_path / "indexes"
    whole = read(store, 0, 40)
    ObjectCache(store, files=1, disk=shared)
    first = ObjectCache(store, files=1, disk=shared)
    read(store, 3, 4, first)
    since()
    expected = read(store, 4, 5)
    private = since()
    assert read(store, 4, 5, ObjectCache(store, files=1, disk=shared)).equals(expected)
    found = since()
    assert found["reads"] == PRODUCERS < private["reads"]
    for file in shared.iterdir():  # what is damaged there is read from the storage again
        file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    assert read(store, 0, 40, ObjectCache(store, files=1, disk=shared)).equals(whole)


def test_a_worker_keeps_one_cache_per_job_and_forgets_old_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "_worker", type(objects._worker)())
    stores = [ResultStore(str(tmp_path / name)) for name in "abc"]
    caches = [worker_cache(store, [1], 1 << 30) for store in stores]
    assert worker_cache(stores[2], [2], 1 << 30) is caches[2]
    assert worker_cache(stores[0], [1], 1 << 30) is not caches[0]


def test_nothing_is_asked_where_there_are_no_rows(tmp_path):
    store = ResultStore(str(tmp_path))
    fill(store, 3)
    attempts, tokens = np.zeros(PRODUCERS, np.int64), np.arange(PRODUCERS)
    reader = GateReader(store, 0, SCHEMA, SUBPARTITIONS, attempts, tokens, np.array([[0, PRODUCERS, 0, 40]]))
    sizes = reader.bytes_per_subpartition()[1]
    reads = store.statistics.reads
    empty = int(np.flatnonzero(sizes == 0)[0])
    assert list(reader.read(empty, empty + 1)) == []
    assert store.statistics.reads == reads


def test_a_store_with_a_file_system_of_its_own_is_picklable(counted):
    store, _ = counted
    again = pickle.loads(pickle.dumps(store))
    assert not again.is_local
    fill(again, 10)
    assert len(store.list()) == PRODUCERS
    store.delete(store.list())
    assert again.list() == []
    assert store.statistics.deletes == PRODUCERS and again.statistics.creates == PRODUCERS


def nothing(path):
    return path


def broken(path):
    raise ValueError("no such bucket\nand more")


def leaving(path):
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("far_storage", "does not name a function"),
        ("no_such_module:f", "cannot be imported"),
        ("far_storage:nothing", "there is no 'nothing' in far_storage"),
        (f"{__name__}:nothing", "returned str, which is not a file system"),
        (f"{__name__}:broken", r"did not return a file system for bucket/job \(ValueError: no such bucket\)"),
        (f"{__name__}:leaving", r"did not return a file system for bucket/job \(SystemExit: 3\)"),
    ],
)
def test_a_wrong_name_of_a_file_system_is_a_sentence(name, sentence):
    with pytest.raises(UsageError, match=sentence):
        ResultStore("x://bucket/job", name).create()

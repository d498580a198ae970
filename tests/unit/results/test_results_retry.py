"""A storage that fails now and then: what is asked again, how often, and what is not."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from far_storage import FarHandler
from firesteel.errors import PartitionException
from firesteel.results.reader import GateReader
from firesteel.results.storage import filesystem
from firesteel.results.storage.filesystem import PAUSES, retried
from firesteel.results.storage.store import WRITE_BYTES, ResultStore, StorageError, object_name
from firesteel.results.writer import ResultWriter

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """How long was rested, without resting."""
    rested = []
    monkeypatch.setattr(filesystem.time, "sleep", rested.append)
    return rested


class Failing:
    """Counts what is asked and fails as told: ``fails[name]`` more requests of that kind."""

    def __init__(self):
        self.asked = Counter()
        self.fails = Counter()
        self.error = OSError("the connection was reset")

    def __call__(self, name, nbytes=None, bytes_name=""):
        self.asked[name] += 1
        if self.fails[name] > 0:
            self.fails[name] -= 1
            raise self.error


@pytest.fixture
def failing():
    return Failing()


@pytest.fixture
def store(tmp_path, failing, monkeypatch):
    opened = pafs.PyFileSystem(FarHandler(failing))
    monkeypatch.setattr("firesteel.results.storage.store.open_location", lambda url, function: (opened, url))
    store = ResultStore(str(tmp_path / "job"), "somebody:else")
    store.create()
    return store


def write(store, rows=100, partition=0):
    name = object_name(0, partition, 0, 7)
    writer = ResultWriter(store, name, SCHEMA, 4, ("k",), memory_budget=1 << 24, codec="none")
    v = np.arange(rows)
    writer.write(pa.record_batch([pa.array(v % 13), pa.array(v)], schema=SCHEMA))
    try:
        writer.finish()
    except BaseException:
        writer.abort()
        raise


def read(store):
    columns = np.zeros(1, np.int64), np.full(1, 7, np.int64)
    reader = GateReader(store, 0, SCHEMA, 4, *columns, np.array([[0, 1, 0, 4]], dtype=np.int32))
    return sorted(pa.Table.from_batches(list(reader.read()), SCHEMA)["v"].to_pylist())


@pytest.mark.parametrize("kind", ["creates", "writes"])
@pytest.mark.parametrize("times", [1, len(PAUSES)])
def test_a_small_object_is_put_again_as_a_whole(store, failing, pauses, kind, times):
    failing.fails[kind] = times
    write(store)
    assert failing.asked["creates"] == 1 + times
    assert read(store) == list(range(100))
    assert store.statistics.retries == times == len(pauses)


@pytest.mark.parametrize("kind", ["opens", "reads"])
def test_reads_are_asked_again_through_another_opening(store, failing, kind):
    write(store)
    failing.fails[kind] = 2
    before = failing.asked["opens"]
    assert read(store) == list(range(100))
    assert failing.asked["opens"] - before == 3
    assert store.statistics.retries == 2


def test_a_large_object_is_created_again_but_never_written_twice(store, failing):
    rows = WRITE_BYTES // 8
    failing.fails["creates"] = 1
    write(store, rows)
    assert read(store) == list(range(rows))
    failing.fails["writes"] = 1
    with pytest.raises(StorageError, match="cannot be written"):
        write(store, rows, partition=1)
    assert store.list() == [object_name(0, 0, 0, 7)], "what was half written is gone"


def test_pauses_grow_and_end(store, failing, pauses):
    failing.fails["creates"] = 100
    with pytest.raises(StorageError, match=r"cannot take the new object .*connection was reset"):
        write(store)
    assert failing.asked["creates"] == 1 + len(PAUSES)
    assert all(0.5 * pause <= rested <= 1.5 * pause for pause, rested in zip(PAUSES, pauses, strict=True))
    assert sum(PAUSES) * 1.5 < 5


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOSPC])
def test_what_will_not_pass_is_told_at_once(store, failing, pauses, number):
    failing.error = OSError(number, "no")
    failing.fails["creates"] = 1
    with pytest.raises(StorageError):
        write(store)
    assert pauses == []


def test_a_missing_object_is_not_asked_for_again(store, failing, pauses):
    with pytest.raises(PartitionException, match="is missing"):
        read(store)
    assert (failing.asked["opens"], pauses) == (1, [])


def test_many_deletions_that_fail_rest_together(store, failing, pauses):
    names = [object_name(0, p, 0, 7) for p in range(20)]
    for p in range(20):
        write(store, 1, p)
    failing.fails["deletes"] = 30
    store.delete(names)
    assert store.list() == []
    assert failing.asked["deletes"] == 50
    assert len(pauses) == 2
    write(store)
    failing.fails["deletes"] = 1000
    with pytest.raises(StorageError, match="still holds 1 of 1"):
        store.delete(names[:1])


def test_the_directory_is_made_listed_and_removed_in_spite_of_a_hiccup(store, failing, tmp_path):
    write(store)
    for ask in (store.create, store.list, store.delete_all):
        failing.fails["others"] = 2
        ask()
        assert failing.fails["others"] == 0
    assert not Path(tmp_path / "job").exists()


def test_a_stale_handle_of_a_local_file_is_opened_anew(tmp_path, monkeypatch):
    store = ResultStore(str(tmp_path))
    write(store)
    calls = []

    def stale(read):
        def stale_once(fd, *where):
            calls.append(read)
            if calls.count(read) == 1:
                raise OSError(errno.ESTALE, "Stale file handle")
            return read(fd, *where)

        return stale_once

    for name in ("pread", "preadv"):
        monkeypatch.setattr(f"firesteel.results.storage.store.os.{name}", stale(getattr(os, name)))
    assert read(store) == list(range(100))
    assert store.statistics.retries == 1


def test_an_answer_at_once_costs_no_rest(pauses):
    assert retried(lambda: 5) == 5
    assert pauses == []


def test_what_is_not_there_is_not_asked_for_again_even_if_the_error_has_no_number(pauses):
    def ask():
        raise FileNotFoundError("no such key")

    with pytest.raises(FileNotFoundError):
        retried(ask)
    assert pauses == []


def test_a_small_object_is_replaced_although_the_storage_fails_at_first(store, failing):
    store.replace("control", b"1")
    failing.fails["creates"] = 2
    store.replace("control", b"22")
    source = store.open_input("control")
    assert bytes(source.read_at(0, source.size)) == b"22"
    assert store.list() == ["control"]

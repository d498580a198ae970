"""Blobs without Spark: the caches and their bounds, workers of one executor side by side, damage, the driver's half."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.model.descriptors import digest_of
from firesteel.report.decisions import reason_of
from firesteel.results.storage.store import ResultStore, StorageError
from firesteel.scheduler.kernel.commands import GateDescriptor
from firesteel.spark.storage import blob_server
from firesteel.spark.storage.blob_server import BlobServer
from firesteel.task.executor import blobs
from firesteel.task.executor.blobs import BlobCache, blob_name, put_blob
from firesteel.task.executor.failures import describe_failure
from firesteel.task.executor.information import JobInformation, LruBytes
from firesteel.task.executor.spark_task import evict, gate_columns

# --- in memory ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.sampled_from("pgd")), max_size=60))
def test_the_least_recently_used_go_first_and_the_bound_holds(steps):
    cache, model, limit = LruBytes(20), [], 20  # the model: (key, size), the last used at the end
    for key, size, step in steps:
        known = next((entry for entry in model if entry[0] == key), None)
        if step == "g":
            assert cache.get(key) == (known and str(known))
            model += [model.pop(model.index(known))] if known else []
        else:
            model = [entry for entry in model if entry[0] != key]
            if step == "d":
                cache.drop(key)
            else:
                cache.put(key, str((key, size)), size)
                model.append((key, size))
                while sum(entry[1] for entry in model) > limit:
                    model.pop(0)
        assert cache.nbytes == sum(entry[1] for entry in model) <= limit
        assert [key in cache for key in range(10)] == [any(e[0] == key for e in model) for key in range(10)]
        assert len(cache) == len(model)


def test_what_is_larger_than_the_cache_puts_nothing_out():
    cache = LruBytes(10)
    cache.put("a", 1, 6)
    cache.put("b", 2, 11)
    assert (cache.get("a"), cache.get("b")) == (1, None)


# --- on the executor's disk ---------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    made = ResultStore(str(tmp_path / "store"))
    made.create()
    return made


def put(store, data):
    put_blob(store, digest_of(data), data)
    return digest_of(data)


def cache(tmp_path, store, limit=1000, job="job"):
    (tmp_path / "root").mkdir(exist_ok=True)
    return BlobCache(tmp_path / "root", job, store, limit)


def kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "root").glob("*/*"))


class Counting(ResultStore):
    """Each opening leaves a line in a file; slow, so that workers meet."""

    def open_input(self, name):
        with Path(f"{self.url}.log").open("a") as log:
            log.write(f"{os.getpid()}\n")
        time.sleep(0.05)
        return super().open_input(name)


def worker(url, root, digest, start):
    start.wait()
    assert BlobCache(root, "job", Counting(url), 1000).get(digest) == b"blob"


def test_workers_of_an_executor_fetch_a_blob_once(tmp_path, store):
    digest = put(store, b"blob")
    cache(tmp_path, store)
    forked = multiprocessing.get_context("fork")
    start = forked.Event()
    workers = [forked.Process(target=worker, args=(store.url, tmp_path / "root", digest, start)) for _ in range(4)]
    for process in workers:
        process.start()
    start.set()
    for process in workers:
        process.join(600)
        assert process.exitcode == 0
    assert len((tmp_path / "store.log").read_text().splitlines()) == 1
    assert kept(tmp_path) == [digest.hex()]


def test_the_disk_holds_what_was_used_last(tmp_path, store):
    local = cache(tmp_path, store, limit=100)
    first, second, third = (put(store, bytes([k]) * 40) for k in range(3))
    for age, digest in ((300, first), (200, second)):
        local.get(digest)
        os.utime(tmp_path / "root" / "job" / digest.hex(), (0, time.time() - age))
    local.get(first)  # used again, and so younger than the second
    local.get(third)
    assert kept(tmp_path) == sorted([first.hex(), third.hex()])
    large = put(store, b"x" * 101)
    assert local.get(large) == b"x" * 101
    assert kept(tmp_path) == sorted([first.hex(), third.hex()])


def test_what_a_dying_worker_left_goes_first_and_another_job_counts_too(tmp_path, store):
    other, local = cache(tmp_path, store, 100, "other"), cache(tmp_path, store, 100)
    old = put(store, b"a" * 30)
    other.get(old)
    (tmp_path / "root" / "job" / f"ff{blobs.PART}").write_bytes(b"x" * 50)
    new = put(store, b"b" * 60)
    local.get(new)
    assert kept(tmp_path) == sorted([old.hex(), new.hex()])


def test_a_job_that_nobody_runs_any_more_is_forgotten(tmp_path, store):
    idle, busy = cache(tmp_path, store, job="idle"), cache(tmp_path, store, job="busy")
    digest = put(store, b"blob")
    for one in (idle, busy):
        one.get(digest)
    long_ago = time.time() - blobs.IDLE_SECONDS - 10
    for folder in ("idle", "busy"):
        os.utime(tmp_path / "root" / folder, (long_ago, long_ago))
    os.utime(tmp_path / "root" / "idle" / digest.hex(), (long_ago, long_ago))
    cache(tmp_path, store).forget_idle_jobs()
    assert sorted(p.name for p in (tmp_path / "root").iterdir() if p.is_dir()) == ["busy", "job"]


def test_a_blob_that_was_dropped_is_fetched_again(tmp_path, store):
    local, digest = cache(tmp_path, store), put(store, b"blob")
    local.get(digest)
    local.drop([digest, b"unknown"])
    assert kept(tmp_path) == []
    assert local.get(digest) == b"blob"


def test_a_damaged_copy_is_fetched_again_and_a_damaged_blob_is_a_sentence(tmp_path, store):
    local, digest = cache(tmp_path, store), put(store, b"blob")
    local.get(digest)
    (tmp_path / "root" / "job" / digest.hex()).write_bytes(b"blub")
    assert local.get(digest) == b"blob"
    local.drop([digest])
    (tmp_path / "store" / blob_name(digest)).write_bytes(b"blub")
    with pytest.raises(StorageError, match=r"blob-[0-9a-f]{32} in .*store is damaged"):
        local.get(digest)
    assert kept(tmp_path) == []


def test_a_blob_that_is_damaged_on_its_way_is_fetched_again_once(tmp_path, store, monkeypatch):
    local, digest = cache(tmp_path, store), put(store, b"blob")
    ways = [b"blub", b"blob"]
    monkeypatch.setattr(BlobCache, "_download", lambda self, digest: ways.pop(0))
    assert local.get(digest) == b"blob"


def test_a_missing_blob_is_a_storage_failure(tmp_path, store):
    with pytest.raises(StorageError, match="is missing from") as raised:
        cache(tmp_path, store).get(digest_of(b"never stored"))
    assert describe_failure(raised.value).kind == "STORAGE"


def test_a_cache_that_cannot_be_written_only_costs_another_fetch(tmp_path, store):
    local, digest = cache(tmp_path, store), put(store, b"blob")
    (tmp_path / "root" / "job").rmdir()
    assert local.get(digest) == b"blob"
    assert kept(tmp_path) == []


def test_a_worker_decodes_a_gate_once_until_it_is_dropped(tmp_path, store):
    (tmp_path / "scratch").mkdir()
    job = JobInformation("decodes", store, "none", 1 << 20, scratch=str(tmp_path / "scratch"))
    encoded = gate().encoded
    put(store, encoded.data)
    first = gate_columns(job, encoded.digest, None)
    assert first.tokens.tolist() == [5, 6]
    store.delete([blob_name(encoded.digest)])
    assert gate_columns(job, encoded.digest, None) is first
    evict(job, (encoded.digest,))
    with pytest.raises(StorageError, match="is missing"):
        gate_columns(job, encoded.digest, None)
    assert gate_columns(job, encoded.digest, encoded.data).tokens.tolist() == [5, 6]


# --- on the driver ------------------------------------------------------------------------------------------------


def gate(**fields):
    return GateDescriptor(0, 4, np.zeros(2, np.int64), np.array([5, 6]), False, **fields)


def test_an_offloaded_gate_is_carried_by_its_digest(store):
    said = SimpleQueue()
    server, plain = BlobServer(store, "job", said.put), gate()
    blob = plain.as_offloaded()
    server.store(blob.encoded.digest, blob.encoded.data)
    assert server.carry(plain) == (plain.encoded.digest, plain.encoded.data)
    assert server.carry(blob) == (plain.encoded.digest, None)
    assert store.list() == [blob_name(plain.encoded.digest)]
    server.drop([plain.encoded.digest])
    assert server.dropped == (plain.encoded.digest,)
    assert server.carry(blob)[1] is not None, "a late deployment goes without"
    server.store(blob.encoded.digest, blob.encoded.data)
    assert server.dropped == ()
    server.close()
    assert said.empty()


def test_what_cannot_be_stored_is_carried_inline_and_told(store):
    said = SimpleQueue()
    server = BlobServer(store, "job", said.put)
    store.delete_all()
    blob = gate().as_offloaded()
    server.store(blob.encoded.digest, blob.encoded.data)
    assert server.carry(blob) == (blob.encoded.digest, blob.encoded.data)
    assert "travels in each deployment" in reason_of(said.get(timeout=600).as_decision(1.0))
    server.close()


def test_a_deployment_does_not_wait_for_a_storage_that_hangs(store, monkeypatch):
    monkeypatch.setattr(blob_server, "UPLOAD_SECONDS", 0.01)
    go = threading.Event()
    monkeypatch.setattr(blob_server, "put_blob", lambda *_: go.wait(600))
    server, blob = BlobServer(store, "job", lambda failed: None), gate().as_offloaded()
    server.store(blob.encoded.digest, blob.encoded.data)
    assert server.carry(blob)[1] is not None
    go.set()
    server.close()


def test_a_blob_that_is_dropped_before_it_was_stored_is_carried_inline(store, monkeypatch):
    """A deployment that waits for it meanwhile must not name what is not there."""
    go, real = threading.Event(), blob_server.put_blob
    monkeypatch.setattr(blob_server, "put_blob", lambda *given: (go.wait(600), real(*given)))
    server, blob = BlobServer(store, "job", lambda failed: None), gate().as_offloaded()
    server.store(b"another", b"data")
    server.store(blob.encoded.digest, blob.encoded.data)
    upload = server._uploads[blob.encoded.digest]
    monkeypatch.setattr(
        upload.done, "wait", lambda seconds: (server.drop([blob.encoded.digest]), go.set(), wait(seconds))[2]
    )
    wait = threading.Event.wait.__get__(upload.done)
    assert server.carry(blob)[1] is not None
    server.close()


def test_nothing_is_stored_once_the_job_is_over(store, monkeypatch):
    go, real = threading.Event(), blob_server.put_blob
    monkeypatch.setattr(blob_server, "put_blob", lambda *given: (go.wait(600), real(*given)))
    server = BlobServer(store, "job", lambda failed: None)
    for k in range(3):
        server.store(bytes([k]), b"data")
    closing = threading.Thread(target=server.close)
    closing.start()
    while server._uploads:
        time.sleep(0.001)
    go.set()
    closing.join(600)
    assert len(store.list()) <= 1, "only the one that was under way"


def test_few_digests_are_remembered(store):
    server = BlobServer(store, "job", lambda failed: None)
    server.drop([bytes([k]) for k in range(100)])
    assert server.dropped == tuple(bytes([k]) for k in range(100 - blob_server.REMEMBERED, 100))
    server.close()

"""``firesteel.shared`` in the workers of one executor, which are processes here as well."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import firesteel
from firesteel.errors import UsageError
from firesteel.task import mapped, sharing
from firesteel.task.mapped import MappedObjects


@pytest.fixture
def directory(tmp_path):
    sharing.begin(MappedObjects(tmp_path / "shared"))
    yield tmp_path / "shared"
    sharing.end()
    mapped.let_go()


def files(directory):
    return sorted(path for path in directory.iterdir() if path.suffix != ".lock")


def ones(notes, n):
    with Path(notes).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return {"weights": np.ones(n), "names": pa.table({"a": ["x"] * n})}


def text(value):
    return value


def test_what_is_shared_is_made_by_a_function(directory):
    with pytest.raises(UsageError, match="wants a function that makes the object, not an object of type ndarray"):
        firesteel.shared(np.ones(3))


def lock():
    return threading.Lock()


def fails():
    raise KeyError("no model")


def _in_worker(directory, notes, answers):
    sharing.begin(MappedObjects(directory))
    made = firesteel.shared(ones, notes, 1000)
    answers.put((float(made["weights"].sum()), made["names"].num_rows, made["weights"].flags.writeable))


def test_made_once_for_all_workers(directory, tmp_path):
    context = multiprocessing.get_context("fork")
    answers, notes = context.Queue(), str(tmp_path / "notes")
    workers = [context.Process(target=_in_worker, args=(directory, notes, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=60) for _ in workers] == [(1000.0, 1000, False)] * 4
    for worker in workers:
        worker.join()
    assert len((tmp_path / "notes").read_text().splitlines()) == 1
    assert firesteel.shared(ones, notes, 1000)["names"].num_rows == 1000
    assert len((tmp_path / "notes").read_text().splitlines()) == 1
    firesteel.shared(ones, notes, 10)
    assert len(files(directory)) == 2


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc"), b""])
def test_bytes_come_as_a_view(directory, value):
    for _ in range(2):
        found = firesteel.shared(text, value if isinstance(value, bytes) else bytes(value))
        assert isinstance(found, memoryview)
        assert found.readonly
        assert bytes(found) == bytes(value)
        mapped.let_go()


def test_what_cannot_be_shared_is_told(directory):
    with pytest.raises(UsageError, match=r"cannot share what lock made, a lock: .*pickle"):
        firesteel.shared(lock)
    with pytest.raises(UsageError, match="cannot tell what text is called with"):
        firesteel.shared(text, threading.Lock())
    with pytest.raises(KeyError, match="no model"):
        firesteel.shared(fails)
    assert not files(directory)


def test_a_private_one_where_the_disk_is_full(directory, tmp_path, monkeypatch):
    def full(file, value):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(mapped, "_write", full)
    assert firesteel.shared(ones, str(tmp_path / "notes"), 5)["weights"].tolist() == [1.0] * 5
    assert bytes(firesteel.shared(text, b"abc")) == b"abc"
    assert not files(directory)


def test_a_private_one_outside_of_tasks(tmp_path):
    first, second = (firesteel.shared(ones, str(tmp_path / "notes"), 5) for _ in range(2))
    assert first["weights"] is not second["weights"]

"""The driver's scratch files for rows of sizes, on a real file system."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from firesteel.scheduler.kernel.commands import DropSizes, LoadSizes, StoreSizes
from firesteel.spark.storage import sizes_files
from firesteel.spark.storage.sizes_files import SizesFiles


def ints(*values):
    return np.array(values, np.int64)


class Files(SizesFiles):
    """Remembers what it was told, and counts reads."""

    def __init__(self, scratch):
        self.answers = []
        super().__init__(scratch, self.answers.append)

    def put(self, dataset, **rows):
        """``p3_1=b"..."``: the row of partition 3, attempt 1."""
        names = [tuple(map(int, key[1:].split("_"))) for key in rows]
        partitions, attempts = np.array(names, np.int64).reshape(-1, 2).T
        self.store(StoreSizes(dataset, partitions, attempts, list(rows.values())))

    def ask(self, dataset, *names):
        partitions, attempts = np.array(names, np.int64).reshape(-1, 2).T
        self.load(LoadSizes(dataset, partitions, attempts))
        answer = self.answers.pop()
        assert answer.dataset == dataset
        assert (answer.partitions.tolist(), answer.attempts.tolist()) == (partitions.tolist(), attempts.tolist())
        return answer.rows


@pytest.fixture
def files(tmp_path):
    made = Files(str(tmp_path))
    yield made
    made.close()
    assert not list(tmp_path.iterdir())


def test_rows_come_back_in_the_order_asked_for(files, tmp_path):
    files.put(0, p7_2=b"b", p1_0=b"", p0_0=b"a" * 10)
    assert files.ask(0, (0, 0), (7, 2)) == [b"a" * 10, b"b"]
    files.put(0, p0_1=b"c", p5_0=b"d" * 100_000)
    files.put(1, p0_0=b"other")
    asked = [(5, 0), (0, 1), (9, 9), (0, 0), (7, 2), (7, 1), (1, 0)]
    assert files.ask(0, *asked) == [b"d" * 100_000, b"c", None, b"a" * 10, b"b", None, b""]
    files.put(0, p9_9=b"late")
    assert files.ask(0, (9, 9), (0, 0)) == [b"late", b"a" * 10]
    assert files.ask(1, (0, 0)) == [b"other"] and files.ask(0) == []
    (directory,) = tmp_path.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and len(list(directory.iterdir())) == 2


def test_what_was_dropped_or_never_stored_is_not_there(files, tmp_path):
    assert files.ask(0, (0, 0)) == [None] and not list(tmp_path.iterdir()), "nothing is made before it is needed"
    files.put(0, p0_0=b"a"), files.put(1, p0_0=b"b")
    files.drop(DropSizes(0)), files.drop(DropSizes(7))
    assert files.ask(0, (0, 0)) == [None] and files.ask(1, (0, 0)) == [b"b"]
    assert [p.name for p in next(tmp_path.iterdir()).iterdir()] == ["1.rows"]


def test_neighbours_are_read_together(files, monkeypatch):
    monkeypatch.setattr(sizes_files, "WRITE_BYTES", 50)
    rows = {f"p{k}_0": bytes([k]) * 40 for k in range(100)}
    files.put(0, **rows)
    reads = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: reads.append(n) or pread(fd, n, at))
    assert files.ask(0, *[(k, 0) for k in reversed(range(100))]) == list(reversed(rows.values()))
    assert reads == [4000]
    reads.clear()
    monkeypatch.setattr(sizes_files, "READ_GAP", 40)
    assert files.ask(0, (1, 0), (3, 0), (50, 0)) == [rows["p1_0"], rows["p3_0"], rows["p50_0"]]
    assert reads == [120, 40]
    reads.clear()
    monkeypatch.setattr(sizes_files, "READ_BYTES", 100)
    assert files.ask(0, *[(k, 0) for k in range(5)]) == list(rows.values())[:5]
    assert reads == [80, 80, 40]


def test_damaged_and_shortened_files_answer_none(files, tmp_path):
    files.put(0, p0_0=b"aaaa", p1_0=b"bbbb", p2_0=b"cccc")
    (path,) = tmp_path.rglob("0.rows")
    path.write_bytes(b"aaaaXbbbcc")
    assert files.ask(0, (0, 0), (1, 0), (2, 0)) == [b"aaaa", None, None]


def test_a_place_that_is_gone_costs_rows_only(tmp_path):
    files = Files(str(tmp_path / "gone"))
    files.put(0, p0_0=b"a")
    assert files.ask(0, (0, 0)) == [None]
    files.close()


def test_a_disk_that_is_full_costs_the_rows_it_refused(files, monkeypatch):
    files.put(0, p0_0=b"a")
    pwrite = os.pwrite

    def full(fd, data, at):
        pwrite(fd, data[:2], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    files.put(0, p1_0=b"bbbb")
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:1], at))  # a byte at a time
    files.put(0, p2_0=b"cccc")
    assert files.ask(0, (0, 0), (1, 0), (2, 0)) == [b"a", None, b"cccc"]

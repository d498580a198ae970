"""Descriptors 0 to 2 of a worker outlive a function that closes them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from firesteel.task.executor.spark_task import standard_files


def names():
    found = [os.fstat(number) for number in (0, 1, 2)]
    return [(one.st_dev, one.st_ino) for one in found]


def test_files_that_are_closed_are_open_again(tmp_path):
    with standard_files():  # of the test's own process
        before = names()
        with standard_files():
            for number in (0, 1, 2):
                os.close(number)
            taken = os.open(tmp_path / "result", os.O_CREAT | os.O_WRONLY)
            assert taken == 0
        assert names() == before
        os.close(1)
        with standard_files():  # one that was closed before is an empty file
            os.write(1, b"x")
        free = os.open(os.devnull, os.O_RDONLY)
        assert free > 2 and names()[1] == (os.fstat(free).st_dev, os.fstat(free).st_ino)
        os.close(free)
    assert (tmp_path / "result").read_bytes() == b""


def test_no_copy_is_left(tmp_path, monkeypatch):
    real = os.dup
    with standard_files():  # of the test's own process
        before, kept, made = names(), [os.dup(number) for number in (0, 1, 2)], []

        def dup(number):
            if made:
                raise OSError(24, "Too many open files")
            made.append(real(number))
            return made[0]

        monkeypatch.setattr(os, "dup", dup)
        with standard_files():
            os.close(0)
            os.close(1)
            assert os.open(tmp_path / "result", os.O_CREAT | os.O_WRONLY) == 0
            assert os.open(tmp_path / "result", os.O_WRONLY) == 1
        os.write(1, b"not into the result")
        empty = Path(os.devnull).stat()
        assert names() == [before[0], (empty.st_dev, empty.st_ino), before[2]]
        monkeypatch.setattr(os, "dup", real)
        free = os.open(os.devnull, os.O_RDONLY)
        assert free == made[0]  # the only copy was closed
        os.close(free)
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)

        monkeypatch.setattr(os, "dup", lambda number: made.append(real(number)) or made[-1])
        with standard_files():
            for copy in made[1:]:  # the function closes the copies, too, and a number is used again
                os.close(copy)
            other = os.open(tmp_path / "result", os.O_WRONLY)
            assert other in made
        assert names() == before
        os.close(other)
    assert (tmp_path / "result").read_bytes() == b""


def test_objects_that_are_closed_are_open_again(capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdout", open(1, "w", encoding="latin-1", closefd=False))  # noqa: SIM115
    with standard_files():
        sys.stdout.close()
    print("ä", flush=True)
    assert sys.stdout.encoding == "latin-1"
    assert os.fstat(1) and capfd.readouterr().out.encode("utf-8", "surrogateescape") in (b"\xe4\n", "\ufffd\n".encode())

"""Descriptors 0 to 2 of a worker outlive a function that closes them."""

from __future__ import annotations

import os

from firesteel.task.executor.standard_files import standard_files


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

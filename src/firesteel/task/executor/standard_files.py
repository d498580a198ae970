"""Descriptors 0, 1 and 2 of a worker. A function may close them, and the next file or socket that is opened gets their numbers.

Whatever is printed then goes into a result or into a connection. Spark's JVM took such text for the length of a message and ended for want of
memory.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

_ALL = (0, 1, 2)


@contextmanager
def standard_files() -> Generator[None]:
    """At the end the three are what they were at the beginning. Whatever else has got their numbers by then is closed."""
    before = {number: _which(number) for number in _ALL}
    if None in before.values():
        _fill()
        before = {number: _which(number) for number in _ALL}
    copies = [os.dup(number) for number in _ALL]
    try:
        yield
    finally:
        for number, copy in zip(_ALL, copies, strict=True):
            if _which(number) != before[number]:
                os.dup2(copy, number)
            os.close(copy)


def _which(number: int) -> tuple[int, int] | None:
    """None: it is closed."""
    with suppress(OSError):
        found = os.fstat(number)
        return found.st_dev, found.st_ino
    return None


def _fill() -> None:
    """Opens the closed ones as an empty file: the lowest free number comes first."""
    while (made := os.open(os.devnull, os.O_RDWR)) in _ALL:
        os.set_inheritable(made, True)
    os.close(made)

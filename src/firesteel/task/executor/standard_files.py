"""Descriptors 0, 1 and 2 of a worker. A function may close them, and the next file or socket that is opened gets their numbers.

Whatever is printed then goes into a result or into a connection. Spark's JVM took such text for the length of a message and ended for want of
memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

_ALL = (0, 1, 2)
_OBJECTS = ((0, "stdin"), (1, "stdout"), (2, "stderr"))


@contextmanager
def standard_files() -> Generator[None]:
    """Restore descriptors 0 to 2 at the end and close whatever else has got their numbers by then.

    A descriptor of which no copy is left becomes an empty file. ``sys.stdout`` and its siblings are opened again if they were closed. No
    OSError of this bookkeeping is raised.
    """
    before = {number: _which(number) for number in _ALL}
    if None in before.values():
        _fill()
        before = {number: _which(number) for number in _ALL}
    copies: dict[int, int] = {}
    try:
        for number in _ALL:
            with suppress(OSError):  # no more files may be opened
                copies[number] = os.dup(number)
        yield
    finally:
        for number in _ALL:
            _restore(number, copies.get(number), before[number])
        if None in map(_which, _ALL):
            _fill()
        _open_objects()


def _restore(number: int, copy: int | None, before: tuple[int, int] | None) -> None:
    if copy is not None and (before is None or _which(copy) != before):
        copy = None  # the function has closed it, and another file may have its number
    if _which(number) != before:
        with suppress(OSError):
            if copy is None:
                os.close(number)
            else:
                os.dup2(copy, number)
    if copy is not None:
        with suppress(OSError):
            os.close(copy)


def _open_objects() -> None:
    """Python's objects do not own their descriptors and stay closed when a function has closed them."""
    for number, plain in _OBJECTS:
        for name in (f"__{plain}__", plain):
            old = getattr(sys, name, None)
            if getattr(old, "closed", False):
                with suppress(OSError):
                    opened = open(  # noqa: SIM115
                        number,
                        "w" if number else "r",
                        encoding=getattr(old, "encoding", None),
                        errors=getattr(old, "errors", None),
                        closefd=False,
                    )
                    setattr(sys, name, opened)


def _which(number: int) -> tuple[int, int] | None:
    """None: it is closed."""
    with suppress(OSError):
        found = os.fstat(number)
        return found.st_dev, found.st_ino
    return None


def _fill() -> None:
    """Opens the closed ones as an empty file: the lowest free number comes first."""
    with suppress(OSError):  # no more files may be opened
        while (made := os.open(os.devnull, os.O_RDWR)) in _ALL:
            os.set_inheritable(made, True)
        os.close(made)

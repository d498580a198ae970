"""Memory that the build sides of broadcast joins take: one rule for the scheduler, which chooses such a join by it, and for the
tasks, which hold the sides or join one that does not fit through local disk.

A side takes its rows and the index of their keys. All sides that a task joins with take at most half of what a task may use for
its data. They are there once per executor, mapped by the tasks in all of its slots; but a task must be able to hold them alone, where it is
the only one, or where the executor's disk takes no file: then the other half is for batches on their way and for what is written.
"""

from __future__ import annotations

from collections.abc import Sequence

MEMORY_SHARE = 2
"""The build sides of a task take at most its memory budget divided by this, all together."""
INDEX_ROW_BYTES = 64
"""Bytes of the engine's hash table for each row of the side."""


def held_bytes(nbytes: int, rows: int) -> int:
    """Bytes of memory that a side of so many plain bytes and rows takes."""
    return nbytes + INDEX_ROW_BYTES * rows


def limit(memory: int) -> int:
    """Most bytes of memory of all sides of a task together. ``memory``: what it may use for its data."""
    return memory // MEMORY_SHARE


def that_fit(held: Sequence[int], memory: int) -> list[bool]:
    """Of sides that take so much memory each, those that a task holds: the smallest ones, as long as they fit together."""
    left, fits = limit(memory), [False] * len(held)
    for side in sorted(range(len(held)), key=held.__getitem__):
        left -= held[side]
        fits[side] = left >= 0
    return fits

"""Numbers and names as columns: numpy arrays in the place of lists of objects.

Sets of numbers (subtasks, partitions, regions) are ascending arrays: ``np.unique`` and what is built on it hash, fifty times
slower on such numbers than to sort them, most of which are sorted already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """A column of names, each stored once: entry ``k`` is ``names[codes[k]]``; code -1: not known."""

    names: tuple[str, ...]
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, values: Sequence[str]) -> Names:
        """Empty strings are names that are not known."""
        names = tuple(sorted(set(values) - {""}))
        numbers = {name: number for number, name in enumerate(names)} | {"": -1}
        return cls(names, np.fromiter(map(numbers.__getitem__, values), np.int32, len(values)))

    def select(self, places: Ints) -> Names:
        return Names(self.names, self.codes[places])

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, place: int) -> str:
        """Empty: not known."""
        code = int(self.codes[place])
        return self.names[code] if code >= 0 else ""


def select(values: Sequence[T], places: Ints) -> list[T]:
    """Returns the values at these places, in this order; of an empty column, which tells nothing, none."""
    return [values[place] for place in places.tolist()] if len(values) else []


def distinct(numbers: Ints) -> Ints:
    """Ascending, each once."""
    if is_ascending(numbers):
        return numbers
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def union(sets: Sequence[Ints]) -> Ints:
    """Returns what is in any of these (at least one) sets."""
    return sets[0] if len(sets) == 1 else distinct(np.concatenate(sets))


def without(numbers: Ints, others: Ints) -> Ints:
    """Returns the numbers of one set that are not in the other."""
    if not len(others):
        return numbers
    places = np.searchsorted(others, numbers)
    places[places == len(others)] = 0
    return numbers[others[places] != numbers]


def is_ascending(numbers: Ints) -> bool:
    """Each greater than the one before."""
    return bool((numbers[1:] > numbers[:-1]).all())


def unwritten(*shape: int) -> Ints:
    """Zeros that take no memory, and cannot be written."""
    return np.broadcast_to(np.zeros((), np.int64), shape)


def writable(column: Ints) -> Ints:
    """The column itself, or the zeros in its place that can be written."""
    return column if column.flags.writeable else np.zeros(column.shape, np.int64)

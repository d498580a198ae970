"""Numbers and names as columns: numpy arrays in the place of lists of objects.

Sets of numbers (subtasks, partitions, regions) are ascending arrays: ``np.unique`` and what is built on it hash, fifty times
slower on such numbers than to sort them, most of which are sorted already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
T = TypeVar("T")
Entry = TypeVar("Entry", bound=np.generic)


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


FEW = 1 << 10
"""Numbers up to which a list costs little."""


class Column(Sequence[int]):
    """Very many whole numbers for whoever reads them as Python's own, which take five times the memory: some are made at a time."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Ints) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._numbers[index].tolist()

    def __iter__(self) -> Iterator[int]:
        for part in self.parts():
            yield from part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and np.array_equal(self._numbers, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Column({self._numbers!r})"

    def tolist(self) -> list[int]:
        return self._numbers.tolist()

    def parts(self) -> Iterator[list[int]]:
        """All of it, in lists of a few."""
        for first in range(0, len(self._numbers), FEW):
            yield self._numbers[first : first + FEW].tolist()


_AHEAD = 256
"""Entries by which a column reaches further than it must: the next ones are often written one by one."""


class Reaching(Generic[Entry]):
    """A column that reaches as far as anything was written; beyond, and where nothing was, it holds one value."""

    __slots__ = ("_column", "_reach", "_value")

    def __init__(self, value: Entry) -> None:
        self._value = value
        self._reach = 1
        self._column: NDArray[Entry] = np.full(1, value)

    def __getitem__(self, rows: NDArray[Any]) -> NDArray[Entry]:
        if _greatest(rows) < self._reach:
            return self._column[rows]
        known = rows < self._reach
        found = np.full(len(rows), self._value)
        found[known] = self._column[rows[known]]
        return found

    def item(self, row: int) -> Any:
        return self._column.item(row) if row < self._reach else self._value.item()

    def __setitem__(self, rows: NDArray[Any], values: Any) -> None:
        end = 1 + _greatest(rows)
        if end > self._reach:
            self._extend(end)
        self._column[rows] = values

    def put(self, row: int, value: Any) -> None:
        """Writes one entry."""
        if row >= self._reach:
            self._extend(row + 1)
        self._column[row] = value

    def _extend(self, end: int) -> None:
        end += _AHEAD
        if end > len(self._column):
            column = np.empty(max(end, len(self._column) * 5 // 4), self._column.dtype)
            column[: self._reach] = self._column[: self._reach]
            self._column = column
        self._column[self._reach : end] = self._value
        self._reach = end


def _greatest(rows: NDArray[Any]) -> int:
    """-1: there is none. Of one at once: numpy takes a while for each look at an array."""
    return rows.item() if rows.size == 1 else int(rows.max(initial=-1))


def numbers_of(column: Ints) -> Sequence[int]:
    """The numbers of a column, as a record has them."""
    return column.tolist() if len(column) <= FEW else Column(column)


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


def compact(column: Ints) -> Ints:
    """The same numbers: very many that are all equal take no memory, and cannot be written."""
    if len(column) > FEW and column[0] == column[-1] and (column == column[0]).all():
        return constant(len(column), column[0])
    return column


def constant(size: int, value: Entry) -> NDArray[Entry]:
    """A column of equal values that takes no memory, and cannot be written."""
    return np.broadcast_to(value, size)


def written(column: NDArray[Entry], rows: slice | Ints, values: ArrayLike) -> NDArray[Entry]:
    """The column with these values in it: as one that can be written, unless it holds nothing else."""
    if not column.flags.writeable:
        if (column[rows] == values).all():
            return column
        column = column.copy()
    column[rows] = values
    return column


def grown(column: NDArray[Entry], size: int, value: Any) -> NDArray[Entry]:
    """The column, longer by entries of this value: zeros that are not written take no memory, nor does what is constant."""
    if not column.flags.writeable:
        return constant(size, column.dtype.type(value))
    longer = np.zeros(size, column.dtype) if value == 0 else np.empty(size, column.dtype)
    longer[: len(column)] = column
    if value != 0:
        longer[len(column) :] = value
    return longer

"""The values of a column that a join can match: as a condition that Arrow evaluates, and as ranges to compare with statistics of row groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.task.expressions import any_of

MOST_VALUES = 4096
"""Up to so many keys of a column, the condition names each of them."""
_MOST_RANGES = 16
_LEAST_GAP = 1 / 1024
"""Of all that lies between the least and the greatest key: what is in a narrower gap would hardly fill a row group."""
_FEW = 32
"""Arrow compares each of so many values with the statistics of a row group. A condition on more values has ranges as well."""
_WHOLE = {*(pa.int8(), pa.int16(), pa.int32(), pa.int64()), *(pa.uint8(), pa.uint16(), pa.uint32(), pa.date32())}


@dataclass(frozen=True, slots=True)
class ColumnKeys:
    """``values``: in the column's type, ascending, without nulls. ``is_span``: the first and the last of values that are not known one by one."""

    column: str
    values: pa.Array
    is_span: bool = False

    @property
    def condition(self) -> pc.Expression:
        """True of every row that has one of the values, and of few others."""
        field = pc.field(self.column)
        if self.is_span:
            return (field >= self.values[0]) & (field <= self.values[1])
        exact = field.isin(self.values)
        if len(self.values) <= _FEW:
            return exact
        ranges = any_of([(field >= low) & (field <= high) for low, high in _ranges(self.values)])
        return ranges & exact if len(self.values) <= MOST_VALUES else ranges

    @property
    def ranges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Where ranges of values start and end, both ascending and included; days of dates. None where the type is neither an integer that
        fits 64 bits with a sign, nor a date."""
        found = _numbers(self.values) if self.values.type in _WHOLE else None
        if found is None:
            return None
        numbers = found.astype(np.int64)
        return (numbers[:1], numbers[1:]) if self.is_span else (numbers, numbers)


def _ranges(values: pa.Array) -> list[tuple[pa.Scalar, pa.Scalar]]:
    """Few ranges that hold all of the values (ascending), apart where the widest gaps are; of what has no distances one."""
    numbers = _numbers(values)
    cuts = [] if numbers is None else _widest(np.diff(numbers.astype(np.float64))).tolist()
    begins, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(values) - 1]
    return [(values[begin], values[end]) for begin, end in zip(begins, ends, strict=True)]


def _widest(gaps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The places of the widest gaps, ascending; those alone that are worth to be left out."""
    most = min(_MOST_RANGES - 1, len(gaps))
    widest = np.argpartition(gaps, len(gaps) - most)[len(gaps) - most :]
    return np.sort(widest[gaps[widest] >= _LEAST_GAP * gaps.sum()])


def _numbers(values: pa.Array) -> np.ndarray[Any, Any] | None:
    types, kind = pa.types, values.type
    if types.is_integer(kind):
        return np.asarray(values)
    if types.is_date32(kind):
        return np.asarray(values.cast(pa.int32()))
    if types.is_timestamp(kind) or types.is_date64(kind):
        return np.asarray(values.cast(pa.int64()))
    return None

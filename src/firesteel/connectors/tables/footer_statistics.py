"""Statistics of files that were written, by their footers: rows, nulls, least and greatest values of whole columns."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from firesteel.connectors.formats.parquet import WITHOUT_NAN

_THREADS = 16
_LONGEST_TEXT = 64
_LAST_CHARACTER = "\U0010ffff"
_ORDERED = (int, float, decimal.Decimal, str, dt.date)  # bool is an int, datetime a date


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """What the footer says about each column.

    ``bounds`` holds the least and the greatest value of all columns that have values, except binary and nested ones, or it is empty:
    ``deltalake`` finds no row in a file that has some bounds and lacks another one. The bounds of long texts are their beginnings.
    """

    rows: int
    nulls: dict[str, int] = field(default_factory=dict[str, int])
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])


def statistics_of(
    filesystem: pafs.FileSystem, paths: Sequence[str], schema: pa.Schema, most: int | None
) -> list[FileStatistics]:
    """Read the statistics of each file. ``schema``: of all files; ``most``: this many columns; None: all. Raises OSError."""
    columns = [one for one in schema if not pa.types.is_nested(one.type)][:most]
    ordered = {one.name: not pa.types.is_binary(one.type) for one in columns}

    def read(path: str) -> FileStatistics:
        with filesystem.open_input_file(path) as file:
            return _folded(pq.read_metadata(file), ordered)

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, paths))


def _folded(metadata: Any, ordered: Mapping[str, bool]) -> FileStatistics:
    """``ordered``: for each column, whether it must have bounds."""
    result = FileStatistics(metadata.num_rows)
    without_nan = json.loads((metadata.metadata or {}).get(WITHOUT_NAN, b"[]"))
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    leaves, is_whole = Counter(names), True
    for place, name in enumerate(names):
        if name not in ordered:
            continue
        told = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        if leaves[name] > 1 or any(one is None or not one.has_null_count for one in told):
            is_whole = is_whole and not ordered[name]  # a field of a struct may have the name of a column with a dot
            continue
        result.nulls[name] = sum(one.null_count for one in told)
        with_values = [one for one in told if one.num_values]
        if ordered[name] and with_values:
            bounds = _bounds(with_values, name in without_nan)
            if bounds is None:
                is_whole = False
            else:
                result.bounds[name] = bounds
    return result if is_whole else FileStatistics(result.rows, result.nulls)


def _bounds(told: Sequence[Any], is_without_nan: bool) -> tuple[Any, Any] | None:
    """Return None where the footer does not say them, or the log cannot hold them."""
    if not all(one.has_min_max for one in told):  # texts of more than 4 kB
        return None
    try:
        least, most = min(one.min for one in told), max(one.max for one in told)
    except (ValueError, OverflowError):  # years that Python does not have
        return None
    if isinstance(least, str):
        return least[:_LONGEST_TEXT], _above(most)
    if isinstance(least, float) and not (is_without_nan and math.isfinite(least) and math.isfinite(most)):
        return None  # footers leave NaN out, which Spark sorts after all numbers
    return (least, most) if isinstance(least, _ORDERED) else None


def _above(text: str) -> str:
    """Return a text of bounded length that is not less than this one, by code points."""
    end = _LONGEST_TEXT
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER

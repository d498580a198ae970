"""Statistics of files that were written, by their footers: rows, nulls, least and greatest values of whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

_THREADS = 16
_COLUMNS = 32
_LONGEST_TEXT = 64
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """By column, where the footer tells; bounds of integers, dates, timestamps and texts, whose order all engines agree upon. The bounds of
    long texts are their beginnings."""

    rows: int
    nulls: dict[str, int] = field(default_factory=dict[str, int])
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])


def statistics_of(filesystem: pafs.FileSystem, paths: Sequence[str], schema: pa.Schema) -> list[FileStatistics]:
    """Of each file; ``schema``: theirs. Raises OSError."""
    columns = [one.name for one in schema if not pa.types.is_nested(one.type) and "." not in one.name][:_COLUMNS]
    ordered = {name for name in columns if _is_ordered(schema.field(name).type)}

    def read(path: str) -> FileStatistics:
        with filesystem.open_input_file(path) as file:
            return _folded(pq.read_metadata(file), set(columns), ordered)

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, paths))


def _is_ordered(kind: pa.DataType) -> bool:
    """Not floats, whose NaN footers leave out."""
    types = pa.types
    return types.is_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind) or types.is_string(kind)


def _folded(metadata: Any, columns: set[str], ordered: set[str]) -> FileStatistics:
    result = FileStatistics(metadata.num_rows)
    for place in range(metadata.num_columns):
        name = metadata.schema.column(place).path
        if name not in columns:
            continue
        told = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        if any(one is None or not one.has_null_count for one in told):
            continue
        result.nulls[name] = sum(one.null_count for one in told)
        with_values = [one for one in told if one.num_values]
        if name in ordered and with_values and all(one.has_min_max for one in with_values):
            try:
                bounds = min(one.min for one in with_values), max(one.max for one in with_values)
            except (ValueError, OverflowError):  # years that Python does not have
                continue
            least, most = bounds
            result.bounds[name] = (least[:_LONGEST_TEXT], _above(most)) if isinstance(least, str) else bounds
    return result


def _above(text: str) -> str:
    """A text of bounded length that is not less than this one, by code points. A bound that one file lacks and others have makes ``deltalake``
    find no row in that file, so that the bound of a long text is not left out."""
    end = _LONGEST_TEXT
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER

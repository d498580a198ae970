"""Files that the engine reads itself, as text of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from firesteel.task.program import FileRows

_OPTIONS = "hive_partitioning=false, can_have_nan=true"
"""Nothing is read out of paths; and statistics say nothing of NaN, which is greater than all else."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A query on files."""

    text: str


def scan_of(parts: Sequence[FileRows], schema: pa.Schema) -> Scan:
    """The rows of these parts, the columns of ``schema`` in its types."""
    columns = ", ".join(identifier(name) for name in schema.names)
    whole = [_literal(part.path) for part in parts if not part.ranges]
    texts = [f"SELECT {columns} FROM read_parquet([{', '.join(whole)}], {_OPTIONS})"] if whole else []
    for part in parts:
        source = f"read_parquet({_literal(part.path)}, {_OPTIONS}, file_row_number=true)"
        texts += [
            f"SELECT {columns} FROM {source} WHERE file_row_number >= {begin} AND file_row_number < {end}"
            for begin, end in part.ranges
        ]
    return Scan(" UNION ALL ".join(texts))


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

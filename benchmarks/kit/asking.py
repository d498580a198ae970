"""Queries asked one after another, each timed, with a digest of its rows. Loads nothing that a peer's environment lacks."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from benchmarks.kit.harness import cpu_seconds

Asked = Callable[[str], tuple[pa.Table, float]]
"""The answer to a query, and one figure more where it is known: seconds of its planning, or requests to a store."""


def asks(queries: Iterable[Sequence[Any]], ask: Asked) -> Callable[[], list[Any]]:
    """``queries``: (number, text). A run gives [number, seconds, CPU seconds, the figure more, digest] of each; NaN where it failed."""
    chosen = [(number, text) for number, text in queries]

    def run() -> list[Any]:
        told: list[Any] = []
        for number, text in chosen:
            began, cpu = time.perf_counter(), cpu_seconds()
            try:
                table, planned = ask(text)
            except Exception as error:
                print(f"query {number}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
                told.append([number, math.nan, math.nan, math.nan, []])
                continue
            told.append([number, time.perf_counter() - began, cpu_seconds() - cpu, planned, digest(table)])
        return told

    return run


def digest(table: pa.Table) -> list[Any]:
    """The number of rows, and what all whole numbers, texts and dates come to, whatever their order. DuckDB's sums are wider, and
    Sail's texts may be views."""
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    kinds = (pa.types.is_integer, *texts, pa.types.is_date, lambda kind: kind == pa.decimal128(38, 0))
    chosen = [column for column in table.columns if any(kind(column.type) for kind in kinds)]
    columns = [[int(v) if isinstance(v, Decimal) else v for v in column.to_pylist()] for column in chosen]
    rows = sorted(repr(row) for row in zip(*columns, strict=True))
    return [table.num_rows, hashlib.md5("\n".join(rows).encode(), usedforsecurity=False).hexdigest()[:8]]

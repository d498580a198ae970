"""Rows of sources that the engine cannot read itself, several splits at once."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.connectors.base import Source, Split
from firesteel.task.program import TaskContext

SPLIT_BYTES = 16 << 20
"""Plain bytes of a split. Each thread holds the rows of two."""


def read(source: Source, splits: Sequence[Split], threads: int) -> Iterator[pa.RecordBatch]:
    """The rows in the order of the splits. Raises what the source raises."""
    waiting, read_ahead = iter(splits), deque[Future[list[pa.RecordBatch]]]()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="firesteel-read")
    try:
        while True:
            for split in itertools.islice(waiting, 2 * threads - len(read_ahead)):
                read_ahead.append(pool.submit(_rows, source, split))
            if not read_ahead:
                return
            yield from read_ahead.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _rows(source: Source, split: Any) -> list[pa.RecordBatch]:
    context = TaskContext(
        job_id="in process",
        vertex=0,
        vertex_name=source.name,
        subtask=0,
        attempt=0,
        parallelism=1,
        token=0,
        memory_budget=2 * SPLIT_BYTES,
        scratch=Path(tempfile.gettempdir()),
    )
    context.place = split.description
    return list(source.read(split.payload, context))

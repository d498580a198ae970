"""The sizes of pyarrow's thread pools in a Python worker."""

from __future__ import annotations

import pyarrow as pa

LEAST_IO_THREADS = 2
"""They mostly wait; and one that waits for another must not be the only one."""
_io_threads = pa.io_thread_count()
"""As the process was started."""


def size_to(threads: int | None) -> None:
    """``threads``: of a slot; None: as Spark's own slots have it, one core, and pyarrow's own number for waiting on storage."""
    for wanted, count, change in (
        (threads or 1, pa.cpu_count, pa.set_cpu_count),
        (max(threads, LEAST_IO_THREADS) if threads else _io_threads, pa.io_thread_count, pa.set_io_thread_count),
    ):
        if count() != wanted:
            change(wanted)

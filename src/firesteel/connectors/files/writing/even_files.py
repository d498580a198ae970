"""Rows of one partition to files of about one size, though only what was written tells how large rows become."""

from __future__ import annotations

import math

import pyarrow as pa

from firesteel.results.plain import decoded_bytes


class Share:
    """The rows of one writer, and what it has made of them so far. ``size``: bytes that a file should have; None: nobody asked."""

    def __init__(self, size: int | None) -> None:
        self._size = size
        self.expected = 0
        """Plain bytes of all rows; 0: not known."""
        self._rows = self._plain = 0
        self._rows_written = self._bytes_written = 0

    def came(self, batch: pa.RecordBatch) -> None:
        if self.expected:
            self._rows += batch.num_rows
            self._plain += decoded_bytes(batch)

    def wrote(self, rows: int, nbytes: int) -> None:
        self._rows_written += rows
        self._bytes_written += nbytes

    def limit(self, written: int, last: int) -> float | None:
        """Bytes that a file of which ``written`` are there may have, so that it and those that follow have about as many: infinite where all rows
        that are left are one file. ``last``: bytes of a write. None: not known."""
        if self._size is None or not self._rows or not self._bytes_written:
            return None
        left = max(self.expected * self._rows / max(self._plain, 1) - self._rows_written, 0)
        whole = written + left * self._bytes_written / self._rows_written
        files = round(whole / self._size)
        return whole / files + last / 2 if files > 1 else math.inf  # the nearer of before and behind the next write

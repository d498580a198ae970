"""Rows of sizes that the scheduler does not keep in memory: one append-only file per data set on the driver.

The directory is the job's own and private. What fails here costs no job its life: a row that cannot be written or read
is answered with None, and the scheduler makes do without it.

``sqlite3`` without journal and checksums is slower: 10,000 rows of 25 KB take 140 ms to write, and 97 ms here. Reading takes 62 ms there,
and 86 ms here with checksums. Every job writes, few read. A full disk costs only the rows that it refused; there it may damage the database.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import DropSizes, LoadSizes, StoreSizes
from firesteel.scheduler.kernel.events import SizesLoaded

WRITE_BYTES = 4 << 20
"""Bytes copied together for one write."""
READ_BYTES = 8 << 20
"""Bytes read at a time at most."""
READ_GAP = 64 << 10
"""Bytes between two rows that are read along rather than skipped."""
_log = logging.getLogger("firesteel.spark")


def inline(action: Callable[[], None]) -> None:
    action()


class SizesFiles:
    """``report`` is told the answers; ``now`` is the job's clock.

    ``run`` carries out one action after another, in a thread of its own if it likes: the rows of 10,000 producers with
    as many subpartitions are 200 MB.
    """

    def __init__(
        self,
        scratch: str | None,
        report: Callable[[SizesLoaded], None],
        now: Callable[[], float] = lambda: 0.0,
        run: Callable[[Callable[[], None]], None] = inline,
    ) -> None:
        """``scratch``: an existing directory of the job's on this machine; None: one in the system's temporary one."""
        self._scratch = scratch
        self._report = report
        self._now = now
        self._run = run
        self._directory: Path | None = None
        self._files: dict[int, _RowFile] = {}

    def store(self, command: StoreSizes) -> None:
        self._run(partial(self._store, command))

    def load(self, command: LoadSizes) -> None:
        self._run(partial(self._load, command))

    def drop(self, command: DropSizes) -> None:
        self._run(partial(self._drop, command))

    def _store(self, command: StoreSizes) -> None:
        try:
            self._file(command.dataset).append(_keys(command.partitions, command.attempts), command.rows)
        except OSError:
            _log.warning("Sizes of data set %s could not be kept in %s.", command.dataset, self._where, exc_info=True)

    def _load(self, command: LoadSizes) -> None:
        rows: list[bytes | None] = [None] * len(command.partitions)
        known = self._files.get(command.dataset)
        if known is not None:
            try:
                rows = known.read(_keys(command.partitions, command.attempts))
            except OSError:
                _log.warning(
                    "Sizes of data set %s could not be read in %s.", command.dataset, self._where, exc_info=True
                )
        self._report(
            SizesLoaded(
                at=self._now(),
                dataset=command.dataset,
                partitions=command.partitions,
                attempts=command.attempts,
                rows=rows,
            )
        )

    def _drop(self, command: DropSizes) -> None:
        dropped = self._files.pop(command.dataset, None)
        if dropped is not None:
            dropped.remove()

    def close(self) -> None:
        """Leaves nothing behind; called when ``run`` has nothing left to do. Never raises."""
        for file in self._files.values():
            file.remove()
        self._files.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def _where(self) -> str:
        return str(self._directory or self._scratch or tempfile.gettempdir())

    def _file(self, dataset: int) -> _RowFile:
        if dataset not in self._files:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="firesteel-sizes-", dir=self._scratch))
            self._files[dataset] = _RowFile(self._directory / f"{dataset}.rows")
        return self._files[dataset]


class _RowFile:
    """Rows one after another; where each lies is remembered in columns, sorted when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._end = 0
        self._index = np.zeros((4, 0), np.int64)
        """Key (ascending), offset, length and checksum of each row."""
        self._appended: list[Ints] = []
        """The same of rows that were appended since."""

    def append(self, keys: Ints, rows: Sequence[bytes]) -> None:
        """All or nothing: what an error leaves behind is overwritten by the next append."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        offsets = self._end + np.cumsum(lengths) - lengths
        place = self._end
        for block in _blocks(rows):
            end = place + len(block)
            while place < end:
                place += os.pwrite(self._fd, block[len(block) - (end - place) :], place)
        checksums = np.fromiter(map(zlib.crc32, rows), np.int64, len(rows))
        self._appended.append(np.stack([keys, offsets, lengths, checksums]))
        self._end = place

    def read(self, keys: Ints) -> list[bytes | None]:
        """The rows of these keys, None for one that is not there or is damaged."""
        rows: list[bytes | None] = [None] * len(keys)
        places = self._find(keys)
        known = np.flatnonzero(places >= 0)
        _, offsets, lengths, checksums = self._index[:, places[known]]
        order = np.argsort(offsets, kind="stable")
        for group in _neighbours(offsets[order], lengths[order]):
            chosen = order[group]
            first = int(offsets[chosen[0]])
            data = self._read_at(first, int((offsets[chosen] + lengths[chosen]).max()) - first)
            for k in chosen.tolist():
                start = int(offsets[k]) - first
                row = data[start : start + int(lengths[k])]
                if zlib.crc32(row) == checksums[k] and len(row) == lengths[k]:
                    rows[int(known[k])] = row
        return rows

    def remove(self) -> None:
        with suppress(OSError):
            os.close(self._fd)
        with suppress(OSError):
            self._path.unlink()

    def _find(self, keys: Ints) -> Ints:
        """Places in the index, -1 for keys that are not there."""
        if self._appended:
            merged = np.concatenate([self._index, *self._appended], axis=1)
            self._index = merged[:, np.argsort(merged[0], kind="stable")]
            self._appended = []
        sorted_keys = self._index[0]
        if not len(sorted_keys):
            return np.full(len(keys), -1, np.int64)
        places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        return np.where(sorted_keys[places] == keys, places, -1)

    def _read_at(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = os.pread(self._fd, length, offset)
            if not part:
                break  # shorter than it was: what is missing fails its checksum
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)


def _keys(partitions: Ints, attempts: Ints) -> Ints:
    return np.asarray(partitions, np.int64) << 32 | np.asarray(attempts, np.int64)


def _blocks(rows: Sequence[bytes]) -> Iterator[bytes]:
    block: list[bytes] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row)
        if size >= WRITE_BYTES:
            yield b"".join(block)
            block, size = [], 0
    yield b"".join(block)


def _neighbours(offsets: Ints, lengths: Ints) -> Iterator[slice]:
    """Runs of rows, ascending, that are read in one piece."""
    begin = 0
    for k in range(1, len(offsets) + 1):
        ends = k == len(offsets)
        if not ends:
            gap = int(offsets[k] - offsets[k - 1] - lengths[k - 1])
            ends = gap > READ_GAP or int(offsets[k] + lengths[k] - offsets[begin]) > READ_BYTES
        if ends:
            yield slice(begin, k)
            begin = k

"""A storage that is far away: a local directory behind a file system that counts requests and makes each one wait.

Named by ``firesteel.storage.filesystem``, so that Spark's Python workers use it too. Each process counts in a
file, which begin with the environment's FAR_STORAGE_COUNTS or lie in the storage's root. A request waits for
FAR_STORAGE_LATENCY seconds, or for the milliseconds that a file in the root names.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

COUNTS, LATENCY = "FAR_STORAGE_COUNTS", "FAR_STORAGE_LATENCY"
NAMES = ("opens", "reads", "bytes_read", "creates", "writes", "bytes_written", "deletes", "others")
FILE, LATENCY_FILE = ".requests", ".latency"
FAILED_FILE, HICCUPS_FILE = ".failed", ".hiccups"
_FORMAT = struct.Struct(f"<{len(NAMES)}Q")


def counts(path: str | Path) -> dict[str, int]:
    """What was asked of the storage, by all processes together."""
    found = [0] * len(NAMES)
    for file in Path(path).parent.glob(f"{Path(path).name}-*"):
        found = [sum(pair) for pair in zip(found, _FORMAT.unpack(file.read_bytes()), strict=True)]
    return dict(zip(NAMES, found, strict=True))


def requests(found: dict[str, int]) -> int:
    """Round trips: all but the columns of bytes."""
    return sum(count for name, count in found.items() if not name.startswith("bytes"))


class _Counter:
    """Counts in a file of its process' own, which others can read at any time: adding to it costs a microsecond."""

    def __init__(self, path: str | None, latency: float) -> None:
        self.path, self.latency = path, latency
        self._lock = threading.Lock()
        self._pid = -1
        self._counts: Any = None

    def __call__(self, name: str, nbytes: int | None = None, bytes_name: str = "") -> None:
        if self.latency:
            time.sleep(self.latency)
        if self.path is None:
            return
        with self._lock:
            if self._pid != os.getpid():
                self._counts = self._opened(f"{self.path}-{os.getpid()}")
                self._pid = os.getpid()
            self._counts[NAMES.index(name)] += 1
            if nbytes is not None:
                self._counts[NAMES.index(bytes_name)] += nbytes

    @staticmethod
    def _opened(path: str) -> Any:
        size = 8 * len(NAMES)
        with Path(path).open("a+b") as file:
            if file.tell() < size:
                file.truncate(size)
            return memoryview(mmap.mmap(file.fileno(), size)).cast("Q")


class _CountedInput:
    """What ``pa.PythonFile`` reads from."""

    def __init__(self, fd: int, count: _Counter) -> None:
        self._fd, self._count, self._at = fd, count, 0
        self._size = os.fstat(fd).st_size
        self.closed = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, length: int = -1) -> bytes:
        data = os.pread(self._fd, self._size if length < 0 else length, self._at)
        self._at += len(data)
        self._count("reads", len(data), "bytes_read")
        return data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._fd)


class _CountedOutput:
    def __init__(self, file, count: _Counter) -> None:
        self._file, self._count, self.closed = file, count, False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data) -> int:
        self._count("writes", len(data), "bytes_written")
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()


class FarHandler(pafs.FileSystemHandler):
    def __init__(self, count: _Counter) -> None:
        self._fs = pafs.LocalFileSystem()
        self._count = count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FarHandler)

    __hash__ = None

    def get_type_name(self):
        return "far"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        self._count("others")
        return self._fs.get_file_info(paths)

    def get_file_info_selector(self, selector):
        self._count("others")
        return self._fs.get_file_info(selector)

    def create_dir(self, path, recursive):
        self._count("others")
        self._fs.create_dir(path, recursive=recursive)

    def delete_dir(self, path):
        self._count("others")
        self._fs.delete_dir(path)

    def delete_dir_contents(self, path, missing_dir_ok=False):
        self._count("others")
        self._fs.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self):
        raise NotImplementedError

    def delete_file(self, path):
        self._count("deletes")
        self._fs.delete_file(path)

    def move(self, src, dest):
        self._count("others")
        self._fs.move(src, dest)

    def copy_file(self, src, dest):
        self._count("others")
        self._fs.copy_file(src, dest)

    def open_input_stream(self, path):
        return self.open_input_file(path)

    def open_input_file(self, path):
        self._count("opens")
        return pa.PythonFile(_CountedInput(os.open(path, os.O_RDONLY | os.O_CLOEXEC), self._count), mode="r")

    def open_output_stream(self, path, metadata):
        self._count("creates")
        return pa.PythonFile(_CountedOutput(Path(path).open("wb"), self._count), mode="w")

    def open_append_stream(self, path, metadata):
        raise NotImplementedError


def open_far(path: str) -> pafs.FileSystem:
    """``firesteel.storage.filesystem`` = "far_storage:open_far"."""
    count = _Counter(os.environ.get(COUNTS), float(os.environ.get(LATENCY, "0")))
    return pafs.PyFileSystem(FarHandler(count))


def open_counted(path: str) -> pafs.FileSystem:
    """The same; what is set lies in the root, which is ``path`` or above it."""
    root = _root_of(path)
    latency = root / LATENCY_FILE
    return pafs.PyFileSystem(
        FarHandler(_Counter(str(root / FILE), float(latency.read_text()) / 1000 if latency.exists() else 0.0))
    )


class _Failing:
    """Counts nothing; fails one request in so many, and marks it in a file of its process' own."""

    def __init__(self, root: Path, every: int) -> None:
        self._root, self._every, self._asked = root, every, 0
        self._lock = threading.Lock()

    def __call__(self, name: str, nbytes: int | None = None, bytes_name: str = "") -> None:
        with self._lock:
            self._asked += 1
            if self._asked % self._every:
                return
            with (self._root / f"{FAILED_FILE}-{os.getpid()}").open("ab") as marks:
                marks.write(b"x")
        raise OSError("the storage had a hiccup")


def open_failing(path: str) -> pafs.FileSystem:
    """Fails one request in as many as a file in the root says, which is ``path`` or above it."""
    root = _root_of(path)
    return pafs.PyFileSystem(FarHandler(_Failing(root, int((root / HICCUPS_FILE).read_text()))))


def _root_of(path: str) -> Path:
    return next(p for p in (Path(path), *Path(path).parents) if p.is_dir() and not p.name.startswith("firesteel-job-"))

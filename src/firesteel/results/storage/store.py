"""Stores of result objects: one directory per job, on any location that ``pyarrow.fs`` can open.

Objects are flat files with unique names. The driver's acceptance of a name is the commit, so nothing here renames,
locks or syncs: a half-written object has no trailer and is told apart by the reader. A request that fails with an error that
may pass is retried (``retry``), as far as that is safe.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import FiresteelError
from firesteel.results.storage.filesystem import (
    PAUSES,
    first_line,
    inside,
    mapped,
    open_location,
    passes,
    rest,
    retried,
    shown,
)

DELETE_THREADS = 8
"""Remote objects deleted at once; each is one round trip."""
SMALL_READ_BYTES = 64 << 10
WRITE_BYTES = 1 << 20
"""Bytes gathered for one write to a remote location: many answer each write with a round trip. A smaller object is created,
written and closed as one request, which can be retried."""
WRITEV_PARTS = 512
"""Buffers handed to the system at once: at most 1,024 on Linux."""
_T = TypeVar("_T")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StorageError(FiresteelError):
    """A place for results, intermediate ones or a job's output, cannot be used: full, missing, not writable. ``errno`` as of the
    OSError, if any."""

    def __init__(self, message: str, *, hint: str | None = None, errno: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno


class Output(Protocol):
    """An object being written. Buffers, one after another, go out as they are: callers collect a few MiB first, and do not change them later.

    Whether it can be written at all may show only at ``close``. ``discard``: gives up; the caller deletes what there is.
    """

    def write(self, *parts: Any) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


class Input(Protocol):
    """An object being read. ``read_at`` returns fewer bytes than asked only at the object's end."""

    size: int

    def read_at(self, offset: int, length: int) -> pa.Buffer: ...
    def close(self) -> None: ...


def object_name(dataset: int, partition: int, attempt: int, token: int) -> str:
    """The name of what one attempt wrote: unique within the job as long as ``token`` is unique per attempt. Sealed into it are partition and
    token alone (``layout.name_print``): another job that keeps it gives it a name of its own."""
    return f"d{dataset}-p{partition}-a{attempt}-t{token}.fsr"


def merged_name(dataset: int, first: int, end: int, token: int) -> str:
    """The name of an object that holds the rows of partitions ``first`` .. ``end - 1``, merged."""
    return f"d{dataset}-m{first}-{end}-t{token}.fsr"


def merged_token(name: str, dataset: int) -> int | None:
    """Returns the token in the name of a merged object of the data set; None for any other name."""
    start, _, token = name.removesuffix(".fsr").rpartition("-t")
    return int(token) if start.startswith(f"d{dataset}-m") and token.isdigit() else None


@dataclass(slots=True)
class StoreStatistics:
    """Requests of this process to a store. A request is a read or a write of bytes; opening and deleting are counted apart.

    ``retries``: of any of them.
    """

    opens: int = 0
    creates: int = 0
    reads: int = 0
    writes: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    retries: int = 0

    def retried(self) -> None:
        self.retries += 1

    @property
    def requests(self) -> int:
        return self.opens + self.creates + self.reads + self.writes + self.deletes


class ResultStore:
    """A job's own directory of result objects. Picklable; opens its file system once per process, when first used.

    ``statistics``: what was asked of it through this instance (counts of several threads may miss a few).
    """

    def __init__(self, url: str, filesystem: str | None = None) -> None:
        """``url``: a directory path, or a URL that ``pyarrow.fs`` knows (``file:``, ``s3:``, ``gs:``, ``hdfs:``, ``abfs:``).

        ``filesystem``: "module:function" that opens it instead (``results.filesystem``).
        """
        self._filesystem = filesystem
        self.statistics = StoreStatistics()
        parts = urlsplit(url)
        if filesystem is not None:
            self._local: Path | None = None
            self.url = url.rstrip("/")
        elif parts.scheme in ("", "file"):
            path = unquote(parts.path) if parts.scheme else url
            self._local = Path(path).absolute()
            self.url = str(self._local)
        else:
            self._local = None
            self.url = url.rstrip("/")
        self._remote: tuple[Any, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_local": self._local, "_filesystem": self._filesystem, "_remote": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, statistics=StoreStatistics())

    def within(self, name: str) -> ResultStore:
        """A directory inside this one, which goes with it; to be made by ``create``."""
        return ResultStore(inside(self.url, name), self._filesystem)

    @property
    def is_local(self) -> bool:
        """Returns True if the objects lie on a file system of this machine (which other machines may or may not share)."""
        return self._local is not None

    def create(self) -> None:
        """Make the directory. Raises UsageError for a location that cannot be opened, StorageError when it cannot be made."""
        try:
            self._asked(self._make_directory)
        except OSError as error:
            self._fail(error, "cannot be created")

    def open_output(self, name: str) -> Output:
        """A new object; an existing one of that name is an error, never overwritten (as far as the location can tell)."""
        self.statistics.creates += 1
        if self._local is None:
            return _RemoteOutput(self, name)
        path = str(self._local / name)
        try:
            return self._asked(lambda: _LocalOutput(self, path))
        except OSError as error:
            self._fail(error, f"cannot take the new object {name}")

    def replace(self, name: str, data: bytes) -> None:
        """A small object, in the place of the one of this name if there is one. Local readers find either, never a part.

        Raises StorageError.
        """
        self.statistics.creates += 1
        try:
            self._asked(lambda: self._replace(name, data))
        except OSError as error:
            self._fail(error, f"cannot take {name}")

    def open_input(self, name: str) -> Input:
        """An existing object. Raises OSError as the file system gave it: what it means is for the reader to say."""
        self.statistics.opens += 1
        if self._local is not None:
            path = f"{self.url}/{name}"
            return self._asked(lambda: _LocalInput(path, self.statistics))
        fs, root = self._file_system()
        path = f"{root}/{name}"
        return self._asked(lambda: _RemoteInput(lambda: fs.open_input_file(path), self.statistics))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; the ones that do not exist are not an error, the others raise StorageError once all were tried."""
        names = list(names)
        self.statistics.deletes += len(names)
        failed = self._deleted(names)
        for pause in PAUSES:  # all of them together: many in a row would make many pauses
            again = [name for name, error in failed.items() if passes(error)]
            if not again:
                break
            self.statistics.retries += len(again)
            rest(pause)
            failed = {name: error for name, error in failed.items() if not passes(error)} | self._deleted(again)
        if failed:
            first = next(iter(failed.values()))
            self._fail(first, f"still holds {len(failed)} of {len(names)} objects that should go")

    def delete_all(self) -> None:
        """Remove the whole directory; no error when there is none."""
        try:
            self._asked(self._remove_directory)
        except FileNotFoundError:
            return
        except OSError as error:
            self._fail(error, "cannot be removed")

    def list(self) -> list[str]:
        """Names of the objects there are, sorted; none when the directory does not exist."""
        try:
            return self._asked(self._listed)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fail(error, "cannot be listed")

    def _asked(self, ask: Callable[[], _T]) -> _T:
        return retried(ask, noted=self.statistics.retried)

    def _make_directory(self) -> None:
        if self._local is not None:
            self._local.mkdir(parents=True, exist_ok=True)
        else:
            fs, root = self._file_system()
            fs.create_dir(root, recursive=True)

    def _replace(self, name: str, data: bytes) -> None:
        if self._local is not None:
            partial = self._local / f"{name}.part"
            partial.write_bytes(data)
            partial.replace(self._local / name)
            return
        fs, root = self._file_system()
        with fs.open_output_stream(f"{root}/{name}", compression=None) as stream:
            stream.write(data)

    def _remove_directory(self) -> None:
        if self._local is not None:
            shutil.rmtree(self._local)
        else:
            fs, root = self._file_system()
            fs.delete_dir(root)

    def _listed(self) -> list[str]:
        if self._local is not None:
            return sorted(entry.name for entry in os.scandir(self._local) if entry.is_file())
        fs, root = self._file_system()
        infos = fs.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == pafs.FileType.File)

    def _deleted(self, names: Sequence[str]) -> dict[str, OSError]:
        """Returns the objects that are still there, with the reason."""
        if self._local is not None:
            tried = {name: _unlink(self._local / name) for name in names}
        else:
            tried = dict(zip(names, mapped(self._delete_remote, names, DELETE_THREADS), strict=True))
        return {name: error for name, error in tried.items() if error is not None}

    def _delete_remote(self, name: str) -> OSError | None:
        fs, root = self._file_system()
        try:
            fs.delete_file(f"{root}/{name}")
        except FileNotFoundError:
            return None
        except OSError as error:
            return error
        return None

    def remote_stream(self, name: str) -> Any:
        """Of a new remote object. Raises OSError."""
        fs, root = self._file_system()
        return fs.open_output_stream(f"{root}/{name}", compression=None, buffer_size=WRITE_BYTES)

    def _file_system(self) -> tuple[Any, str]:
        if self._remote is None:
            self._remote = open_location(self.url, self._filesystem)
        return self._remote

    def _fail(self, error: OSError, what: str) -> NoReturn:
        raise storage_error(error, self.url, what) from error


def storage_error(error: OSError, url: str, what: str) -> StorageError:
    """The sentence for an OSError met at ``url``."""
    host, place = socket.gethostname(), shown(url)
    if error.errno in _FULL:
        return StorageError(
            f"The storage for intermediate results at {place} is full (seen on {host}).",
            hint="Free some space there, or put intermediate results on a larger volume.",
            errno=error.errno,
        )
    if error.errno == errno.ENOENT:
        return StorageError(
            f"The storage for intermediate results at {place} {what}: there is no such directory on {host}.",
            hint="It must be visible from the driver and from every executor.",
            errno=error.errno,
        )
    reason = os.strerror(error.errno) if error.errno else first_line(error)
    return StorageError(
        f"The storage for intermediate results at {place} {what} on {host}: {reason}.", errno=error.errno
    )


def _unlink(path: Path) -> OSError | None:
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


class _LocalOutput:
    def __init__(self, store: ResultStore, path: str) -> None:
        self._store = store
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, *parts: Any) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        self._store.statistics.writes += 1
        self._store.statistics.bytes_written += sum(map(len, views))
        try:
            while views:
                views = _after(views, os.writev(self._fd, views[:WRITEV_PARTS]))
        except OSError as error:
            raise storage_error(error, self._store.url, "cannot be written") from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            except OSError as error:  # some network file systems tell of a full disk only here
                raise storage_error(error, self._store.url, "cannot be written") from error

    def discard(self) -> None:
        with suppress(StorageError):
            self.close()


def _after(views: list[memoryview], written: int) -> list[memoryview]:
    """The rest of them behind so many bytes."""
    for place, view in enumerate(views):
        if written < len(view):
            return [view[written:], *views[place + 1 :]]
        written -= len(view)
    return []


class _RemoteOutput:
    """Output to a remote location. An object no larger than one write is buffered until ``close``, written as a whole, and retried."""

    def __init__(self, store: ResultStore, name: str) -> None:
        self._store = store
        self._name = name
        self._held: list[Any] = []
        self._held_bytes = 0
        self._stream: Any = None

    def write(self, *parts: Any) -> None:
        data = parts[0] if len(parts) == 1 else b"".join(map(memoryview, parts))
        size = len(memoryview(data).cast("B"))
        self._store.statistics.writes += 1
        self._store.statistics.bytes_written += size
        if self._stream is None:
            self._held.append(data)
            self._held_bytes += size
            if self._held_bytes <= WRITE_BYTES:
                return
            self._stream = self._asked(self._create)
            held, self._held = self._held, []
            for one in held:
                self._send(one)
        else:
            self._send(data)

    def close(self) -> None:
        if self._stream is None:
            self._asked(self._put)
            self._held = []
            return
        try:
            self._stream.close()
        except OSError as error:
            raise storage_error(error, self._store.url, "cannot be written") from error

    def discard(self) -> None:
        self._held = []
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()

    def _create(self) -> Any:
        return self._store.remote_stream(self._name)

    def _put(self) -> None:
        with self._create() as stream:
            for one in self._held:
                stream.write(one)

    def _asked(self, ask: Callable[[], _T]) -> _T:
        try:
            return retried(ask, noted=self._store.statistics.retried)
        except OSError as error:
            raise storage_error(error, self._store.url, f"cannot take the new object {self._name}") from error

    def _send(self, data: Any) -> None:
        try:
            self._stream.write(data)
        except OSError as error:
            raise storage_error(error, self._store.url, "cannot be written") from error


class _LocalInput:
    """``pread`` on a descriptor of ours: a few microseconds to open, and no SIGBUS when a file is cut under a map."""

    __slots__ = ("_fd", "_path", "_statistics", "size")

    def __init__(self, path: str, statistics: StoreStatistics) -> None:
        self._statistics = statistics
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.lseek(self._fd, 0, os.SEEK_END)  # in a third of the time of fstat
        except OSError as error:
            os.close(self._fd)
            if error.errno == errno.EINVAL:  # a directory
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from error
            raise

    def read_at(self, offset: int, length: int) -> pa.Buffer:
        if length <= SMALL_READ_BYTES and (data := self._read_small(offset, length)) is not None:
            return data
        buffer = pa.allocate_buffer(length)
        view = memoryview(buffer).cast("B")
        done = retried(
            lambda: self._fill(view, offset), lambda: self._fill_anew(view, offset), self._statistics.retried
        )
        self._statistics.reads += 1
        self._statistics.bytes_read += done
        return buffer if done == length else buffer.slice(0, done)

    def _read_small(self, offset: int, length: int) -> pa.Buffer | None:
        """In one request and without a buffer of Arrow's, which costs as much; None: it gave less than there is, or an error."""
        try:
            data = os.pread(self._fd, length, offset)
        except OSError:
            return None  # the other way knows which errors pass
        if len(data) < min(length, self.size - offset):
            return None
        self._statistics.reads += 1
        self._statistics.bytes_read += len(data)
        return pa.py_buffer(data)

    def _fill(self, view: memoryview, offset: int) -> int:
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def _fill_anew(self, view: memoryview, offset: int) -> int:
        """A network file system's stale handle is mended by opening again."""
        self.close()
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fill(view, offset)

    def close(self) -> None:
        if self._fd >= 0:
            try:  # noqa: SIM105 - thousands are closed in a row
                os.close(self._fd)
            except OSError:
                pass
            self._fd = -1


class _RemoteInput:
    """One positioned read is one request; several threads may read at once."""

    def __init__(self, open_file: Callable[[], Any], statistics: StoreStatistics) -> None:
        self._open_file = open_file
        self._file = open_file()
        self._statistics = statistics
        self.size = int(self._file.size())

    def read_at(self, offset: int, length: int) -> pa.Buffer:
        length = min(length, self.size - offset)
        if length <= 0:
            return pa.py_buffer(b"")
        data = retried(
            lambda: self._read(self._file, offset, length),
            lambda: self._read_anew(offset, length),
            self._statistics.retried,
        )
        self._statistics.reads += 1
        self._statistics.bytes_read += data.size
        return data

    def _read(self, file: Any, offset: int, length: int) -> Any:
        return pa.py_buffer(file.read_at(length, offset))

    def _read_anew(self, offset: int, length: int) -> Any:
        """Through another opening, since the connection may be what failed; other threads may still use the one before."""
        self._file = self._open_file()
        return self._read(self._file, offset, length)

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()

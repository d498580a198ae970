"""Cache of the objects that a worker reads, for its next executions: the indexes at their
ends, and for storages far away open files, and a copy of the indexes on the executor's disk. A local file is not kept open:
opening it costs two microseconds, and one that was deleted would keep its disk space until the worker ends.

Objects never change under a name, so what is kept is never stale. A scan over more objects than there is room for keeps
the first ones: throwing out the oldest would keep nothing that the next scan comes by.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from firesteel.results.layout import Damaged, Identity, ObjectIndex, Tail, name_print
from firesteel.results.storage.store import Input, ResultStore

LOCAL_TAIL_BYTES = 4 << 10
REMOTE_TAIL_BYTES = 64 << 10
"""Fetched first, from an object's end: the trailer, and often all of the index, or of the object, in the same request."""
LOCAL_INDEX_BYTES = 64 << 10
REMOTE_INDEX_BYTES = 256 << 10
"""An index up to so long is fetched as a whole where others will read the object too, a longer one by the blocks that a reader needs."""
PRIVATE_BYTES = 16 << 20
WORKER_BYTES = 64 << 20
"""Ends of objects that one reader alone, or a worker, keeps in memory."""
WORKER_FILES = 512
DISK_BYTES = 256 << 20
"""Of indexes that one worker puts on the executor's disk."""
WORKER_STORES = 2
_T = TypeVar("_T")


class _Kept(Generic[_T]):
    """Values by object name, up to a limit. Only what belongs to no data set in use makes room."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[str, tuple[_T, int]] = OrderedDict()
        self._size = 0

    def get(self, name: str) -> _T | None:
        entry = self._values.get(name)
        return None if entry is None else entry[0]

    def take(self, name: str) -> _T | None:
        entry = self._values.pop(name, None)
        if entry is None:
            return None
        self._size -= entry[1]
        return entry[0]

    def put(self, name: str, value: _T, size: int, in_use: Iterable[str] | None) -> list[_T]:
        """Keeps ``value`` if there is room and returns what is not kept: ``value`` itself, or what had to make room for it."""
        gone = [] if (old := self.take(name)) is None or old is value else [old]
        while self._size + size > self.limit:
            oldest = next(iter(self._values), None)
            if oldest is None or in_use is None or _dataset(oldest) in in_use:
                return [*gone, value]
            gone.append(self._values[oldest][0])
            self.take(oldest)
        self._values[name] = (value, size)
        self._size += size
        return gone

    def clear(self) -> list[_T]:
        values = [value for value, _ in self._values.values()]
        self._values.clear()
        self._size = 0
        return values


class ObjectCache:
    """Cache of the objects of one store; several threads may use it. ``datasets_in_use``: make room for nothing else."""

    def __init__(
        self,
        store: ResultStore,
        *,
        index_bytes: int = PRIVATE_BYTES,
        files: int = 0,
        disk: Path | None = None,
        tail_bytes: int | None = None,
    ) -> None:
        """``tail_bytes``: fetched first, if not as usual."""
        self._store = store
        self.tail_bytes = tail_bytes or (LOCAL_TAIL_BYTES if store.is_local else REMOTE_TAIL_BYTES)
        self._indexes: _Kept[ObjectIndex] = _Kept(index_bytes)
        self._files: _Kept[Input] = _Kept(files)
        self._disk = None if disk is None else _IndexFiles(disk)
        limit = LOCAL_INDEX_BYTES if store.is_local else REMOTE_INDEX_BYTES
        self.index_bytes = limit if files else 0
        """Indexes up to so long are fetched whole: other readers will ask for other parts of them."""
        self._keeps_files = files > 0 and not store.is_local
        self._lock = threading.Lock()
        self._in_use: frozenset[str] | None = None

    def use(self, datasets: Iterable[int]) -> None:
        """The data sets that are read from now on; the others make room for them."""
        self._in_use = frozenset(f"d{dataset}" for dataset in datasets)

    def object(self, name: str, subpartitions: int, schema: int) -> StoredObject:
        """``schema``: its print, as of ``Identity``."""
        return StoredObject(self._store, name, (subpartitions, schema), self)

    def index(self, name: str) -> ObjectIndex | None:
        return self._indexes.get(name)

    def held(self, name: str, begin: int, end: int) -> pa.Buffer | None:
        """Bytes [begin, end) of an object, a copy, where they are kept with its index; None: they are not."""
        known = self._indexes.get(name)
        if known is None or begin < known.tail.start:
            return None
        return pa.py_buffer(bytes(known.tail.data[begin - known.tail.start : end - known.tail.start]))

    def keep_index(self, name: str, index: ObjectIndex) -> None:
        with self._lock:
            self._indexes.put(name, index, len(index.tail.data) + 200, self._in_use)

    def take_file(self, name: str) -> Input | None:
        """An open file, the taker's own until it gives it back."""
        with self._lock:
            return self._files.take(name)

    def give_file(self, name: str, file: Input) -> None:
        if not self._keeps_files:
            file.close()
            return
        with self._lock:
            unwanted = self._files.put(name, file, 1, self._in_use)
        for one in unwanted:
            one.close()

    def load_tail(self, name: str) -> Tail | None:
        return None if self._disk is None else self._disk.load(name)

    def save_tail(self, name: str, tail: Tail) -> None:
        if self._disk is not None:
            self._disk.save(name, tail)

    def close(self) -> None:
        with self._lock:
            self._indexes.clear()
            files = self._files.clear()
        for file in files:
            file.close()


class StoredObject:
    """An object being read: opened when a byte is needed that is not at hand, given back to the cache when closed."""

    __slots__ = ("_cache", "_expected", "_file", "_index", "_store", "name")

    def __init__(self, store: ResultStore, name: str, expected: tuple[int, int], cache: ObjectCache) -> None:
        """``expected``: subpartitions and print of the schema."""
        self._store = store
        self.name = name
        self._expected = expected
        self._cache = cache
        self._file: Input | None = None
        self._index: ObjectIndex | None = None

    def index(self) -> ObjectIndex:
        """Returns the object's index, from the cache if it is known. Raises Damaged, and OSError as the store gave it."""
        if self._index is None:
            known = self._cache.index(self.name)
            self._index = known if known is not None and known.identity[:2] == self._expected else self._read_index()
        return self._index

    def _read_index(self) -> ObjectIndex:
        saved = self._cache.load_tail(self.name)
        tail = saved or Tail(self._input().size, self._cache.tail_bytes, self.fetch)
        index = ObjectIndex(tail, Identity(*self._expected, name_print(self.name)), self.fetch)
        if index.length <= self._cache.index_bytes:
            tail.extend(index.start, self.fetch)
        if saved is None:
            self._cache.save_tail(self.name, tail)
        self._cache.keep_index(self.name, index)
        return index

    def fetch(self, offset: int, length: int) -> memoryview:
        return memoryview(self._input().read_at(offset, length)).cast("B")

    def read(self, begin: int, end: int) -> pa.Buffer:
        """Bytes [begin, end), where the index says there are messages."""
        known = self._index or self._cache.index(self.name)
        if known is not None and begin >= known.tail.start:
            tail = known.tail
            return pa.py_buffer(bytes(tail.read(begin, end - begin, self.fetch)))  # a copy: rows must not keep the tail
        data = self._input().read_at(begin, end - begin)
        if data.size != end - begin:
            raise Damaged(f"ends at byte {begin + data.size} where {end} were expected")
        return data

    def _input(self) -> Input:
        if self._file is None:
            self._file = self._cache.take_file(self.name) or self._store.open_input(self.name)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._cache.give_file(self.name, self._file)
            self._file = None

    def discard(self) -> None:
        """Close it, something having gone wrong: whoever tries again shall open it anew."""
        if self._file is not None:
            self._file.close()
            self._file = None


class _IndexFiles:
    """Ends of objects in a directory that the workers of an executor share. Whatever fails here is as if nothing was kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._left = DISK_BYTES

    def load(self, name: str) -> Tail | None:
        try:
            content = (self._directory / name).read_bytes()
        except OSError:
            return None
        data, numbers = content[:-16], content[-16:]
        if not data or int.from_bytes(numbers[8:], "little") != zlib.crc32(data, zlib.crc32(numbers[:8])):
            return None
        view = memoryview(data)
        return Tail(int.from_bytes(numbers[:8], "little"), len(data), lambda offset, length: view)

    def save(self, name: str, tail: Tail) -> None:
        size = len(tail.data)
        if size > self._left:
            return
        numbers = tail.size.to_bytes(8, "little")
        check = zlib.crc32(tail.data, zlib.crc32(numbers))
        aside = self._directory / f"{name}.{os.getpid()}"
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(b"".join((tail.data, numbers, check.to_bytes(8, "little"))))
            aside.rename(self._directory / name)
            self._left -= size


_worker: OrderedDict[str, ObjectCache] = OrderedDict()


def worker_cache(
    store: ResultStore, datasets: Iterable[int], memory_budget: int, disk: Path | None = None
) -> ObjectCache:
    """This worker process' cache for a job's store, made when the job is new to it; those of earlier jobs are closed.

    ``datasets``: the ones that the next execution reads. ``disk``: a directory that the executor's workers share; used for
    stores that are far away.
    """
    cache = _worker.get(store.url)
    if cache is None:
        limit = min(WORKER_BYTES, max(memory_budget // 16, 1 << 20))
        cache = ObjectCache(store, index_bytes=limit, files=file_limit(), disk=None if store.is_local else disk)
        _worker[store.url] = cache
        while len(_worker) > WORKER_STORES:
            _worker.popitem(last=False)[1].close()
    _worker.move_to_end(store.url)
    cache.use(datasets)
    return cache


def file_limit() -> int:
    """Returns the number of objects' files that this process may keep open."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return WORKER_FILES if soft == resource.RLIM_INFINITY else min(WORKER_FILES, soft // 4)


def _dataset(name: str) -> str:
    return name.partition("-")[0]

"""Job information and vertex parts, shared by the executions of a batch: bytes with a digest, decoded once per worker and remembered there."""

from __future__ import annotations

import hashlib
import pickle
import secrets
import sys
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from firesteel.engine.package import EnginePackage
from firesteel.task.executor.openings import Watch

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TASK_BITS = 40
"""Lower bits of a token: Spark's id of the task's attempt. The upper ones are its driver's."""
DRIVER_BITS = 22
"""With them a token is less than half of the largest int64, so that differences of tokens are int64, too."""
CACHED_BYTES = 32 << 20
"""Bytes of decoded job and vertex informations and gates that a worker process remembers."""


def new_token_base(taken: Collection[int] = ()) -> int:
    """Returns the upper bits of a driver's tokens, drawn at random, none of ``taken``: two drivers of one directory never write one name."""
    while (base := secrets.randbits(DRIVER_BITS) << TASK_BITS) in taken:
        pass
    return base


class LruBytes(Generic[K, V]):
    """A cache of values of at most ``limit`` bytes together: what was used least recently goes first. Not for several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; None if it is not here."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Keeps the value, in the place of the key's older one. One larger than the limit is not kept at all."""
        self.drop(key)
        if nbytes > self.limit:
            return
        self._entries[key] = (value, nbytes)
        self.nbytes += nbytes
        while self.nbytes > self.limit:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        """No-op for what is not here."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.nbytes -= entry[1]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)


cache: LruBytes[bytes, Any] = LruBytes(CACHED_BYTES)
"""By digest; of this worker process."""


@dataclass(frozen=True, slots=True)
class JobInformation:
    """The same for all executions of a job."""

    job_id: str
    store: Any
    codec: str
    memory_budget: int
    scratch: str | None = None
    """Directory for what tasks spill; None: the executor's own local directory."""
    module_paths: tuple[str, ...] = ()
    """Local masters: the driver's module search path, so that a script's own modules are found."""
    blob_cache_bytes: int = 256 << 20
    """Most bytes of blobs that an executor keeps on its local disk."""
    node_variable: str | None = None
    """Environment variable of the executors that names their node."""
    heavy_keys: bool = False
    """Tasks look for heavy keys and report their values."""
    failed_rows: bool = False
    """Tasks report some of the rows that failed."""
    kept_functions: int = 1 << 30
    """Most bytes that a worker keeps of functions with a set-up that its task does not need."""
    engine: EnginePackage | None = None
    """The driver's, of a job with fragments whose workers may have other packages."""
    modules: tuple[ModuleSource, ...] = ()
    """The user's own, by name."""
    watch: Watch | None = None
    """None: nothing of the job is kept for others."""
    token_base: int = 0
    """Of the driver (:func:`new_token_base`)."""

    def token_of(self, task: int) -> int:
        """Returns the token of what this Spark task writes; ``task``: its attempt id, which every application counts from 0."""
        return self.token_base | task


@dataclass(frozen=True, slots=True)
class VertexInformation:
    """The same for all executions of a vertex."""

    vertex: int
    name: str
    parallelism: int
    subpartitions: dict[int, int]
    program: bytes
    """The cloudpickled VertexProgram."""
    slot_sharing_group: str = "default"


@dataclass(frozen=True, slots=True)
class Blob:
    """Pickled once on the driver, unpickled once per worker process."""

    digest: bytes
    data: bytes

    @classmethod
    def of(cls, value: Any) -> Blob:
        data = pickle.dumps(value, protocol=5)
        return cls(hashlib.blake2b(data, digest_size=16).digest(), data)

    def load(self) -> Any:
        value = cache.get(self.digest)
        if value is None:
            value = pickle.loads(self.data)
            cache.put(self.digest, value, len(self.data))
        return value


CarriedGate = tuple[bytes, bytes | None]
"""Digest and bytes of an encoded gate; without the bytes where they are a blob."""


@dataclass(frozen=True, slots=True)
class VertexPart:
    """One vertex of a batch, shared by its executions. ``gates`` run parallel to the vertex' inputs."""

    vertex: Blob
    gates: tuple[CarriedGate, ...]


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """``name``: with all its dots. ``path``: on the driver, where messages place its lines."""

    name: str
    path: str
    source: bytes
    is_package: bool = False


class _Sources(MetaPathFinder, InspectLoader):
    """Imports modules from sources in memory."""

    def __init__(self) -> None:
        self.known: dict[str, ModuleSource] = {}
        self.current: dict[str, ModuleSource] = {}
        """Of the known ones, the job's."""
        self.aside: dict[str, ModuleType] = {}
        """Imported ones of other jobs."""
        self.last: Sequence[ModuleSource] | None = None

    def become(self, wanted: dict[str, ModuleSource]) -> None:
        if any(self.known.get(name, module) != module for name, module in wanted.items()):
            for name in self.known:
                sys.modules.pop(name, None)
            self.known.clear()
            self.aside.clear()
            self.current = {}
        for name in (self.current.keys() - wanted.keys()) & sys.modules.keys():
            self.aside[name] = sys.modules.pop(name)
        for name in wanted.keys() - self.current.keys():
            sys.modules.pop(name, None)  # from a file of another day, or of a job without one beside its script
            if name in self.aside:
                sys.modules[name] = self.aside.pop(name)
        self.known.update(wanted)
        self.current = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self.current.get(fullname)
        if module is None:
            return None
        folder = [str(Path(module.path).parent)] if module.is_package else None
        return spec_from_file_location(fullname, module.path, loader=self, submodule_search_locations=folder)

    def get_source(self, fullname: str) -> str:
        """Of the lines that tracebacks show."""
        from importlib.util import decode_source

        return decode_source(self.known[fullname].source)

    def exec_module(self, module: ModuleType) -> None:
        ours = self.known[module.__name__]
        exec(compile(ours.source, ours.path, "exec", dont_inherit=True), module.__dict__)


_sources = _Sources()


def take_in(modules: Sequence[ModuleSource]) -> None:
    """From now on these are imported from their sources here."""
    if modules is _sources.last:
        return
    _sources.last = modules
    _sources.become({module.name: module for module in modules})
    if _sources not in sys.meta_path:
        sys.meta_path.insert(0, _sources)

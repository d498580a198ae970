"""Job information and vertex parts, shared by the executions of a batch: bytes with a digest, decoded once per worker."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import Any

from firesteel.results.storage.lru import LruBytes

CACHED_BYTES = 32 << 20
"""Bytes of decoded job and vertex informations and gates that a worker process remembers."""
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

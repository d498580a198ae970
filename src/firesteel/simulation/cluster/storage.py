"""The simulated storage: which objects there are, and how often somebody asked for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, grown
from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.kernel.commands import LoadSizes, MergedObjects, StoreSizes

Mask = NDArray[np.bool_]
Bits = NDArray[np.unsignedinteger]
"""A bit per output of the vertex."""


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """``latency``: seconds per request. ``bandwidth``: bytes per second of each task."""

    latency: float = 0.02
    bandwidth: float = 200e6
    parallel_requests: int = 16
    """Requests that a task has under way at once."""


@dataclass(slots=True)
class Requests:
    reads: int = 0
    """One for each object that a task reads from."""
    writes: int = 0
    deletes: int = 0
    lists: int = 0
    blobs: int = 0
    """Descriptors stored, and fetched by nodes."""

    @property
    def total(self) -> int:
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, int]:
        return asdict(self)


class Storage:
    """Objects go by their token, and stay until a command deletes them."""

    def __init__(self, spec: StorageSpec, graph: JobGraph) -> None:
        self.spec = spec
        self.requests = Requests()
        self._outputs = [vertex.outputs for vertex in graph.vertices]
        self._kind = np.min_scalar_type((1 << max(map(len, self._outputs), default=0)) - 1)
        self._bit = np.zeros(len(graph.datasets), self._kind)
        for outputs in self._outputs:
            for index, dataset in enumerate(outputs):
                self._bit[dataset] = 1 << index
        self._there: Bits = np.zeros(0, self._kind)
        """By token."""
        self._sizes: dict[int, list[StoreSizes]] = {}

    # --- objects -----------------------------------------------------------------------------------------------

    def write(self, vertex: int, datasets: Sequence[int], tokens: Ints, nodes: NDArray[np.int32]) -> None:
        end = int(tokens.max(initial=0)) + 1
        if end > len(self._there):
            self._there = grown(self._there, max(end, len(self._there) * 5 // 4), 0)
        self._there[tokens] = np.bitwise_or.reduce(self._bit[list(datasets)]) if datasets else 0
        self.requests.writes += len(tokens) * len(datasets)

    def has(self, dataset: int, tokens: Ints) -> Mask:
        return self._test(self._there, dataset, tokens)

    def is_readable(self, dataset: int, tokens: Ints) -> Mask:
        return self.has(dataset, tokens)

    def delete(self, dataset: int, tokens: Ints) -> None:
        self._there[tokens] &= ~self._bit[dataset]
        self.requests.deletes += len(tokens)

    def discard(self, vertex: int, token: int) -> None:
        """All that one execution wrote and that is not deleted yet."""
        tokens = np.array([token])
        for dataset in self._outputs[vertex]:
            if self.has(dataset, tokens)[0]:
                self.delete(dataset, tokens)

    def _test(self, bits: NDArray[np.uint64], dataset: int, tokens: Ints) -> Mask:
        known = (tokens >= 0) & (tokens < len(bits))
        return known & ((bits[np.where(known, tokens, 0)] & self._bit[dataset]) > 0) if len(bits) else known & False

    # --- merged objects, size rows, blobs ------------------------------------------------------------------------

    def write_merged(self, merged: MergedObjects) -> None:
        self.requests.writes += len(merged.tokens)

    def delete_merged(self, dataset: int, merged: MergedObjects) -> None:
        self.requests.deletes += len(merged.tokens)

    def store_sizes(self, command: StoreSizes) -> None:
        self._sizes.setdefault(command.dataset, []).append(command)

    def load_sizes(self, command: LoadSizes) -> list[bytes | None]:
        """The row stored last for each, None for one that is not there."""
        wanted = set(zip(command.partitions.tolist(), command.attempts.tolist(), strict=True))
        found: dict[tuple[int, int], bytes] = {}
        for stored in self._sizes.get(command.dataset, []):
            names = zip(stored.partitions.tolist(), stored.attempts.tolist(), strict=True)
            found.update((name, stored.rows[k]) for k, name in enumerate(names) if name in wanted)
        asked = zip(command.partitions.tolist(), command.attempts.tolist(), strict=True)
        return [found.get(name) for name in asked]

    def drop_sizes(self, dataset: int) -> None:
        self._sizes.pop(dataset, None)

    def store_blob(self, digest: bytes, data: bytes) -> None:
        self.requests.blobs += 1

    def drop_blobs(self, digests: Sequence[bytes]) -> None:
        """Deletions of descriptors are not counted."""

"""The simulated storage: which objects there are, and how often somebody asked for one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, grown
from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.kernel.commands import LoadSizes, MergedObjects, StoreSizes
from firesteel.simulation.cluster.merged import MergedBook
from firesteel.simulation.violation import check

Mask = NDArray[np.bool_]
Bits = NDArray[np.unsignedinteger]
"""A bit per output of the vertex."""


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """``latency``: seconds per request. ``bandwidth``: bytes per second of each task. ``node_local``: dies with its node."""

    latency: float = 0.02
    bandwidth: float = 200e6
    parallel_requests: int = 16
    """Requests that a task has under way at once."""
    node_local: bool = False


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
    """Objects go by their token. ``written`` and not ``there``: deleted by a command, or lost."""

    def __init__(self, spec: StorageSpec, graph: JobGraph) -> None:
        self.spec = spec
        self.requests = Requests()
        self._outputs = [vertex.outputs for vertex in graph.vertices]
        kind = np.min_scalar_type((1 << max(map(len, self._outputs), default=0)) - 1)
        self._bit = np.zeros(len(graph.datasets), kind)
        for outputs in self._outputs:
            for index, dataset in enumerate(outputs):
                self._bit[dataset] = 1 << index
        # By token, as the next two columns.
        self._there: Bits = np.zeros(0, kind)
        self._written: Bits = np.zeros(0, kind)
        self._deleted: Bits = np.zeros(0, kind)
        self._damaged: Bits = np.zeros(0, kind)
        self._node = np.zeros(0, np.int32)
        self._vertex = np.zeros(0, np.min_scalar_type(len(graph.vertices)))
        self.version = np.zeros(len(graph.datasets), np.int64)
        """Changes of a data set's objects that a reader could notice."""
        self.merged = MergedBook()
        self.blobs: dict[bytes, int] = {}
        """Bytes of each blob that is there."""
        self._sizes: dict[int, list[StoreSizes]] = {}

    # --- objects -----------------------------------------------------------------------------------------------

    def write(self, vertex: int, datasets: Sequence[int], tokens: Ints, nodes: NDArray[np.int32]) -> None:
        self._reserve(int(tokens.max(initial=0)) + 1)
        bits = np.bitwise_or.reduce(self._bit[list(datasets)]) if datasets else 0
        check(not self._written[tokens].any(), "a token was given twice")
        self._there[tokens] = self._written[tokens] = bits
        self._node[tokens], self._vertex[tokens] = nodes, vertex
        self.requests.writes += len(tokens) * len(datasets)

    def link(self, dataset: int, vertex: int, token: int, node: int | None) -> None:
        """An object that another job has written is this one's, too. ``node``: None: it is gone already."""
        self._reserve(token + 1)
        self._written[token] |= self._bit[dataset]
        self._vertex[token] = vertex
        if node is not None:
            self._there[token] |= self._bit[dataset]
            self._node[token] = node
        self.version[dataset] += 1

    def node_of(self, token: int) -> int:
        return int(self._node[token])

    def has(self, dataset: int, tokens: Ints) -> Mask:
        return self._test(self._there, dataset, tokens)

    def is_readable(self, dataset: int, tokens: Ints) -> Mask:
        """It is there, and whole: who only lists the storage does not see the difference."""
        return self.has(dataset, tokens) & ~self._test(self._damaged, dataset, tokens)

    def was_deleted(self, dataset: int, tokens: Ints) -> Mask:
        """By command, that is; an object that is lost as well counts as deleted."""
        return self._test(self._deleted, dataset, tokens)

    def delete(self, dataset: int, tokens: Ints) -> None:
        """By command: each object once, and only what was written."""
        written = bool(self._test(self._written, dataset, tokens).all())
        check(written, f"objects of data set {dataset} are to be deleted that were never written")
        again = bool(self.was_deleted(dataset, tokens).any())
        check(not again, f"objects of data set {dataset} are deleted twice")
        self._clear(dataset, tokens)
        self._deleted[tokens] |= self._bit[dataset]
        self.requests.deletes += len(tokens)

    def discard(self, vertex: int, token: int) -> None:
        """By command: all that one execution wrote and that is not deleted yet."""
        if token >= len(self._node):
            return
        tokens = np.array([token])
        for dataset in self._outputs[vertex]:
            if self._test(self._written, dataset, tokens)[0] and not self.was_deleted(dataset, tokens)[0]:
                self.delete(dataset, tokens)

    def lose(self, dataset: int, tokens: Ints) -> None:
        self._clear(dataset, tokens)

    def damage(self, dataset: int, tokens: Ints) -> None:
        """They are there, and their readers find that checksums do not fit."""
        self._damaged[tokens] |= self._bit[dataset]
        self.version[dataset] += 1

    def lose_node(self, node: int) -> None:
        """All that lay on a node whose disk is gone."""
        tokens = np.flatnonzero((self._node == node) & (self._there > 0))
        self._there[tokens] = 0
        for vertex in np.unique(self._vertex[tokens]).tolist():
            self.version[self._outputs[vertex]] += 1
        self.merged.lose_node(node)

    def objects(self, dataset: int, vertex: int) -> Ints:
        """Tokens of all objects of a data set (``vertex`` produces it) that are there."""
        mine = (self._vertex == vertex) & ((self._there & self._bit[dataset]) > 0)
        return np.flatnonzero(mine)

    # --- merged objects, size rows, blobs ------------------------------------------------------------------------

    def sweep(self, dataset: int, vertex: int, kept: Ints) -> None:
        """A new driver deletes all objects of a data set (``vertex`` produces it) but for these."""
        tokens = self.objects(dataset, vertex)
        tokens = tokens[~np.isin(tokens, kept)]
        if len(tokens):
            self.delete(dataset, tokens)

    def sweep_merged(self, kept: Collection[int]) -> None:
        self.merged.keep(np.array(sorted(kept), np.int64))

    def write_merged(self, dataset: int, merged: MergedObjects, nodes: Ints) -> None:
        self.merged.write(dataset, merged, nodes)
        self.requests.writes += len(merged.tokens)

    def delete_merged(self, dataset: int, merged: MergedObjects) -> None:
        self.merged.delete(dataset, merged)
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

    def lose_driver(self) -> None:
        """Its scratch files are gone, and its successor stores all blobs anew."""
        self._sizes.clear()
        self.blobs.clear()

    def drop_sizes(self, dataset: int) -> None:
        self._sizes.pop(dataset, None)

    def store_blob(self, digest: bytes, data: bytes) -> None:
        self.blobs[digest] = len(data)
        self.requests.blobs += 1

    def drop_blobs(self, digests: Sequence[bytes]) -> None:
        for digest in digests:
            check(self.blobs.pop(digest, None) is not None, "a blob is dropped that is not there")

    def leaks(self, persistent: Sequence[int], delivered: Mask) -> list[str]:
        """Returns what a finished job should have deleted, in sentences. ``delivered``: tokens the scheduler was told of."""
        found: list[str] = []
        known = min(len(delivered), len(self._node))
        tokens = np.flatnonzero((self._there[:known] > 0) & delivered[:known])
        for vertex in np.unique(self._vertex[tokens]).tolist():
            mine = tokens[self._vertex[tokens] == vertex]
            for dataset in self._outputs[vertex]:
                left = int(self.has(dataset, mine).sum())
                if left and dataset not in persistent:
                    found.append(f"{left} objects of data set {dataset}")
        left = [dataset for dataset in self.merged.datasets if dataset not in persistent]
        found += [f"merged objects of data set {dataset}" for dataset in left]
        found += [f"rows of sizes of data set {dataset}" for dataset in self._sizes]
        return found + ([f"{len(self.blobs)} blobs"] if self.blobs else [])

    def _test(self, bits: NDArray[np.uint64], dataset: int, tokens: Ints) -> Mask:
        known = (tokens >= 0) & (tokens < len(bits))
        return known & ((bits[np.where(known, tokens, 0)] & self._bit[dataset]) > 0) if len(bits) else known & False

    def _clear(self, dataset: int, tokens: Ints) -> None:
        self._there[tokens] &= ~self._bit[dataset]
        self.version[dataset] += 1

    def _reserve(self, size: int) -> None:
        have = len(self._node)
        if size <= have:
            return
        for name in ("_there", "_written", "_deleted", "_damaged", "_node", "_vertex"):
            setattr(self, name, grown(getattr(self, name), max(size, have * 5 // 4), 0))

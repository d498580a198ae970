"""The storage of tests: objects are lost or damaged, are deleted once, and belong to other jobs too."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from tests.simulation.merged import MergedBook

from firesteel.model.arrays import Ints, grown
from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.kernel.commands import MergedObjects
from firesteel.simulation.cluster import storage
from firesteel.simulation.cluster.storage import Bits, Mask, StorageSpec
from firesteel.simulation.violation import check


class Storage(storage.Storage):
    """Objects go by their token. ``written`` and not ``there``: deleted by a command, or lost."""

    def __init__(self, spec: StorageSpec, graph: JobGraph) -> None:
        super().__init__(spec, graph)
        # By token, as the next two columns.
        self._written: Bits = np.zeros(0, self._kind)
        self._deleted: Bits = np.zeros(0, self._kind)
        self._damaged: Bits = np.zeros(0, self._kind)
        self._node = np.zeros(0, np.int32)
        self._vertex = np.zeros(0, np.min_scalar_type(len(graph.vertices)))
        self.version = np.zeros(len(graph.datasets), np.int64)
        """Changes of a data set's objects that a reader could notice."""
        self.merged = MergedBook()
        self.blobs: dict[bytes, int] = {}
        """Bytes of each blob that is there."""

    def write(self, vertex: int, datasets: Sequence[int], tokens: Ints, nodes: NDArray[np.int32]) -> None:
        self._reserve(int(tokens.max(initial=0)) + 1)
        check(not self._written[tokens].any(), "a token was given twice")
        super().write(vertex, datasets, tokens, nodes)
        self._written[tokens] = self._there[tokens]
        self._node[tokens], self._vertex[tokens] = nodes, vertex

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
        super().delete(dataset, tokens)
        self.version[dataset] += 1
        self._deleted[tokens] |= self._bit[dataset]

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

    def sweep(self, dataset: int, vertex: int, kept: Ints) -> None:
        """A new driver deletes all objects of a data set (``vertex`` produces it) but for these."""
        tokens = self.objects(dataset, vertex)
        tokens = tokens[~np.isin(tokens, kept)]
        if len(tokens):
            self.delete(dataset, tokens)

    def sweep_merged(self, kept: Collection[int]) -> None:
        self.merged.keep(np.array(sorted(kept), np.int64))

    def delete_merged(self, dataset: int, merged: MergedObjects) -> None:
        self.merged.delete(dataset, merged)
        super().delete_merged(dataset, merged)

    def lose_driver(self) -> None:
        """Its scratch files are gone, and its successor stores all blobs anew."""
        self._sizes.clear()
        self.blobs.clear()

    def store_blob(self, digest: bytes, data: bytes) -> None:
        self.blobs[digest] = len(data)
        super().store_blob(digest, data)

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

    def _clear(self, dataset: int, tokens: Ints) -> None:
        self._there[tokens] &= ~self._bit[dataset]
        self.version[dataset] += 1

    def _reserve(self, size: int) -> None:
        have = len(self._node)
        if size <= have:
            return
        for name in ("_there", "_written", "_deleted", "_damaged", "_node", "_vertex"):
            setattr(self, name, grown(getattr(self, name), max(size, have * 5 // 4), 0))

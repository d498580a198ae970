"""The merged objects of the simulated storage, as columns: a large result has very many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, distinct
from firesteel.scheduler.kernel.commands import MergedObjects
from firesteel.simulation.violation import check

Mask = NDArray[np.bool_]


class MergedBook:
    """A row per merged object, in the order of their tokens."""

    def __init__(self) -> None:
        self._tokens: Ints = np.empty(0, np.int64)
        self._dataset: NDArray[np.int32] = np.empty(0, np.int32)
        self._first: Ints = np.empty(0, np.int64)
        self._end: Ints = np.empty(0, np.int64)
        self._node: NDArray[np.int32] = np.empty(0, np.int32)
        self._there: Mask = np.empty(0, np.bool_)
        """Not deleted by command."""
        self._lost: Mask = np.empty(0, np.bool_)
        """Its node's disk is gone."""

    def write(self, dataset: int, merged: MergedObjects, nodes: Ints) -> None:
        """Objects that are there from now on, each on its node. Their tokens ascend, and are greater than all before."""
        count = len(merged.tokens)
        self._tokens = np.concatenate((self._tokens, merged.tokens))
        self._dataset = np.concatenate((self._dataset, np.full(count, dataset, np.int32)))
        self._first = np.concatenate((self._first, merged.first))
        self._end = np.concatenate((self._end, merged.end))
        self._node = np.concatenate((self._node, nodes.astype(np.int32)))
        self._there = np.concatenate((self._there, np.ones(count, np.bool_)))
        self._lost = np.concatenate((self._lost, np.zeros(count, np.bool_)))

    def has(self, tokens: Ints) -> Mask:
        """Returns a mask of these tokens: True for those that were written and are not deleted."""
        if not len(self._tokens):
            return np.zeros(len(tokens), np.bool_)
        rows = self._rows(tokens)
        return (self._tokens[rows] == tokens) & self._there[rows]

    def delete(self, dataset: int, merged: MergedObjects) -> None:
        """By command: each once, and only what was written so."""
        there = bool(self.has(merged.tokens).all())
        if there and len(merged.tokens):
            rows = self._rows(merged.tokens)
            same = (self._first[rows] == merged.first) & (self._end[rows] == merged.end)
            there = bool((same & (self._dataset[rows] == dataset)).all()) and len(distinct(rows)) == len(rows)
            self._there[rows] = False
        check(there, f"a merged object of data set {dataset} is deleted that is not there")

    def keep(self, tokens: Ints) -> None:
        """A new driver deletes all others."""
        self._there &= np.isin(self._tokens, tokens)

    def lose_node(self, node: int) -> None:
        self._lost |= self._node == node

    @property
    def datasets(self) -> list[int]:
        """Data sets that have some that are there, ascending."""
        return np.unique(self._dataset[self._there]).tolist()

    def _rows(self, tokens: Ints) -> Ints:
        """Returns the row of each token that was written, any other row of the others."""
        return np.minimum(np.searchsorted(self._tokens, tokens), len(self._tokens) - 1)

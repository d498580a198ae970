"""Strongly connected components by Tarjan's algorithm, without recursion and over columns."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Ints


def strongly_connected_components(num_nodes: int, sources: Ints, targets: Ints) -> Ints:
    """The component of each node; edge ``k`` leads from node ``sources[k]`` to ``targets[k]``. O(nodes + edges).

    Components are numbered in topological order: no edge leads to a smaller number.
    """
    order = np.argsort(sources, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(sources, minlength=num_nodes)))).tolist()
    reverse = _Tarjan(offsets, np.asarray(targets)[order].tolist()).run()
    found = np.array(reverse, np.int64)
    return found.max(initial=-1) - found  # Tarjan completes a component after all it leads to


class _Tarjan:
    def __init__(self, offsets: list[int], targets: list[int]) -> None:
        n = len(offsets) - 1
        self._offsets, self._targets = offsets, targets
        self._index = [-1] * n
        self._low = [0] * n
        self._edge = offsets[:-1]
        """The next edge to follow of each node."""
        self._component = [-1] * n
        self._open: list[int] = []
        """Nodes that were reached and have no component yet."""
        self._visited = 0
        self._found = 0

    def run(self) -> list[int]:
        for node in range(len(self._index)):
            if self._index[node] < 0:
                self._visit(node)
        return self._component

    def _visit(self, root: int) -> None:
        index, low, component = self._index, self._low, self._component
        edge = self._edge
        path = [root]
        self._enter(root)
        while path:
            node = path[-1]
            if edge[node] < self._offsets[node + 1]:
                target = self._targets[edge[node]]
                edge[node] += 1
                if index[target] < 0:
                    self._enter(target)
                    path.append(target)
                elif component[target] < 0:
                    low[node] = min(low[node], index[target])
                continue
            path.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[node])
            if low[node] == index[node]:
                self._close(node)

    def _enter(self, node: int) -> None:
        self._index[node] = self._low[node] = self._visited
        self._visited += 1
        self._open.append(node)

    def _close(self, root: int) -> None:
        """Everything reached since ``root`` is one component."""
        while True:
            node = self._open.pop()
            self._component[node] = self._found
            if node == root:
                self._found += 1
                return

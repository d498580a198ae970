"""The nodes of the cluster, as far as we were told: what can be slow, be blocked, or die as one."""

from __future__ import annotations

from firesteel.scheduler.kernel.events import ExecutorChanged


class Nodes:
    def __init__(self) -> None:
        self._executors: dict[str, tuple[str, int]] = {}
        self.is_told = False
        """Somebody has spoken of executors: what is not known here is not there."""

    def change(self, event: ExecutorChanged) -> None:
        self.is_told = True
        if event.added:
            self._executors[event.executor] = (event.node or event.host, event.slots)
        else:
            self._executors.pop(event.executor, None)

    @property
    def slots(self) -> dict[str, int]:
        """Task slots of each node."""
        found: dict[str, int] = {}
        for node, slots in self._executors.values():
            found[node] = found.get(node, 0) + slots
        return found

    def __bool__(self) -> bool:
        return bool(self._executors)

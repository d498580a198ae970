"""Keeps the tasks of a job away from blocked nodes, as well as Spark lets us: tells tasks which are blocked, wishes for
places elsewhere, and blocks slots that would only reject what they are given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from firesteel.scheduler.kernel.commands import BlockNodes, Placement
from firesteel.scheduler.kernel.events import ExecutorChanged
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.placement import pools
from firesteel.spark.placement.node_names import NodeNames, locations
from firesteel.spark.placement.slot_blockers import SlotBlockers
from firesteel.spark.storage.cleaning import Cleaner
from firesteel.task.executor import notes as blocklist
from firesteel.task.executor.information import Blob


class Avoidance:
    """Used by the job's thread only."""

    def __init__(self, context: Any, store: Any, job: Blob, job_id: str, *, nodes: NodeNames) -> None:
        self._context, self._store, self._nodes = context, store, nodes
        self._blocked: Collection[str] = ()
        self._slot_blockers = SlotBlockers(context, job, job_id, nodes)
        self._control = Cleaner(store, job_id, "control")
        self._in_order: bool | None = None

    def executor_changed(self, event: ExecutorChanged) -> None:
        if event.added and (event.node or event.host) in self._blocked:
            self._publish()

    def block(self, command: BlockNodes) -> None:
        """Tasks that begin from now on find these nodes blocked, and no others."""
        self._blocked = command.nodes
        self._publish()

    def pool(self, placement: Placement) -> str:
        return pools.urgent(self._context) if placement.urgent else pools.borrow()

    def locations(self, placement: Placement) -> Sequence[str]:
        """Returns the locations at which the tasks should run, as Spark writes them; empty: anywhere."""
        return locations(self._nodes, placement.avoid) if placement.avoid else ()

    def rejected(self, nodes: Iterable[str], at: float) -> list[Decision]:
        """Takes nodes, one for each execution that they rejected, that had a free slot. Returns what was decided of that."""
        if self._in_order is None:
            self._in_order = not pools.is_fair(self._context)
        if self._in_order:  # nothing waits in Spark for their slots
            return []
        return [
            _slot_blocked(node, at) for node in nodes if node in self._blocked and self._slot_blockers.occupy_slot(node)
        ]

    def stop(self, seconds: float) -> None:
        self._slot_blockers.stop(seconds)
        self._control.close()

    def _publish(self) -> None:
        """In a thread, since the storage may be far."""
        signs = self._nodes.signs(self._blocked)
        self._control.call(lambda: blocklist.publish(self._store, signs))


def _slot_blocked(node: str, at: float) -> Decision:
    return Decision(
        at=at,
        what="placement",
        inputs={"node": node},
        rule="what waits for a slot waits for one elsewhere",
        result="slot kept",
        reason=f"{node} is blocked, had a free slot and rejected what it was given: a task that only sleeps keeps the slot",
    )

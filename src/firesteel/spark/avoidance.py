"""Keeps the tasks of a job away from blocked nodes, as well as Spark lets us: tells tasks which are blocked, wishes for
places elsewhere, and plugs slots that would only hand back what they are given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from firesteel.scheduler.commands import BlockNodes, Placement
from firesteel.scheduler.events import ExecutorChanged
from firesteel.scheduler.records import Decision
from firesteel.spark import blocklist, pools
from firesteel.spark.cleaning import Cleaner
from firesteel.spark.information import Blob
from firesteel.spark.nodes import NodeNames
from firesteel.spark.placing import locations
from firesteel.spark.plugs import Plugs


class Avoidance:
    """Used by the job's thread only."""

    def __init__(self, context: Any, store: Any, job: Blob, job_id: str, *, nodes: NodeNames) -> None:
        self._context, self._store, self._nodes = context, store, nodes
        self._blocked: Collection[str] = ()
        self._plugs = Plugs(context, job, job_id, nodes)
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
        """Where the tasks should run, as Spark writes it; empty: anywhere."""
        return locations(self._nodes, placement.avoid) if placement.avoid else ()

    def handed_back(self, nodes: Iterable[str], at: float) -> list[Decision]:
        """These nodes, one for each execution that they handed back, had a free slot. What was decided of that."""
        if self._in_order is None:
            self._in_order = not pools.is_fair(self._context)
        if self._in_order:  # nothing waits in Spark for their slots
            return []
        return [_plugged(node, at) for node in nodes if node in self._blocked and self._plugs.hold(node)]

    def stop(self, seconds: float) -> None:
        self._plugs.stop(seconds)
        self._control.close()

    def _publish(self) -> None:
        """In a thread, since the storage may be far."""
        signs = self._nodes.signs(self._blocked)
        self._control.call(lambda: blocklist.publish(self._store, signs))


def _plugged(node: str, at: float) -> Decision:
    return Decision(
        at=at,
        what="placement",
        inputs={"node": node},
        rule="what waits for a slot waits for one elsewhere",
        result="slot kept",
        reason=f"{node} is blocked, had a free slot and handed back what it was given: a task that only sleeps keeps the slot",
    )

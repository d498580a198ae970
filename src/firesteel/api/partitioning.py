"""How rows travel to the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.api.stream_base import StreamBase
from firesteel.graph.job_graph import ShipStrategy

if TYPE_CHECKING:
    from firesteel.api.data_stream import BroadcastStream, DataStream


class Partitioning(StreamBase):
    """Steps that only say how rows travel."""

    def rebalance(self) -> DataStream:
        """Spreads rows evenly over all subtasks of the next step (all-to-all)."""
        return self._partitioned(ShipStrategy.REBALANCE)

    def rescale(self) -> DataStream:
        """Lets each subtask of the next step read from a few neighbours only (pointwise)."""
        return self._partitioned(ShipStrategy.RESCALE)

    def forward(self) -> DataStream:
        """Gives the next step the same parallelism: subtask k reads what subtask k made."""
        return self._partitioned(ShipStrategy.FORWARD)

    def broadcast(self) -> BroadcastStream:
        """Every subtask of the next step gets all rows."""
        from firesteel.api.data_stream import BroadcastStream

        return BroadcastStream(self._env, self._node, ShipStrategy.BROADCAST, self._sides)

    def global_(self) -> DataStream:
        """One subtask of the next step gets all rows."""
        return self._partitioned(ShipStrategy.GLOBAL)

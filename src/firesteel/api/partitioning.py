"""How rows travel to the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.api.ordering import Ordering
from firesteel.api.steps import require_count, step_at
from firesteel.errors import UsageError
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.operators.passing import Passing, PassingByKey
from firesteel.operators.relational import check_columns

if TYPE_CHECKING:
    from firesteel.api.data_stream import BroadcastStream, DataStream


class Partitioning(Ordering):
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

    # --- PySpark's names ---

    def repartition(self, n: int | str, *columns: str) -> DataStream:
        """The rows spread over exactly ``n`` subtasks, evenly, or by the hash of ``columns``, so that equal ones are together.

        Steps that follow are chained to it, and run in so many subtasks, until one of them sets its own parallelism or
        begins an exchange. ``repartition("k")`` leaves the number to be decided from the bytes. Seldom needed here:
        every exchange spreads its rows by what they weigh.
        """
        with step_at("repartition") as place:
            self._refuse_sides("repartition")
            names, count = (
                ((n, *columns), None) if isinstance(n, str) else (columns, require_count(n, "repartition()", 1))
            )
            check_columns(self.schema, names, "repartition")
            kind = f"repartition({', '.join(map(str, (n, *columns)))})"
            if names:
                made = self._hashed(kind, tuple(dict.fromkeys(names)), place)
            else:
                made = self._passed(kind, ShipStrategy.REBALANCE, place)
            made._node.config.parallelism = count
            return made

    def coalesce(self, n: int) -> DataStream:
        """The rows in exactly ``n`` subtasks, each reading a few neighbours (PySpark's merges partitions, too).

        Not for a default in the place of nulls: that is :meth:`fill_nulls`.
        """
        with step_at("coalesce") as place:
            self._refuse_sides("coalesce")
            if isinstance(n, str):
                raise UsageError("coalesce wants a number of subtasks.", hint="For nulls write fill_nulls(value, ...).")
            made = self._passed(f"coalesce({require_count(n, 'coalesce()', 1)})", ShipStrategy.RESCALE, place)
            made._node.config.parallelism = n
            return made

    def _passed(self, kind: str, ship: ShipStrategy, place: str) -> DataStream:
        work = ChainedStep(Passing(kind), {name: name for name in self.schema.names})
        return self._partitioned(ship)._then(kind, work, self.schema, place)

    def _hashed(self, kind: str, keys: tuple[str, ...], place: str) -> DataStream:
        operator: Any = PassingByKey(kind, keys)
        edge = StreamEdge(self._node, ShipStrategy.HASH, keys)
        work = KeyedStep(operator, operator, (keys,), keys)
        return self._stream(StreamNode(kind, work, self.schema, (edge,), place=place))

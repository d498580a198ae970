"""What every stream is, and what its steps need to make the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from firesteel.api.configurable import Configurable
from firesteel.api.steps import Sides
from firesteel.errors import UsageError
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.stream_graph import StepConfig, StreamEdge, StreamNode, UnionStep, Work

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream
    from firesteel.api.environment import ExecutionEnvironment


class StreamBase(Configurable):
    """Rows of one schema, as they leave one step. The groups of steps that build on it are mixed into ``DataStream``."""

    def __init__(
        self, env: ExecutionEnvironment, node: StreamNode, ship: ShipStrategy | None = None, sides: Sides = ()
    ) -> None:
        """Made by the environment and by the steps, not by users."""
        self._env = env
        self._node = node
        self._ship = ship
        self._sides = sides

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return self._node.schema

    @property
    def columns(self) -> list[str]:
        return list(self._node.schema.names)

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"{type(self).__name__}[{fields}] of {self._node.name}"

    def _repr_html_(self) -> str:
        """In a notebook: its columns and the steps behind it."""
        return self._html(repr(self))

    # --- for the steps ---

    def _html(self, title: str) -> str:
        from firesteel.display.stream import stream_html

        return stream_html(self._node, title)

    def _stream(self, node: StreamNode, ship: ShipStrategy | None = None, sides: Sides = ()) -> DataStream:
        """Another stream of the same environment."""
        from firesteel.api.data_stream import DataStream

        return DataStream(self._env, node, ship, sides)

    def _partitioned(self, ship: ShipStrategy | None) -> DataStream:
        return self._stream(self._node, ship, self._sides)

    def _then(self, kind: str, work: Work, schema: pa.Schema, place: str, *, sides: Sides = ()) -> DataStream:
        return self._stream(StreamNode(kind, work, schema, (self._edge(),), sides, place))

    def _edge(self) -> StreamEdge:
        return StreamEdge(self._node, self._ship)

    def _config(self, what: str) -> StepConfig:
        if self._ship is not None or isinstance(self._node.work, UnionStep):
            step = "union" if self._ship is None else self._ship.value
            raise UsageError(
                f"{what}() behind {step}() has no step to set it on: {step}() only says how rows travel.",
                hint="Set it on the step before or the step after.",
            )
        return self._node.config

    def _refuse_sides(self, kind: str) -> None:
        if self._sides:
            raise UsageError(
                f"with_broadcast({', '.join(f'{name}=...' for name, _ in self._sides)}) is not used: {kind} calls no function.",
                hint="Put it right before a step with a function (map_in_arrow, map_in_pandas, map, flat_map, filter), or key_by with one.",
            )

    def _same_env(self, other: StreamBase) -> None:
        if other._env is not self._env:
            raise UsageError(
                "The streams belong to two environments.", hint="Make both from the same ExecutionEnvironment."
            )

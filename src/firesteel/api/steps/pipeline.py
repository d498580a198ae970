"""The pipeline behind a stream: the functions of this folder take one and return a longer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from firesteel.compile.nodes import unchanged
from firesteel.compile.stream_graph import StepConfig, StreamEdge, StreamNode, UnionStep, Work
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy

if TYPE_CHECKING:
    from firesteel.api.environment import ExecutionEnvironment

Sides = tuple[tuple[str, StreamEdge], ...]
"""Name and edge of each broadcast side input."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The last step of a stream (``node``), how its rows travel to the next step (``ship``; None: as that step needs it), and
    the side inputs of the next step."""

    env: ExecutionEnvironment
    node: StreamNode
    ship: ShipStrategy | None = None
    sides: Sides = ()

    @property
    def schema(self) -> pa.Schema:
        return self.node.schema

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.node.schema.names)

    @property
    def side_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.sides)

    @property
    def unchanged(self) -> dict[str, str]:
        """Output column to input column, for a step that passes every column as it is."""
        return unchanged(self.node.schema)

    def edge(self) -> StreamEdge:
        return StreamEdge(self.node, self.ship)

    def at(self, node: StreamNode) -> Pipeline:
        """Another step of the same environment."""
        return Pipeline(self.env, node)

    def partitioned(self, ship: ShipStrategy | None) -> Pipeline:
        return Pipeline(self.env, self.node, ship, self.sides)

    def then(self, kind: str, work: Work, schema: pa.Schema, place: str, *, with_sides: bool = False) -> Pipeline:
        """The pipeline with one more step, which reads the last one. ``with_sides``: and the side inputs."""
        return self.at(StreamNode(kind, work, schema, (self.edge(),), self.sides if with_sides else (), place))

    def or_by_spark(self, other: Pipeline) -> Pipeline:
        """The same rows; where the engine gives up on them, ``other`` gives them."""
        return self.at(replace(self.node, instead=other.node))

    def left_to_spark(self, reasons: Sequence[str]) -> Pipeline:
        """The same rows, of which Spark computes a part, for these reasons."""
        return self.at(replace(self.node, left_to_spark=tuple(reasons)))

    def config(self, setting: str) -> StepConfig:
        """The settings of the last step. Raises UsageError behind a partitioning or a union, which are not steps."""
        if self.ship is not None or isinstance(self.node.work, UnionStep):
            step = "union" if self.ship is None else self.ship.value
            raise UsageError(
                f"{setting}() behind {step}() has no step to set it on: {step}() only says how rows travel.",
                hint="Set it on the step before or the step after.",
            )
        return self.node.config

    def refuse_sides(self, kind: str) -> None:
        """Raises UsageError if there are side inputs: a step that calls no function has no use for them."""
        if self.sides:
            raise UsageError(
                f"with_broadcast({', '.join(f'{name}=...' for name in self.side_names)}) is not used: {kind} takes no side inputs.",
                hint="Put it right before a step with a function (map_in_arrow, map_in_pandas, map, flat_map, filter), or key_by with one.",
            )

    def as_html(self, title: str) -> str:
        """For a notebook: the columns and the steps behind them."""
        from firesteel.view.notebook.stream import stream_html  # only notebooks need it

        return stream_html(self.node, title)

    def check_same_environment(self, other: Pipeline) -> None:
        if other.env is not self.env:
            raise UsageError(
                "The streams belong to two environments.", hint="Make both from the same ExecutionEnvironment."
            )


def pipeline_of(stream: object) -> Pipeline | None:
    """The pipeline behind a DataStream; None for any other object."""
    found = getattr(stream, "_pipeline", None)
    return found if isinstance(found, Pipeline) else None

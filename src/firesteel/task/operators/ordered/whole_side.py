"""Joins of a stream with a side input that is whole in memory: ordered joins that have no keys to divide their sides by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa

from firesteel.task.batches import chunked
from firesteel.task.operators.join import HashJoin
from firesteel.task.operators.units import unit_limit
from firesteel.task.program import Batches, KeyedOperator, TaskContext


class OrderedJoin(KeyedOperator, Protocol):
    """``join`` says what comes out, and the schemas of both sides."""

    @property
    def join(self) -> HashJoin: ...

    def against_one(self, lefts: Iterator[pa.Table], right: pa.Table) -> Batches:
        """The right side in memory, the left one streamed."""
        ...


@dataclass(frozen=True, slots=True)
class WholeSide:
    """The stream is the left side of ``join``, which has no keys; the right one is the side input ``side``."""

    join: OrderedJoin
    side: str
    unitwise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.join.name

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        half = max(unit_limit(ctx) // 2, 1)
        lefts = chunked(batches, self.join.join.left_schema, half, 1 << 30)
        return self.join.against_one(lefts, ctx.side_inputs[self.side])

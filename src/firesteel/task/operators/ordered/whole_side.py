"""Joins of a stream, the left side, with a right side that the task has whole: the left rows need no exchange."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import pyarrow as pa

from firesteel.task.batches import chunked
from firesteel.task.operators.join import HashJoin, is_held
from firesteel.task.operators.ordered.pairs import flat
from firesteel.task.operators.units import run_unit, spool, unit_limit
from firesteel.task.program import Batches, BuildInput, KeyedOperator, TaskContext

STREAMED = ("inner", "left", "semi", "anti")
"""Kinds of which no right row without a partner comes out, which each task would give."""


class OrderedJoin(KeyedOperator, Protocol):
    """``join`` says what comes out, and the schemas of both sides."""

    @property
    def join(self) -> HashJoin: ...

    def against_one(self, lefts: Iterator[pa.Table], right: pa.Table) -> Batches:
        """The right side in memory, the left one streamed."""
        ...


@dataclass(frozen=True, slots=True)
class _AgainstWhole:
    """``side``: names the right side in the task."""

    join: OrderedJoin
    side: str
    unitwise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.join.name

    def _streamed(self, batches: Batches, right: pa.Table, ctx: TaskContext) -> Batches:
        lefts = chunked(batches, self.join.join.left_schema, max(unit_limit(ctx) // 2, 1), 1 << 30)
        return self.join.against_one(lefts, right)


class WholeSide(_AgainstWhole):
    """Without keys: the right side is the side input ``side``, in memory whatever its size."""

    __slots__ = ()

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        return self._streamed(batches, ctx.side_inputs[self.side], ctx)


class BroadcastOrderedJoin(_AgainstWhole):
    """With keys: the right side is the build side ``side``. One that the task cannot hold is joined as a keyed unit is, both sides in buckets on
    local disk."""

    __slots__ = ()

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        build = ctx.builds[self.side]
        if is_held(self.side, ctx):
            name = f"{build.identity}-rows"
            whole = ctx.shared.get_all({name: partial(_rows, build)})[name]
            yield from self._streamed(batches, whole, ctx)
            return
        spooled = spool(batches, self.join.join.left_schema, ctx)
        try:
            yield from run_unit(self.join, [spooled, ctx.builds[self.side].unit], ctx)
        finally:
            spooled.close()


def _rows(build: BuildInput) -> pa.Table:
    return flat(build.unit.table())

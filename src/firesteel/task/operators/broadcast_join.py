"""The join of a stream with a build side that every task holds whole: the stream needs no exchange.

The same rows as ``join.HashJoin`` gives for the same inputs, in the order of the stream. A build side beyond the task's memory is
joined as a keyed unit is: both sides hashed into buckets on local disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from firesteel.results.keys import common_key_type
from firesteel.task.batches import chunked
from firesteel.task.operators.build_side import BuildSide, SideKeys, loaded
from firesteel.task.operators.join import HashJoin, divisible_sides, emit, flat, pairs_at_once
from firesteel.task.operators.key_index import Numbers, Rows
from firesteel.task.operators.units import run_unit, spool
from firesteel.task.program import Batches, TaskContext

LEFT, RIGHT = 0, 1
PROBE_BYTES, PROBE_ROWS = 4 << 20, 1 << 17
"""Of the stream, looked up at once."""


def build_sides(how: str) -> tuple[int, ...]:
    """Returns the inputs of a join of this kind that may be given whole to every task: those of which no row without a match comes out."""
    divisible = divisible_sides(how)
    return tuple(side for side in (LEFT, RIGHT) if divisible[1 - side])


@dataclass(frozen=True, slots=True)
class BroadcastJoin:
    """Joins its stream with the build side ``side`` of the task, which is the join's input ``build``."""

    join: HashJoin
    build: int
    side: str
    unitwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.build not in build_sides(self.join.how):
            raise ValueError(
                f"A {self.join.how} join cannot be done with input {self.build} given whole to every task."
            )

    @property
    def name(self) -> str:
        return self.join.name

    @property
    def keys(self) -> SideKeys:
        """The build side's."""
        join = self.join
        types = tuple(
            common_key_type(join.left_schema.field(a).type, join.right_schema.field(b).type)
            for a, b in zip(join.left_keys, join.right_keys, strict=True)
        )
        if self.build == RIGHT:
            return SideKeys(self.side, join.right_keys, types, join.right_schema)
        return SideKeys(self.side, join.left_keys, types, join.left_schema)

    @property
    def probe_keys(self) -> tuple[str, ...]:
        return self.join.left_keys if self.build == RIGHT else self.join.right_keys

    @property
    def probe_schema(self) -> pa.Schema:
        return self.join.left_schema if self.build == RIGHT else self.join.right_schema

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        (side,) = loaded([self.keys], ctx)
        yield from self.against(side, batches, ctx)

    def against(self, side: BuildSide | None, batches: Batches, ctx: TaskContext) -> Batches:
        """``side``: None where the task cannot hold it."""
        if side is None:
            yield from self._in_buckets(batches, ctx)
            return
        for probe in chunked(batches, self.probe_schema, PROBE_BYTES, PROBE_ROWS):
            yield from self._joined(side, flat(probe))

    def _joined(self, side: BuildSide, probe: pa.Table) -> Batches:
        """The join's rows for these of the stream."""
        numbers = side.find([probe.column(name) for name in self.probe_keys])
        how = self.join.how
        if how in ("semi", "anti"):
            yield from emit(probe, np.flatnonzero((numbers >= 0) == (how == "semi")))
        elif self.build == RIGHT:
            for probes, rows in _pairs(side, probe, numbers, keep=how == "left"):
                yield self.join.joined(probe, probes, side.table, rows)
        else:
            for probes, rows in _pairs(side, probe, numbers, keep=False):
                yield self.join.joined(side.table, rows, probe, probes)
            if how == "right":
                yield from self.join.only_right(probe, np.flatnonzero(numbers < 0))

    def _in_buckets(self, batches: Batches, ctx: TaskContext) -> Batches:
        held = ctx.builds[self.side].unit
        spooled = spool(batches, self.probe_schema, ctx)
        try:
            inputs = [spooled, held] if self.build == RIGHT else [held, spooled]
            yield from run_unit(self.join, inputs, ctx)
        finally:
            spooled.close()


def _pairs(side: BuildSide, probe: pa.Table, numbers: Numbers, *, keep: bool) -> Iterator[tuple[Rows, Rows]]:
    return side.index.rows.pairs(numbers, min(side.at_once, pairs_at_once(probe)), keep=keep)

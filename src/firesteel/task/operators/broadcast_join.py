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
from firesteel.task.operators.grouping import Codes, normalised
from firesteel.task.operators.join import HashJoin, divisible_sides, emit, flat, pairs_at_once
from firesteel.task.operators.key_index import KeyIndex, Rows
from firesteel.task.operators.units import run_unit, spool
from firesteel.task.program import Batches, TaskContext, UnitInput

LEFT, RIGHT = 0, 1
_PROBE_BYTES, _PROBE_ROWS = 4 << 20, 1 << 17


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

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        held = ctx.builds[self.side]
        if held.nbytes <= build_limit(ctx):
            return self._against_table(batches, held.table())
        return self._in_buckets(batches, held, ctx)

    @property
    def _probe_schema(self) -> pa.Schema:
        return self.join.left_schema if self.build == RIGHT else self.join.right_schema

    def _against_table(self, batches: Batches, table: pa.Table) -> Batches:
        build = _Build(self, flat(table))
        for probe in chunked(batches, self._probe_schema, _PROBE_BYTES, _PROBE_ROWS):
            yield from build.joined(flat(probe))

    def _in_buckets(self, batches: Batches, held: UnitInput, ctx: TaskContext) -> Batches:
        spooled = spool(batches, self._probe_schema, ctx)
        try:
            inputs = [spooled, held] if self.build == RIGHT else [held, spooled]
            yield from run_unit(self.join, inputs, ctx)
        finally:
            spooled.close()


def build_limit(ctx: TaskContext) -> int:
    """Plain bytes of one build side that is held in memory, with its index: a quarter of the task's budget for all of them."""
    return ctx.memory_budget // (4 * max(len(ctx.builds), 1))


class _Build:
    """The side that is held, with the index of its keys."""

    def __init__(self, operator: BroadcastJoin, table: pa.Table) -> None:
        self._join, self._is_right, self._table = operator.join, operator.build == RIGHT, table
        join = operator.join
        types = [
            common_key_type(join.left_schema.field(a).type, join.right_schema.field(b).type)
            for a, b in zip(join.left_keys, join.right_keys, strict=True)
        ]
        own, other = (join.right_keys, join.left_keys) if self._is_right else (join.left_keys, join.right_keys)
        self._probe_keys = list(zip(other, types, strict=True))
        self._index = KeyIndex([normalised(table.column(name), to) for name, to in zip(own, types, strict=True)])
        self._at_once = pairs_at_once(table)

    def joined(self, probe: pa.Table) -> Batches:
        """The join's rows for these of the stream."""
        codes = self._index.codes([normalised(probe.column(name), to) for name, to in self._probe_keys])
        how = self._join.how
        if how in ("semi", "anti"):
            matched = self._index.rows.matches(codes) > 0
            yield from emit(probe, np.flatnonzero(matched == (how == "semi")))
        elif self._is_right:
            for probes, rows in self._pairs(probe, codes, keep=how == "left"):
                yield self._join.joined(probe, probes, self._table, rows)
        else:
            for probes, rows in self._pairs(probe, codes, keep=False):
                yield self._join.joined(self._table, rows, probe, probes)
            if how == "right":
                yield from self._join.only_right(probe, np.flatnonzero(self._index.rows.matches(codes) == 0))

    def _pairs(self, probe: pa.Table, codes: Codes, *, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        at_once = min(self._at_once, pairs_at_once(probe))
        return self._index.rows.pairs(codes, at_once, keep=keep)

"""Several keyed operators as one: for consecutive steps on the same keys, and for a union in front of one.

Their inputs already lie in the same subpartitions, so that the second needs no exchange of its own: it takes what the
first made of the unit at hand. An input of an operator is a list of feeds, read one after another (several: a union);
a feed is a gate of the vertex or another operator with the stateless steps behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, cast

import pyarrow as pa

from firesteel.task.batches import closing, coalesce, whole
from firesteel.task.operators.units import SpoolInput, run_unit, spool
from firesteel.task.program import Batches, KeyedOperator, Operator, TaskContext, UnitInput


@dataclass(frozen=True, slots=True)
class FromGate:
    """``gate``: position among the head's gates."""

    gate: int


@dataclass(frozen=True, slots=True)
class FromOperator:
    """``inputs``: per input of ``operator`` its feeds. ``behind``: unitwise operators applied to what it gives."""

    operator: KeyedOperator
    inputs: tuple[tuple[Feed, ...], ...]
    schemas: tuple[pa.Schema, ...]
    """Per input, what it reads."""
    behind: tuple[Operator, ...] = ()

    @property
    def reads_gates_only(self) -> bool:
        return all(isinstance(feed, FromGate) for feeds in self.inputs for feed in feeds)


Feed = FromGate | FromOperator


def tree_of(operator: KeyedOperator, schemas: Sequence[pa.Schema]) -> FromOperator:
    """A head's operator as a tree. ``schemas``: of its gates."""
    if isinstance(operator, ComposedOperator):
        return operator.root
    gates = len(operator.keys)
    return FromOperator(operator, tuple((FromGate(gate),) for gate in range(gates)), tuple(schemas[:gates]))


@dataclass(frozen=True, slots=True)
class ComposedOperator:
    """A keyed operator made of others. ``keys``: per gate, the columns it is partitioned by."""

    name: str
    keys: tuple[tuple[str, ...], ...]
    root: FromOperator
    unitwise: ClassVar[bool] = False

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        """Returns True if a unit of these sizes per gate need not be cut: all operators that read gates can work on more."""
        return _accepts(self.root, nbytes, limit)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return _run(self.root, inputs, ctx)


def _accepts(node: FromOperator, nbytes: list[int], limit: int) -> bool:
    sizes = [sum(nbytes[feed.gate] for feed in feeds if isinstance(feed, FromGate)) for feeds in node.inputs]
    if sum(sizes) > limit:
        accepts = getattr(node.operator, "accepts", None)
        if accepts is None or not accepts(sizes, limit):
            return False
    inner = (feed for feeds in node.inputs for feed in feeds)
    return all(_accepts(feed, nbytes, limit) for feed in inner if isinstance(feed, FromOperator))


def _run(node: FromOperator, gates: list[UnitInput], ctx: TaskContext) -> Batches:
    """Yields the node's output for this unit. Output of inner operators is spooled, to disk beyond a unit's size."""
    with ExitStack() as stack:
        inputs = [
            _input(feeds, schema, gates, ctx, stack) for feeds, schema in zip(node.inputs, node.schemas, strict=True)
        ]
        batches = (
            node.operator.apply_unit(inputs, ctx) if node.reads_gates_only else run_unit(node.operator, inputs, ctx)
        )
        for operator in node.behind:
            batches = operator.apply(batches, ctx)
        stack.callback(closing, batches)
        yield from batches


def _input(
    feeds: tuple[Feed, ...], schema: pa.Schema, gates: list[UnitInput], ctx: TaskContext, stack: ExitStack
) -> UnitInput:
    units: list[UnitInput] = []
    for feed in feeds:
        if isinstance(feed, FromGate):
            units.append(gates[feed.gate])
        else:
            spooled = _spooled(_run(feed, gates, ctx), schema, ctx)
            stack.callback(spooled.close)
            units.append(cast(UnitInput, spooled))
    return units[0] if len(units) == 1 else cast(UnitInput, UnitedInput(units, schema))


def _spooled(batches: Batches, schema: pa.Schema, ctx: TaskContext) -> SpoolInput:
    try:
        return spool(coalesce(batches), schema, ctx)
    finally:
        closing(batches)


class UnitedInput:
    """Several inputs of a unit, read one after another."""

    def __init__(self, units: Sequence[UnitInput], schema: pa.Schema) -> None:
        self.schema = schema
        self._units = units

    @property
    def nbytes(self) -> int:
        return sum(unit.nbytes for unit in self._units)

    def batches(self) -> Iterator[Any]:
        return chain.from_iterable(unit.batches() for unit in self._units)

    def table(self) -> pa.Table:
        return whole(self.batches(), self.schema)

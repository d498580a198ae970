"""Several keyed operators as one: for consecutive steps on the same keys, and for a union in front of one.

Their inputs already lie in the same subpartitions, so that the second needs no exchange of its own: it takes what the
first made of the unit at hand. An input of an operator is a list of feeds, read one after another (several: a union);
a feed is a gate of the vertex or another operator with the stateless steps behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, cast

import pyarrow as pa

from firesteel.task.batches import closing, coalesce, whole
from firesteel.task.operators.fragments import (
    KeyedQuery,
    Rows,
    Statement,
    added_of,
    are_one,
    computes,
    may_follow,
    query_of,
    through,
)
from firesteel.task.operators.units import SpoolInput, run_unit, spool, takes_any_size
from firesteel.task.program import Batches, Head, KeyedHead, KeyedOperator, Operator, TaskContext, UnitInput


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

    @property
    def any_size(self) -> bool:
        """Its units need not be cut: all operators that read gates take any."""
        return _any_size(self.root)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return _run(self.root, inputs, ctx)


# --- as one statement -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyedTree:
    """Keyed queries of which some read what others give, as one. ``keys``, ``reads``, ``added``: per gate."""

    name: str
    keys: tuple[tuple[str, ...], ...]
    root: FromOperator
    reads: tuple[pa.Schema, ...]
    added: tuple[Any, ...]
    computes: bool

    @property
    def schema(self) -> pa.Schema:
        return _last(self.root).schema

    @property
    def raises(self) -> bool:
        return getattr(_last(self.root), "raises", False)

    def of(self, inputs: Sequence[Rows], nbytes: Sequence[int], statement: Statement) -> Rows:
        return self._made(self.root, inputs, nbytes, statement)[0]

    def _made(
        self, node: FromOperator, gates: Sequence[Rows], nbytes: Sequence[int], statement: Statement
    ) -> tuple[Rows, int]:
        inputs: list[Rows] = []
        sizes: list[int] = []
        for feeds, schema in zip(node.inputs, node.schemas, strict=True):
            found = [
                (gates[feed.gate], nbytes[feed.gate])
                if isinstance(feed, FromGate)
                else self._made(feed, gates, nbytes, statement)
                for feed in feeds
            ]
            inputs.append(found[0][0] if len(found) == 1 else statement.union([rows for rows, _ in found], schema))
            sizes.append(sum(size for _, size in found))
        operator: Any = node.operator
        return through(_behind(node) or (), operator.of(inputs, sizes, statement), statement), sum(sizes)


def as_one(head: Head) -> Head:
    """The same with a composed operator as one query, if it is made of queries that may be one statement; else as it is."""
    if not isinstance(head, KeyedHead) or not isinstance(head.operator, ComposedOperator):
        return head
    operator, gates = head.operator, len(head.operator.keys)
    reads: list[Any] = [None] * gates
    added: list[Any] = [()] * gates
    parts: list[Any] = []
    if not _collect(operator.root, reads, added, parts) or None in reads or not are_one(parts):
        return head
    tree = KeyedTree(operator.name, operator.keys, operator.root, tuple(reads), tuple(added), computes(parts))
    return replace(head, operator=cast(KeyedOperator, tree))


def _collect(node: FromOperator, reads: list[Any], added: list[Any], parts: list[Any]) -> bool:
    """Notes what the gates' rows are read as, and all parts. False: it cannot be one statement."""
    behind = _behind(node)
    if not isinstance(node.operator, KeyedQuery) or behind is None:
        return False
    wanted = added_of(node.operator) or [()] * len(node.inputs)
    for feeds, schema, more in zip(node.inputs, node.schemas, wanted, strict=True):
        for feed in feeds:
            if isinstance(feed, FromOperator):
                if more or getattr(_last(feed), "raises", False) or not _collect(feed, reads, added, parts):
                    return False
            elif reads[feed.gate] is not None or (more and len(feeds) > 1):
                return False
            else:
                reads[feed.gate], added[feed.gate] = schema, more
    parts += [node.operator, *behind]
    return True


def _behind(node: FromOperator) -> list[Any] | None:
    """The queries behind its operator; None where one is no query, or not in one statement with those before it."""
    run: list[Any] = [node.operator]
    for operator in node.behind:
        part = query_of(operator, run)
        if part is None or not may_follow(run, part):
            return None
        run.append(part)
    return run[1:]


def _last(node: FromOperator) -> Any:
    return node.behind[-1] if node.behind else node.operator


def _any_size(node: FromOperator) -> bool:
    feeds = [feed for feeds in node.inputs for feed in feeds]
    inner = [feed for feed in feeds if isinstance(feed, FromOperator)]
    return (len(inner) == len(feeds) or takes_any_size(node.operator)) and all(map(_any_size, inner))


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

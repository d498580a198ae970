"""The program of two steps in one vertex, made of the programs of both when the second absorbs the first (``model.absorbing``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from firesteel.task.operators.composed import ComposedOperator, Feed, FromGate, FromOperator, tree_of
from firesteel.task.program import Head, KeyedHead, KeyedOperator, Operator, VertexProgram


@dataclass(frozen=True, slots=True)
class Undivided:
    """Both steps were made of one by the compiler: this is the one."""

    head: Head
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Unexchanged:
    """The second step is by the same keys. ``direct``: its operator on rows that have not been combined for an exchange, of this
    ``schema``."""

    direct: KeyedOperator
    schema: pa.Schema


InOneStep = Undivided | Unexchanged


def in_one_step(first: VertexProgram, second: VertexProgram, how: InOneStep) -> VertexProgram:
    """The program of the second step that does the work of both. It reads the first one's inputs, then its own but for the first."""
    moved = len(first.gate_schemas) - 1
    if isinstance(how, Undivided):
        head, operators = how.head, how.operators
    else:
        head, operators = _unexchanged(first, second, how), second.operators
    return replace(
        second,
        head=head,
        operators=operators,
        gate_schemas=(*first.gate_schemas, *second.gate_schemas[1:]),
        gate_orders=(*first.orders, *second.orders[1:]),
        side_inputs=tuple((name, gate + moved) for name, gate in second.side_inputs),
    )


def _unexchanged(first: VertexProgram, second: VertexProgram, how: Unexchanged) -> KeyedHead:
    assert isinstance(first.head, KeyedHead) and isinstance(second.head, KeyedHead)
    before = tree_of(first.head.operator, first.gate_schemas)
    before = replace(before, behind=(*before.behind, *first.operators))
    own = tree_of(second.head.operator, second.gate_schemas)
    moved = len(first.head.gates) - 1
    name = f"{first.head.operator.name} -> {second.head.operator.name}"
    keys = (*first.head.operator.keys, *second.head.operator.keys[1:])
    composed = ComposedOperator(name, keys, _behind(own, before, how, moved))
    return KeyedHead(composed, tuple(range(len(keys))))


def _behind(node: FromOperator, before: FromOperator, how: Unexchanged, moved: int) -> FromOperator:
    """The tree ``node`` with all gates ``moved`` on, and ``before`` in the place of its first gate."""

    def feed(one: Feed) -> Feed:
        if isinstance(one, FromOperator):
            return _behind(one, before, how, moved)
        return before if one.gate == 0 else FromGate(one.gate + moved)

    inputs = tuple(tuple(feed(one) for one in feeds) for feeds in node.inputs)
    if not _reads_first_gate(node.inputs):
        return replace(node, inputs=inputs)
    return replace(node, operator=how.direct, inputs=inputs, schemas=(how.schema, *node.schemas[1:]))


def _reads_first_gate(inputs: Sequence[Sequence[Feed]]) -> bool:
    return any(isinstance(one, FromGate) and one.gate == 0 for feeds in inputs for one in feeds)

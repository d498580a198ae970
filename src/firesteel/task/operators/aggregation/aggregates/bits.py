"""Bits of all integers of a group, put together by and, or, exclusive or. Nulls do not count; of none: null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from firesteel.task.operators.aggregation.aggregates.aggregate import Mask, Members, numbers, plain_type, require

_UFUNCS = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}


@dataclass(frozen=True, slots=True)
class Bits:
    """State and aggregate in one: ``kind`` is bit_and, bit_or or bit_xor. The type is the column's."""

    kind: str
    column: str
    kept: pa.DataType | None = None

    def state(self, schema: pa.Schema) -> Bits:
        return Bits(self.kind, self.column, self.type(schema))

    def type(self, schema: pa.Schema) -> pa.DataType:
        type_ = plain_type(schema.field(self.column).type)
        require(pa.types.is_integer(type_), self.kind, self.column, schema, "whole numbers")
        return type_

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        assert self.kept is not None
        return (self.kept,)

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        mask = ~(taken & np.asarray(inputs[0].is_valid()))
        return [pa.array(numbers(inputs[0]), inputs[0].type, mask=mask)]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        rows = np.flatnonzero(np.asarray(states[0].is_valid()))
        values, members = numbers(states[0])[rows], members.of(rows)
        found = np.zeros(members.n, dtype=values.dtype)
        if self.kind == "bit_and":
            found = ~found
        _UFUNCS[self.kind].at(found, members.codes, values)
        return [pa.array(found, self.types[0], mask=np.bincount(members.codes, minlength=members.n) == 0)]

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]

"""The build side of a broadcast join: its rows and the index of their keys, made once per executor where its disk allows it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.model import build_memory
from firesteel.task.batches import one_chunk
from firesteel.task.operators.grouping import normalised
from firesteel.task.operators.join import flat, pairs_at_once
from firesteel.task.operators.key_index import KeyIndex, Numbers
from firesteel.task.program import BuildInput, TaskContext


@dataclass(frozen=True, slots=True)
class SideKeys:
    """``side``: name of the build side among ``TaskContext.builds``. ``types``: of its normalised key columns.
    ``schema``: of its rows."""

    side: str
    keys: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class BuildSide:
    """Plain data, to be pickled. ``table``: each column in one chunk. ``at_once``: rows of a join's output per batch, for its part."""

    table: pa.Table
    index: KeyIndex
    types: tuple[pa.DataType, ...]
    at_once: int

    @classmethod
    def of(cls, table: pa.Table, keys: SideKeys, spare: int = 0) -> BuildSide:
        """``spare``: bytes that the index may take."""
        table = flat(table)
        columns = [normalised(table.column(name), to) for name, to in zip(keys.keys, keys.types, strict=True)]
        return cls(table, KeyIndex(columns, spare), keys.types, pairs_at_once(table))

    def find(self, columns: Sequence[Any]) -> Numbers:
        """Returns the number of each row's key in the index. ``columns``: keys as the stream has them."""
        arrays = [one_chunk(column) for column in columns]
        if len(arrays) == 1 and pa.types.is_dictionary(arrays[0].type) and len(arrays[0].dictionary) < len(arrays[0]):
            return self._find_dictionary(arrays[0])
        return self.index.find([normalised(array, to) for array, to in zip(arrays, self.types, strict=True)])

    def _find_dictionary(self, array: Any) -> Numbers:
        """Each value is looked up once."""
        numbers = np.append(self._find_values(array.dictionary), -1)
        indices = array.indices
        return numbers[np.asarray(indices.cast(pa.int64()).fill_null(-1) if indices.null_count else indices)]

    def _find_values(self, values: pa.Array) -> Numbers:
        return self.index.find([normalised(values, self.types[0])])


def loaded(wanted: Sequence[SideKeys], ctx: TaskContext) -> list[BuildSide | None]:
    """The build sides, in this order; None for one that the task cannot hold."""
    names = [_name(keys, ctx.builds[keys.side]) for keys in wanted]
    found: dict[str, BuildSide] = ctx.shared.known(names)
    if len(found) < len(set(names)):
        spare = _spare(ctx)
        makers = {
            name: partial(_made, ctx.builds[keys.side], keys, spare[keys.side])
            for name, keys in zip(names, wanted, strict=True)
            if keys.side in spare
        }
        found |= ctx.shared.get_all(makers)
    return [found.get(name) for name in names]


def rows_of_side(side: str, ctx: TaskContext) -> pa.Table | None:
    """The rows of a build side, without an index; None where the task cannot hold them."""
    build = ctx.builds[side]
    if side not in _that_fit(ctx):
        return None
    name = f"{build.identity}-rows"
    return ctx.shared.get_all({name: partial(_rows_of, build)})[name]


def _rows_of(build: BuildInput) -> pa.Table:
    return flat(build.unit.table())


def _that_fit(ctx: TaskContext) -> list[str]:
    """The build sides that the task can hold, all together."""
    fits = build_memory.that_fit(_held(ctx), ctx.memory_budget)
    return [side for side, fit in zip(ctx.builds, fits, strict=True) if fit]


def _held(ctx: TaskContext) -> list[int]:
    return [build_memory.held_bytes(build.unit.nbytes, build.rows) for build in ctx.builds.values()]


def _spare(ctx: TaskContext) -> dict[str, int]:
    """Of each side that the task can hold, the bytes that its index may take."""
    held = _held(ctx)
    left = max(build_memory.limit(ctx.memory_budget) - sum(held), 0) // max(len(held), 1)
    return {side: left + build_memory.INDEX_ROW_BYTES * ctx.builds[side].rows for side in _that_fit(ctx)}


def _made(build: BuildInput, keys: SideKeys, spare: int) -> BuildSide:
    return BuildSide.of(build.unit.table(), keys, spare)


def _name(keys: SideKeys, build: BuildInput) -> str:
    """All that the rows and their index depend on."""
    words = [keys.side, *keys.keys, *map(str, keys.types), keys.schema.to_string()]
    return f"{build.identity}-{hashlib.blake2b(repr(words).encode(), digest_size=8).hexdigest()}"

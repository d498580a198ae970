"""A source narrowed to what the keys of finished inputs can match, and its vertex' program with it.

Few keys go into the source as a condition, so that partitions, row groups and rows without them are not read; of many their least and
greatest do, in a few ranges. Where rows go on to an exchange, those that a Bloom filter of the whole keys rules out are dropped too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import Split, push_down
from firesteel.humanize import plural
from firesteel.model.job_graph import RuntimeFilter
from firesteel.results.keys import common_key_type
from firesteel.task.expressions import any_of
from firesteel.task.operators.key_filter import BloomFilter, KeyFilter, key_hashes
from firesteel.task.program import Operator, SourceHead, VertexProgram

MOST_VALUES = 4096
"""Keys of a column up to which the source is told each of them."""
MOST_RANGES = 16
_FEW = 32
"""Values that Arrow itself holds against the statistics of a row group; of more it is told ranges."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a finished input. ``rows``: the key columns, in the order of ``filter.keys``. ``is_held``: the vertex itself reads
    that input whole, and joins with it."""

    filter: RuntimeFilter
    rows: pa.Table
    is_held: bool


@dataclass(frozen=True, slots=True)
class Narrowed:
    """``splits``: None: no split is left out, and the source stays as it was. ``found``: as ``SourceNarrowed.found``."""

    source: Any
    splits: list[Split] | None
    operators: tuple[Operator, ...]
    found: str

    def program(self, program: VertexProgram) -> VertexProgram:
        """The vertex' program with the narrowed source."""
        return replace(program, head=SourceHead(self.source), operators=(*self.operators, *program.operators))


def narrowed(source: Any, splits: Sequence[Split], keys: Sequence[Keys], volume: int) -> Narrowed:
    """``splits``: all that the source has now; ``volume``: bytes per task. Raises FiresteelError where splits cannot be listed."""
    found = [_words(known) for known in keys]
    if not all(_any_key(known.rows) for known in keys):
        return Narrowed(source, [], (), f"no row of {found[0]} has a key" if len(found) == 1 else "a side has no key")
    said = " and ".join(found)
    operators = tuple(_key_filter(source.schema, known) for known in keys if not known.is_held)
    smaller: Any = source
    for condition in (condition for known in keys for condition in _conditions(source.schema, known)):
        smaller = push_down(smaller, None, condition)  # one by one: statistics tell more of what looks at one column
    if smaller is not source:
        left: list[Split] = list(smaller.list_splits(volume))
        if sum(split.bytes for split in left) < sum(split.bytes for split in splits):
            return Narrowed(smaller, left, operators, f"the rest has no key of {said}")
    return Narrowed(source, None, operators, f"every split may have keys of {said}")


def _any_key(rows: pa.Table) -> bool:
    """Returns whether any row could match: one with a null matches nothing."""
    return rows.drop_null().num_rows > 0


def _key_filter(schema: pa.Schema, known: Keys) -> KeyFilter:
    columns = known.filter.columns
    types = tuple(
        common_key_type(field.type, schema.field(name).type)
        for field, name in zip(known.rows.schema, columns, strict=True)
    )
    rows = known.rows.drop_null()
    return KeyFilter("runtime filter", columns, types, BloomFilter.of(key_hashes(rows.columns, types)))


def _conditions(schema: pa.Schema, known: Keys) -> Iterable[pc.Expression]:
    for column, field in zip(known.filter.columns, known.rows.schema, strict=True):
        values = _values(known.rows.column(field.name), schema.field(column).type)
        if values is not None:
            yield _condition(column, values)


def _values(keys: pa.ChunkedArray, to: pa.DataType) -> pa.Array | None:
    """The different keys, ascending, in the type of the source's column; None for types whose values are not surely equal where
    their keys are."""
    keys = keys.cast(keys.type.value_type) if pa.types.is_dictionary(keys.type) else keys
    unique = keys.unique().drop_null()
    if pa.types.is_integer(to) and pa.types.is_integer(keys.type):
        unique = _in_range(unique, to)
    elif keys.type != to or not _is_exact(to):
        return None
    return unique.take(pc.array_sort_indices(unique))


def _in_range(values: pa.Array, to: pa.DataType) -> pa.Array:
    """The integers among them that the type has."""
    about = np.iinfo(to.to_pandas_dtype())
    numbers = np.asarray(values)
    least, most = max(about.min, np.iinfo(numbers.dtype).min), min(about.max, np.iinfo(numbers.dtype).max)
    return pa.array(numbers[(numbers >= least) & (numbers <= most)]).cast(to)


def _is_exact(kind: pa.DataType) -> bool:
    types = pa.types
    same = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_date
    return types.is_timestamp(kind) or types.is_decimal(kind) or any(is_same(kind) for is_same in same)


def _condition(column: str, values: pa.Array) -> pc.Expression:
    field = pc.field(column)
    if not len(values):
        return field.isin(values)
    exact = field.isin(values)
    if len(values) <= _FEW:
        return exact
    ranges = any_of([(field >= low) & (field <= high) for low, high in _ranges(values)])
    return ranges & exact if len(values) <= MOST_VALUES else ranges


def _ranges(values: pa.Array) -> list[tuple[pa.Scalar, pa.Scalar]]:
    """Few ranges that hold all of the values (ascending), apart where the widest gaps are; of what has no distances one."""
    numbers = _numbers(values)
    cuts = [] if numbers is None else np.sort(np.argsort(np.diff(numbers))[-(MOST_RANGES - 1) :]).tolist()
    begins, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(values) - 1]
    return [(values[begin], values[end]) for begin, end in zip(begins, ends, strict=True)]


def _numbers(values: pa.Array) -> np.ndarray[Any, Any] | None:
    types, kind = pa.types, values.type
    if types.is_integer(kind):
        return np.asarray(values).astype(np.float64)
    if types.is_date32(kind):
        return np.asarray(values.cast(pa.int32())).astype(np.float64)
    if types.is_timestamp(kind) or types.is_date64(kind):
        return np.asarray(values.cast(pa.int64())).astype(np.float64)
    return None


def _words(known: Keys) -> str:
    column, *others = known.filter.columns
    more = f" and {plural(len(others), 'column')} more" if others else ""
    return f"the {plural(len(known.rows.column(0).unique()), 'value')} of '{column}'{more}"

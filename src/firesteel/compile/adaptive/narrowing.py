"""A source narrowed to what the keys of finished inputs can match, and its vertex' program with it.

Few keys go into the source as a condition, so that partitions, row groups and rows without them are not read; of many their least and
greatest do, in a few ranges. Where rows go on to an exchange, those that a Bloom filter of the whole keys rules out are dropped too.
An operator that reads the files itself is told the keys instead, and the source only what it can leave out by statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import Split, push_down
from firesteel.connectors.files.column_keys import MOST_VALUES, ColumnKeys
from firesteel.errors import UsageError
from firesteel.humanize import plural
from firesteel.model.job_graph import RuntimeFilter
from firesteel.task.operators.join import only_of
from firesteel.task.program import Operator, SourceHead, TakesKeys, VertexProgram

_MANY = 1 << 17
"""Different keys from which on it is not looked for gaps between them."""
_COUNTED = 1 << 19
"""Keys up to which their different values are counted. Of more, ``_MANY`` are looked at first: the others are not counted if most of these differ."""
MOST_BYTES = 4 << 20
"""Of a table of keys that an operator is told: each worker gets it, and looking for a key costs more where it is in no cache."""


@dataclass(frozen=True)
class Keys:
    """The keys of a finished input. ``rows``: the key columns, in the order of ``filter.keys``. ``is_held``: the vertex itself reads
    that input whole, and joins with it."""

    filter: RuntimeFilter
    rows: pa.Table
    is_held: bool

    @cached_property
    def values(self) -> list[pa.Array | None]:
        """The different ones of each key column, nulls with them; None: there are too many of them to count."""
        return [_different(_plain(column)) for column in self.rows.columns]


def _different(column: pa.ChunkedArray) -> pa.Array | None:
    """Counting millions of values takes seconds, and slots may be idle meanwhile."""
    if len(column) > _COUNTED and len(column.slice(0, _MANY).unique()) > _MANY // 2:
        return None
    return column.unique()


@dataclass(frozen=True, slots=True)
class Narrowed:
    """``splits``: None: no split is left out, and the source stays as it was. ``found``: as ``SourceNarrowed.found``. ``told``: keys for the
    operator right behind the source; ``filters``: to be put before it."""

    source: Any
    splits: list[Split] | None
    found: str
    told: tuple[pa.Table, ...] = ()
    filters: tuple[Operator, ...] = ()

    def program(self, program: VertexProgram) -> VertexProgram:
        """The vertex' program with the narrowed source. It may have got operators since it was looked for: the vertex absorbed others."""
        operators = program.operators
        if self.told:
            first = operators[0]
            assert isinstance(first, TakesKeys)
            operators = (first.with_keys(self.told), *operators[1:])
        return replace(program, head=SourceHead(self.source), operators=(*self.filters, *operators))


def narrowed(
    source: Any, splits: Sequence[Split], keys: Sequence[Keys], volume: int, *, takes_keys: bool = False
) -> Narrowed:
    """``splits``: all that the source has now; ``volume``: bytes per task; ``takes_keys``: the operator right behind the source does
    (``TakesKeys``). Raises FiresteelError where splits cannot be listed."""
    found = [_words(known) for known in keys]
    if not all(_any_key(known.rows) for known in keys):
        no_key = f"no row of {found[0]} has a key" if len(found) == 1 else "a side has no key"
        return Narrowed(source, [], no_key)
    said = " and ".join(found)
    columns = [column for known in keys for column in _column_keys(source.schema, known)]
    smaller: Any = source
    told: tuple[pa.Table, ...] = ()
    filters: tuple[Operator, ...] = ()
    if takes_keys and hasattr(source, "holding"):
        told = tuple(_tables(source.schema, keys))
        smaller = source.holding(columns) if columns else source
    else:
        filters = _filters(source.schema, [known for known in keys if not known.is_held])
        for column in columns:  # one by one: statistics rule out more where a condition is on one column
            smaller = push_down(smaller, None, column.condition)
    if smaller is not source:
        left: list[Split] = list(smaller.list_splits(volume))
        if sum(split.bytes for split in left) < sum(split.bytes for split in splits):
            return Narrowed(smaller, left, f"the rest has no key of {said}", told, filters)
    return Narrowed(source, None, f"every split may have keys of {said}", told, filters)


def _any_key(rows: pa.Table) -> bool:
    """Returns whether any row could match: one with a null matches nothing."""
    return rows.drop_null().num_rows > 0


def _filters(schema: pa.Schema, keys: Sequence[Keys]) -> tuple[Operator, ...]:
    try:
        return tuple(only_of(table, table.column_names, schema) for table in _tables(schema, keys))
    except UsageError:  # a join cannot hand on such rows
        return ()


def _tables(schema: pa.Schema, keys: Sequence[Keys]) -> list[pa.Table]:
    """The different keys of each side that is not too large and likely lacks some, under the source's names."""
    tables: list[pa.Table] = []
    for known in keys:
        if not known.filter.selective and known.rows.num_rows > MOST_VALUES:
            continue
        names = dict(zip(known.filter.columns, known.rows.column_names, strict=True))
        fitting = {to: _plain(known.rows.column(name)) for to, name in names.items()}
        fitting = {to: keys for to, keys in fitting.items() if _is_comparable(keys.type, schema.field(to).type)}
        different = dict(zip(known.filter.columns, known.values, strict=True))
        few = (values is not None and values.nbytes <= MOST_BYTES for to in fitting for values in [different[to]])
        if fitting and all(few):  # else the table is larger yet
            unique = pa.table(fitting).drop_null().group_by(list(fitting), use_threads=False).aggregate([])
            table = unique.combine_chunks()  # a slice is pickled with all that it is a slice of
            tables += [table] if table.nbytes <= MOST_BYTES else []
    return tables


def _plain(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    return keys.cast(keys.type.value_type) if pa.types.is_dictionary(keys.type) else keys


def _is_comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether values of these types are equal just where their keys are."""
    return (pa.types.is_integer(a) and pa.types.is_integer(b)) or (a == b and _is_exact(a))


def _column_keys(schema: pa.Schema, known: Keys) -> Iterable[ColumnKeys]:
    for column, keys, values in zip(known.filter.columns, known.rows.columns, known.values, strict=True):
        kind = schema.field(column).type
        if values is None and keys.type == kind and _is_comparable(kind, kind):
            yield _span(column, keys)
            continue
        some = _plain(keys).combine_chunks() if values is None else values
        fitting = _values(some, kind)
        if fitting is not None and len(fitting) > _MANY:
            yield _span(column, fitting)
        elif fitting is not None:
            yield ColumnKeys(column, fitting.take(pc.array_sort_indices(fitting)))


def _span(column: str, values: pa.Array | pa.ChunkedArray) -> ColumnKeys:
    ends = pc.min_max(values)
    return ColumnKeys(column, pa.array([ends["min"], ends["max"]], values.type), is_span=True)


def _values(unique: pa.Array, to: pa.DataType) -> pa.Array | None:
    """The keys in the type of the source's column; None for types whose values are not surely equal where their keys are."""
    if not _is_comparable(unique.type, to):
        return None
    unique = unique.drop_null()
    return _in_range(unique, to) if pa.types.is_integer(to) else unique


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


def _words(known: Keys) -> str:
    column, *others = known.filter.columns
    more = f" and {plural(len(others), 'column')} more" if others else ""
    values = known.values[0]
    what = f"{known.rows.num_rows:,} keys" if values is None else plural(len(values), "value")
    return f"the {what} of '{column}'{more}"

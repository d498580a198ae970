"""Writes what one attempt of one subtask produced for one data set: one object, see ``layout``.

Rows are gathered up to the memory budget, ordered by subpartition and appended as one region of sorted messages. So a
reader finds one contiguous run of messages per region, and nothing is written twice or to any other place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.heavy_keys import (
    MOST_KEYS,
    MOST_VALUES,
    HeavyKey,
    HeavyKeys,
    encode_heavy_keys,
    least_share,
    value_text,
)
from firesteel.results import layout
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.layout import CODECS
from firesteel.results.messages import (
    MESSAGE_MAX_BYTES,
    Before,
    MessageStream,
    OpenRegion,
    message_cuts,
    put_in_order,
    whole_batch,
)
from firesteel.results.plain import (
    add_row_bytes,
    decoded_bytes,
    has_constant_width,
    is_text,
    stored_offsets,
    stored_schema,
    to_stored,
)
from firesteel.results.storage.store import ResultStore, StorageError

OUTPUT_BUFFER_BYTES = 4 << 20
"""Finished messages are collected up to this size before they go to the store."""
ORDER_BYTES_PER_ROW = 16
"""Half of what ordering needs per row beside the rows: subpartition, position, the sort's work space."""
SIZE_BYTES_PER_ROW = 12
"""Half of what rows of varying size need: each one's size, in order, and the running sum."""
PIECE_BYTES = 512
"""About what an array costs beside its values: many tiny batches must not slip past the budget."""
REGION_MAX_BYTES = 1 << 30
"""A region's columns must be addressable by 32-bit string offsets, whatever the budget."""


@dataclass(frozen=True, slots=True)
class ResultSummary:
    """Summary of a written result. ``bytes``: int64[subpartitions], plain bytes; ``stored_bytes``: the object's size; ``sketch``: of the
    keys of rows in order, see ``firesteel.model.sketches``; ``heavy_keys``: of rows by the hash of their keys, see
    ``firesteel.model.heavy_keys``."""

    bytes: NDArray[np.int64]
    rows: int
    stored_bytes: int
    sketch: bytes | None = None
    heavy_keys: bytes = b""


class ResultWriter:
    """The writer of one object. ``write`` any number of batches, then ``finish``; or ``abort``, which leaves nothing.

    ``keys`` given: rows are hash partitioned on them. Otherwise they are dealt evenly, the odd ones beginning at
    subpartition ``start``. ``memory_budget``: bytes that may be held, including the copy that ordering makes; a single
    batch larger than that is held all the same. ``codec``: how message bodies are compressed, one of CODECS. ``heavy_keys``: looks for
    them among hash partitioned rows.
    Raises StorageError when the store fails, ValueError for batches that do not fit ``schema``.
    """

    def __init__(
        self,
        store: ResultStore,
        name: str,
        schema: pa.Schema,
        num_subpartitions: int,
        keys: tuple[str, ...] = (),
        *,
        memory_budget: int,
        codec: str = "lz4",
        start: int = 0,
        heavy_keys: KeySampler | None = None,
    ) -> None:
        if codec not in CODECS:
            raise ValueError(f"Unknown codec {codec!r} for results: use one of {', '.join(CODECS)}.")
        if missing := [key for key in keys if key not in schema.names]:
            raise ValueError(f"Cannot partition by {', '.join(missing)}: the columns are {', '.join(schema.names)}.")
        self._store = store
        self._name = name
        self._schema = schema
        self._stored = stored_schema(schema)
        self._subpartitions = num_subpartitions
        self._keys = [schema.names.index(key) for key in keys] if num_subpartitions > 1 else []
        self._cursor = start % num_subpartitions
        self._heavy_keys = heavy_keys
        buffer_bytes = min(OUTPUT_BUFFER_BYTES, memory_budget // 8)
        # pending rows are there twice while a column's pieces are joined; nothing to order: out at once
        limit = MESSAGE_MAX_BYTES if num_subpartitions == 1 else REGION_MAX_BYTES
        self._half = max(1, memory_budget // 2 - buffer_bytes)
        self._flush_bytes = min(limit, self._half)
        self._row_cost = ORDER_BYTES_PER_ROW if self._keys else 0
        if num_subpartitions > 1 and not all(has_constant_width(field.type) for field in self._stored):
            self._row_cost += SIZE_BYTES_PER_ROW
        self._rows = 0
        self._bytes = np.zeros(num_subpartitions, np.int64)
        self._regions: list[layout.Region] = []
        self._open_region = OpenRegion(num_subpartitions)
        self._pending = _Pending(len(self._stored))
        self._out = MessageStream(store.open_output(name), codec, buffer_bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        for piece in self._pieces(batch):
            columns = self._stored_columns(piece)
            constant, varying = add_row_bytes(columns)
            size = constant * piece.num_rows + (0 if varying is None else int(varying.sum()))
            if self._pending.rows and self._held(piece.num_rows, size) > self._flush_bytes:
                self._flush()
            ids = self._subpartition_ids(piece) if self._keys else None
            self._pending.add(columns, piece.num_rows, size, varying, ids)
            if self._held() >= self._flush_bytes:
                self._flush()

    def finish(self) -> ResultSummary:
        """Write what is pending, the index and the trailer. Only now is the object complete."""
        if self._pending.rows:
            self._flush()
        if self._open_region.rows:
            self._close_region()
        self._out.drain()
        footer = self._footer()
        stored_bytes = self._out.finish(footer)
        heavy = b"" if self._heavy_keys is None else self._heavy_keys.finish()
        return ResultSummary(self._bytes, self._rows, stored_bytes, heavy_keys=heavy)

    def _footer(self) -> bytes:
        identity = layout.Identity.of(self._name, self._stored, self._subpartitions)
        return layout.encode_footer(self._regions, self._out.seals, self._out.offset, identity)

    def abort(self) -> None:
        """Give up: close and remove what was written. Never raises: what cannot be removed goes with the job's directory."""
        self._pending.clear()
        for step in (self._out.discard, lambda: self._store.delete([self._name])):
            with suppress(StorageError):
                step()

    def _held(self, rows: int = 0, size: int = 0) -> int:
        """Returns the bytes that the pending rows, and those to come, count against the budget."""
        pieces = self._pending.pieces * PIECE_BYTES
        return self._pending.bytes + size + pieces + (self._pending.rows + rows) * self._row_cost

    def _pieces(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """A batch much larger than the budget is taken piece by piece, so that ordering it does not copy all of it at once."""
        size = decoded_bytes(batch)
        if size <= self._flush_bytes or batch.num_rows == 1:
            return [batch]
        step = max(1, batch.num_rows * self._flush_bytes // size)
        return [batch.slice(row, step) for row in range(0, batch.num_rows, step)]

    def _stored_columns(self, batch: pa.RecordBatch) -> list[Any]:
        if batch.num_columns != len(self._stored) or batch.schema.names != self._schema.names:
            raise ValueError(
                f"A batch with columns ({', '.join(batch.schema.names)}) came where "
                f"({', '.join(self._schema.names)}) were declared."
            )
        columns = [to_stored(column) for column in batch.columns]
        for place, field in enumerate(self._stored):
            if not columns[place].type.equals(field.type):
                columns[place] = self._cast(columns[place], field)
        return columns

    def _cast(self, column: Any, field: Any) -> Any:
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(
                f"Column {field.name!r} is {column.type} where {self._schema.field(field.name).type} was declared: {error}"
            ) from error

    def _subpartition_ids(self, batch: pa.RecordBatch) -> NDArray[Any]:
        hashes = hash_columns([batch.column(place) for place in self._keys])
        ids = subpartition_of(hashes, self._subpartitions)
        return ids.astype(np.uint16) if self._subpartitions <= 1 << 16 else ids

    def _flush(self) -> None:
        """Append the pending rows, ordered by subpartition, to the object; one region each unless there is nothing to order."""
        pending, region = self._pending, self._open_region
        rows = pending.rows
        self._rows += rows
        ids, varying = pending.ids(), pending.varying()
        constant = (pending.bytes - (0 if varying is None else int(varying.sum()))) // rows
        columns = pending.take_columns()
        order = None
        if ids is None:
            counts = self._deal(rows)
        else:
            counts = np.bincount(ids, minlength=self._subpartitions)
            order = np.argsort(ids, kind="stable")
            del ids
        bounds = np.zeros(self._subpartitions + 1, np.int64)
        np.cumsum(counts, out=bounds[1:])
        before = Before(varying if order is None or varying is None else varying[order], constant)
        del varying
        region.extend(bounds, before(bounds))
        if order is not None:
            if self._heavy_keys is not None:
                self._heavy_keys.flush([columns[place] for place in self._keys], order, bounds, before)
            put_in_order(columns, order)
        self._append(whole_batch(columns, rows, self._stored), message_cuts(bounds, before))
        if self._subpartitions > 1:
            self._close_region()

    def _append(self, rows: pa.RecordBatch, cuts: Iterable[tuple[int, int]]) -> None:
        """A message for each of these cuts of the rows, which are in order."""
        for low, high in cuts:
            self._open_region.add_message(self._out.offset, high - low)
            self._out.add(rows.slice(low, high - low))

    def _deal(self, rows: int) -> NDArray[np.int64]:
        """Rows per subpartition, evenly; the odd ones go on where the last ended."""
        each, odd = divmod(rows, self._subpartitions)
        counts = np.full(self._subpartitions, each, np.int64)
        counts[(self._cursor + np.arange(odd)) % self._subpartitions] += 1
        self._cursor = (self._cursor + odd) % self._subpartitions
        return counts

    def _close_region(self) -> None:
        region = self._open_region.close(self._out.offset)
        self._bytes += np.diff(region.plain)
        self._regions.append(region)
        self._open_region = OpenRegion(self._subpartitions)


class _Pending:
    """Rows that wait for their region, as lists of arrays per column."""

    def __init__(self, columns: int) -> None:
        self._width = columns
        self.clear()

    def clear(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in range(self._width)]
        self._ids: list[NDArray[Any]] = []
        self._varying: list[NDArray[np.int64]] = []
        self.rows = 0
        self.bytes = 0
        self.pieces = 0

    def add(
        self, columns: list[Any], rows: int, size: int, varying: NDArray[Any] | None, ids: NDArray[Any] | None
    ) -> None:
        for pieces, column in zip(self._columns, columns, strict=True):
            pieces.append(column)
        if ids is not None:
            self._ids.append(ids)
        if varying is not None:
            self._varying.append(varying)
        self.rows += rows
        self.bytes += size
        self.pieces += self._width

    def ids(self) -> NDArray[Any] | None:
        return np.concatenate(self._ids) if self._ids else None

    def varying(self) -> NDArray[np.int64] | None:
        return np.concatenate(self._varying) if self._varying else None

    def take_columns(self) -> list[Any]:
        """Each column as one array; the pieces are let go column by column, and with them the pending rows."""
        pieces = self._columns
        joined: list[Any] = []
        for place in range(self._width):
            column = pieces[place]
            joined.append(column[0] if len(column) == 1 else pa.concat_arrays(column))
            pieces[place] = []
        self.clear()
        return joined


Ints = NDArray[np.int64]

BYTES_PER_LOOK = 4 << 20
"""Plain bytes that are written for each flush that is looked at, at least: so it costs little beside."""
MOST_SAMPLES = 256
"""Rows of one subpartition that are looked at."""
ALL_SAMPLES = 1_024
"""Rows that are looked at in one flush."""
MOST_KEY_BYTES = 256
"""Of a key that is looked at, on average: longer ones cost too much."""
_JITTER = np.arange(MOST_SAMPLES) * (5**0.5 - 1) / 2 % 1.0
"""Multiples of the golden ratio are spread evenly over their fractions, and in step with nothing."""


class KeySampler:
    """Looks for those of one producer."""

    def __init__(self) -> None:
        self._found = HeavyKeys()
        self._total = 0
        self._looked_at = 0
        """Plain bytes of all flushes, and of those that were looked at."""
        self._since = 0
        """Plain bytes since the last of these."""
        self._filled = 0
        """Subpartitions that had any."""

    def flush(self, keys: list[Any], order: NDArray[Any], bounds: Ints, before: Before) -> None:
        """Rows in ``order``: those of subpartition s from place ``bounds[s]`` on. ``keys``: their key columns, not in order."""
        sizes = np.diff(before(bounds))
        size = int(sizes.sum())
        self._total += size
        self._since += size
        if self._since < BYTES_PER_LOOK:
            return
        self._since = 0
        self._looked_at += size
        filled = int(np.count_nonzero(sizes))
        self._filled = max(filled, self._filled)
        least = max(least_share(filled) * size, 1)
        heavy = np.flatnonzero(sizes >= least)
        if len(heavy):
            heavy = heavy[np.argsort(-sizes[heavy], kind="stable")][:MOST_KEYS]
            places = _spread(bounds[heavy], bounds[heavy + 1])
            encoded = _encoded(keys, order[places])
            widths = before(places + 1) - before(places)
            self._count(encoded, widths.tolist(), dict(zip(heavy.tolist(), sizes[heavy].tolist(), strict=True)), least)

    def finish(self) -> bytes:
        """Returns the report on all that was flushed, see ``firesteel.model.heavy_keys``; empty: there are no heavy keys."""
        heavy = self._found.heavy(self._looked_at, self._filled)
        return encode_heavy_keys(key._replace(weight=key.weight * self._total // self._looked_at) for key in heavy)

    def _count(self, keys: list[Any], widths: list[list[int]], sizes: dict[int, int], least: float) -> None:
        """``keys``: dictionary encoded columns, of the rows that are looked at; ``widths``: plain bytes of these, a list for each heavy
        subpartition; ``sizes``: by subpartition."""
        codes = zip(*(column.indices.to_numpy().tolist() for column in keys), strict=True)
        for (subpartition, size), own in zip(sizes.items(), widths, strict=True):
            sums: Counter[tuple[int, ...]] = Counter()
            for width, code in zip(own, codes, strict=False):
                sums[code] += width
            for code, width in sums.most_common():
                weight = size * width // max(sum(own), 1)
                if weight < least:
                    break
                told = zip(keys[:MOST_VALUES], code, strict=False)
                values = tuple(_text(column.dictionary, place) for column, place in told)
                self._found.add([HeavyKey(subpartition, weight, values)])


def _spread(begins: Ints, ends: Ints) -> Ints:
    """Places evenly spread from each of these to its end: a row of places each."""
    samples = min(MOST_SAMPLES, ALL_SAMPLES // len(begins))
    along = (np.arange(samples) + _JITTER[:samples]) / samples
    return begins[:, None] + (along * (ends - begins)[:, None]).astype(np.int64)


def _encoded(keys: list[Any], rows: Ints) -> list[Any]:
    """The key columns of these rows, one after another, each as a dictionary; none, if they cannot be looked at or are too long."""
    if not all(_is_short(column, rows) for column in keys):
        return []
    try:
        return [column.take(pa.array(rows.ravel())).dictionary_encode("encode") for column in keys]
    except pa.ArrowNotImplementedError:  # structs
        return []


def _is_short(column: Any, rows: Ints) -> bool:
    """Returns whether these values can be looked at, as to their length. Those of lists and the like are not."""
    if has_constant_width(column.type):
        return True
    if not is_text(column.type):
        return False
    offsets = stored_offsets(column)
    return int((offsets[rows + 1] - offsets[rows]).sum()) <= MOST_KEY_BYTES * rows.size


def _text(column: Any, row: int) -> str:
    try:
        return value_text(column[row].as_py())
    except (ValueError, OverflowError, pa.ArrowException):  # a day before year 1, bytes that are no text
        return "?"

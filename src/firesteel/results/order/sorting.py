"""Puts rows in order: row numbers that sort columns by an ``Order``, ties in row order.

Columns are words: unsigned numbers that compare as the values do, text eight bytes at a time. As many of a word's bits as
there is room for, and behind them the row's place, are packed into 64 bits and sorted as plain numbers, which numpy does
several times as fast as it or Arrow find an order. Rows that are equal so far form groups, and go on with what is left of
the word, then with the next: only as much of the keys is looked at as rows need to differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.model.order import Order
from firesteel.model.sketches import SketchBuilder, encode_sketch, phase_of
from firesteel.results import layout
from firesteel.results.messages import MESSAGE_MAX_BYTES, MESSAGE_MAX_ROWS, Before, put_in_order, whole_batch
from firesteel.results.order.key_ranges import RegionKeys, encode_keys_of
from firesteel.results.order.ordering import key_list, suffix_of, value_words
from firesteel.results.plain import fixed_values, has_constant_width, offsets_of, to_stored
from firesteel.results.storage.store import ResultStore
from firesteel.results.writer import REGION_MAX_BYTES, SIZE_BYTES_PER_ROW, ResultSummary, ResultWriter

Words = NDArray[np.uint64]
Rows = NDArray[np.int64]
WordsOf = Callable[[Rows | None], Words]
"""From row numbers (None: all rows) to a word of each."""

ROW_BYTES = 40
"""About what sorting needs per row beside the rows, text not counted: of 8 bytes each words, packed ones, places, order."""
TEXT_WORDS = 16
"""Rows whose text is equal for so many words are ranked by Arrow."""
RUN_ROWS = 1_000
"""Rows that come in runs of so many in order are merged."""
SQUEEZED_RUNS = 12
"""Each run of bits takes three passes over the words; sorting twice takes more."""
_BLOCK = 1 << 15
"""Rows whose text is read at once: temporaries stay in the cache."""
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def row_order(columns: Sequence[Any], order: Order) -> Rows:
    """int64[rows]. ``columns``: the arrays of ``order.columns``, equally long."""
    sorting = _Sorting(len(columns[0]))
    for array, column in zip(columns, order.columns, strict=True):
        for words_of in _words_of(array, ascending=column.ascending):
            if sorting.is_done:
                break
            sorting.refine(words_of(sorting.members))
    return sorting.order


class _Sorting:
    """Row numbers on their way to an order. Rows that are equal so far are a group: they lie side by side, as they came."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._order: Rows | None = None
        """None: as they came."""
        self._open: Rows | None = None
        """Ascending: the places of rows that are not alone in their group; None: of all rows, in one group."""
        self._groups: Words = np.zeros(0, np.uint64)
        """Of each open place the number of its group, from 0 on."""

    @property
    def is_done(self) -> bool:
        return self._rows < 2 if self._open is None else not len(self._open)

    @property
    def order(self) -> Rows:
        return np.arange(self._rows) if self._order is None else self._order

    @property
    def members(self) -> Rows | None:
        """The rows at the open places; None: all rows."""
        return self._order if self._open is None or self._order is None else self._order[self._open]

    @property
    def _group_bits(self) -> int:
        return int(self._groups[-1]).bit_length() if len(self._groups) else 0

    def _room(self, count: int) -> int:
        """Bits of a word that fit beside group and place."""
        return 64 - _bits_of(count) - self._group_bits

    def refine(self, words: Words) -> None:
        """Orders the open rows within their groups by these words, one of each."""
        while len(words):
            low, high = words.min(), words.max()
            bits = int(high - low).bit_length()
            if not bits:
                return
            if bits > self._room(len(words)):
                words = _squeezed(words)
                low, high = words.min(), words.max()
                bits = int(high - low).bit_length()
            words = words - low
            left, places, values = self._sorted(words, bits)
            kept = self._place(places, values)
            if not left:
                return
            words = words[places][kept] & ((np.uint64(1) << np.uint64(left)) - np.uint64(1))

    def _sorted(self, words: Words, bits: int) -> tuple[int, Rows, Words]:
        """Returns the number of bits there was no room for; the places in order; and the compared words, in order."""
        count = len(words)
        place_bits, group_bits = _bits_of(count), self._group_bits
        if not group_bits and _runs_of(words) <= count // RUN_ROWS:
            places = np.argsort(words, kind="stable")  # merges runs
            return 0, places, words[places]
        left = max(bits - self._room(count), 0)
        packed = words >> np.uint64(left)
        packed <<= np.uint64(place_bits)
        packed |= np.arange(count, dtype=np.uint64)
        if group_bits:
            packed |= self._groups << np.uint64(64 - group_bits)
        packed.sort()
        places = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
        packed >>= np.uint64(place_bits)
        return left, places, packed

    def _place(self, places: Rows, values: Words) -> NDArray[np.bool_]:
        """Puts the open rows in this order; those with a value of their own are done. Which ones are not, of ``places``."""
        if self._open is None or self._order is None:
            self._order = places if self._order is None else self._order[places]
        else:
            self._order[self._open] = self._order[self._open[places]]
        differ = np.ones(len(values) + 1, np.bool_)
        np.not_equal(values[1:], values[:-1], out=differ[1:-1])
        kept = ~(differ[1:] & differ[:-1])
        self._open = np.flatnonzero(kept) if self._open is None else self._open[kept]
        self._groups = np.cumsum(differ[:-1][kept]).astype(np.uint64)
        self._groups -= np.uint64(1)
        return kept


def _bits_of(count: int) -> int:
    """To number so many."""
    return max(count - 1, 1).bit_length()


def _squeezed(words: Words) -> Words:
    """The words without the bits that all of them share: half of those of ASCII text."""
    varying = int(np.bitwise_or.reduce(words ^ words[0]))
    runs = [match.span() for match in re.finditer("1+", f"{varying:b}"[::-1])]
    if len(runs) > SQUEEZED_RUNS or len(runs) == 1:
        return words
    squeezed = np.zeros(len(words), np.uint64)
    at = 0
    for begin, end in runs:
        part = words >> np.uint64(begin)
        part &= np.uint64((1 << (end - begin)) - 1)
        part <<= np.uint64(at)
        squeezed |= part
        at += end - begin
    return squeezed


def _runs_of(words: Words) -> int:
    return 1 + int(np.count_nonzero(words[1:] < words[:-1]))


# --- words of a column ---------------------------------------------------------------------------------------------


def _words_of(array: Any, *, ascending: bool) -> Iterator[WordsOf]:
    """The words of a column, the most significant first; made when they are asked for."""
    array = to_stored(array)
    values = value_words(array)
    valid = np.asarray(array.is_valid()) if array.null_count else None
    if values is None:
        if valid is not None:
            yield _chosen(valid if ascending else ~valid)
        yield from _text_words(array, ascending=ascending)
        return
    if (
        valid is not None
        and len(values) == 1
        and (word := _with_nulls(values[0], valid, ascending=ascending)) is not None
    ):
        yield _chosen(word)
        return
    if valid is not None:
        yield _chosen(valid if ascending else ~valid)
    for value in values:
        word = value if ascending else ~value
        yield _chosen(word if valid is None else np.where(valid, word, word.dtype.type(0)))


def _chosen(words: NDArray[Any]) -> WordsOf:
    return lambda rows: (words if rows is None else words[rows]).astype(np.uint64)


def _with_nulls(value: NDArray[Any], valid: NDArray[np.bool_], *, ascending: bool) -> Words | None:
    """One word for value and null; None: the values leave no number free."""
    word = (value if ascending else ~value).astype(np.uint64)
    low = word.min(where=valid, initial=_ALL)
    high = word.max(where=valid, initial=np.uint64(0))
    if high < low:  # nothing but nulls
        return np.zeros(len(word), np.uint64)
    if high - low == _ALL:
        return None
    word -= low
    if ascending:
        word += np.uint64(1)
    word[~valid] = np.uint64(0) if ascending else high - low + np.uint64(1)
    return word


def _text_words(array: Any, *, ascending: bool) -> Iterator[WordsOf]:
    text = _as_binary(array)
    runs = _Runs(text)
    turn = np.uint64(0) if ascending else _ALL
    for number in range(min(runs.words, TEXT_WORDS)):
        yield lambda rows, number=number: runs.next_word(rows, number) ^ turn
    if runs.words <= TEXT_WORDS:
        yield lambda rows: runs.lengths_of(rows).astype(np.uint64) ^ turn  # equal but for zeros at the end
    else:
        yield lambda rows: _ranks(text, rows) ^ turn


def _ranks(text: Any, rows: Rows | None) -> Words:
    chosen = text if rows is None else text.take(pa.array(rows))
    return np.asarray(pc.rank(chosen, sort_keys="ascending", tiebreaker="dense")).astype(np.uint64)


def _as_binary(array: Any) -> Any:
    """Text or bytes as binary; those of nulls are all the same."""
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        raw = np.array(fixed_values(array, np.uint8, width)).reshape(len(array), width)
        if array.null_count:
            raw[np.asarray(array.is_null())] = 0
        offsets = np.arange(len(array) + 1, dtype=np.int64) * width
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
        return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(b"", array.type))
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    return array.cast(pa.large_binary() if large else pa.binary())  # shares the bytes


class _Runs:
    """The bytes of binary rows, read eight at a time."""

    def __init__(self, text: Any) -> None:
        self._offsets = offsets_of(text)
        low, high = (int(self._offsets[0]), int(self._offsets[-1])) if len(text) else (0, 0)
        self._offsets -= low
        self._common = 0
        """Bytes at the beginning of all rows that were asked for."""
        blocks = range(0, len(text), _BLOCK)
        longest = max((int(np.diff(self._offsets[at : at + _BLOCK + 1]).max()) for at in blocks), default=0)
        self.words = -(-longest // 8)
        """Of the longest row."""
        self._data = np.zeros((high - low) // 8 + 2, "<u8")
        if high > low:
            self._data.view(np.uint8)[: high - low] = np.frombuffer(text.buffers()[2], np.uint8, high - low, low)

    def lengths_of(self, rows: Rows | None) -> NDArray[np.int64]:
        return np.diff(self._offsets) if rows is None else self._offsets[rows + 1] - self._offsets[rows]

    def next_word(self, rows: Rows | None, number: int) -> Words:
        """The ``number``th word behind what all rows have in common, which those find out that ask for the first one."""
        if number:
            return self.word(rows, self._common + 8 * number)
        while True:
            words = self.word(rows, self._common)
            alike = 8 - (int(np.bitwise_or.reduce(words ^ words[0])).bit_length() + 7) // 8
            if alike < 8 or self._common + 8 >= 8 * self.words:
                break
            self._common += 8
        if not alike:
            return words
        self._common += alike
        return self.word(rows, self._common)

    def word(self, rows: Rows | None, at: int) -> Words:
        """Bytes [at, at + 8) of the rows as big-endian numbers; zeros behind a row's end."""
        words = np.empty(len(self._offsets) - 1 if rows is None else len(rows), np.uint64)
        for first in range(0, len(words), _BLOCK):
            if rows is None:
                bounds = self._offsets[first : first + _BLOCK + 1]
                begin, end = bounds[:-1] + at, bounds[1:]
            else:
                block = rows[first : first + _BLOCK]
                begin, end = self._offsets[block] + at, self._offsets[block + 1]
            words[first : first + _BLOCK] = self._block(begin, end - begin)
        return words

    def _block(self, begin: NDArray[np.int64], left: NDArray[np.int64]) -> Words:
        """The words that begin there, of rows that have so many bytes left."""
        begin[left <= 0] = 0
        place, shift = begin >> 3, ((begin & 7) << 3).view(np.uint64)
        words = self._data[place] >> shift
        # in two steps: shifting by all 64 bits is not defined
        words |= (self._data[place + 1] << np.uint64(1)) << (np.uint64(63) - shift)
        words = words.byteswap()
        if int(left.min()) >= 8:
            return words
        beyond = (np.clip(8 - left, 0, 8) << 3).view(np.uint64)
        half = beyond >> np.uint64(1)
        rest = beyond - half
        return (words >> half >> rest) << half << rest


MESSAGES_PER_RANGE = 2
"""So many of a region: of those at a range's ends about half is read in vain."""
FEWEST_MESSAGES = 16
"""Of a region, if it is large enough: a reader that merges many regions holds some messages of each."""
FEWEST_MESSAGE_BYTES = 64 << 10
"""Messages become no smaller, whatever the number of ranges."""
PHASE = 14
"""Of the phases (``sketches.phase_of``) those that no sketch uses."""


class SortedWriter(ResultWriter):
    """The writer of one object whose regions are each in ``order``.

    ``producer``: its number among ``producers``. ``ranges``: how many the keys will be parted into. The rest as for
    ``ResultWriter``; the summary has a sketch, and ``bytes`` of one subpartition. A region is sorted by keys instead of
    subpartitions, of which there is one. Which keys make a range is decided when all producers have finished, from their sketches.
    So the object's index holds keys (``key_index``), by which a reader finds the messages of any range.
    """

    def __init__(
        self,
        store: ResultStore,
        name: str,
        schema: pa.Schema,
        order: Order,
        *,
        producer: int,
        producers: int,
        ranges: int,
        memory_budget: int,
        codec: str = "lz4",
    ) -> None:
        self._order = order
        self._producer = producer
        self._places = order.places(schema)
        self._suffix = suffix_of(order, producer)
        self._sketch = SketchBuilder(producer, producers)
        self._region_keys: list[RegionKeys] = []
        self._ranges = max(ranges, 1)
        super().__init__(store, name, schema, 1, memory_budget=memory_budget, codec=codec)
        self._flush_bytes = min(REGION_MAX_BYTES, self._half)
        self._row_cost = ROW_BYTES // 2
        if not all(has_constant_width(field.type) for field in self._stored):
            self._row_cost += SIZE_BYTES_PER_ROW

    def finish(self) -> ResultSummary:
        summary = super().finish()
        return replace(summary, sketch=encode_sketch(self._sketch.finish()))

    def _footer(self) -> bytes:
        identity = layout.Identity.of(self._name, self._stored, 1, str(self._order))
        keys = encode_keys_of(self._region_keys, identity.name)
        return layout.encode_footer(self._regions, self._out.seals, self._out.offset, identity, keys)

    def _flush(self) -> None:
        """Append the pending rows as one region in order."""
        pending = self._pending
        rows = pending.rows
        self._rows += rows
        varying = pending.varying()
        constant = (pending.bytes - (0 if varying is None else int(varying.sum()))) // rows
        columns = pending.take_columns()
        keys = [columns[place] for place in self._places]
        order = row_order(keys, self._order)
        before = Before(None if varying is None else varying[order], constant)
        del varying
        total = int(before(rows))
        self._open_region.extend(np.array([0, rows]), np.array([0, total]))
        cuts = self._cuts(rows, before)
        self._note_keys(keys, order, before, cuts)
        del keys
        if not (order[1:] > order[:-1]).all():
            put_in_order(columns, order)
        self._append(whole_batch(columns, rows, self._stored), pairwise(cuts))
        self._close_region()

    def _cuts(self, rows: int, before: Before) -> list[int]:
        """The rows at which messages begin, and the end. The first message is shorter than the others, in each region by
        another part: so the regions' messages begin at many different keys, by which their readers can cut finely."""
        total = int(before(rows))
        most = min(total // (MESSAGES_PER_RANGE * self._ranges), total // FEWEST_MESSAGES, MESSAGE_MAX_BYTES)
        parts = max(total // max(most, FEWEST_MESSAGE_BYTES), -(-rows // MESSAGE_MAX_ROWS))
        if parts < 2:
            return [0, rows]
        places = np.arange(parts) + phase_of(self._producer, PHASE, len(self._region_keys))
        if total:
            inside = before.row_at((places * (total / parts)).astype(np.int64))
        else:
            inside = (places * (rows / parts)).astype(np.int64)
        return [0, *np.unique(inside[inside > 0]).tolist(), rows]

    def _note_keys(self, keys: list[Any], order: NDArray[np.int64], before: Before, cuts: list[int]) -> None:
        """For the index the first key of each message, and the last one; for the sketch those at its targets."""
        edges = np.array([*cuts[:-1], len(order) - 1])
        self._region_keys.append(RegionKeys.of(self._keys_of(keys, order[edges]), before(np.array(cuts))))
        wanted, weights = self._sketch.targets(int(before(len(order))))
        if len(wanted):
            self._sketch.add(self._keys_of(keys, order[before.row_at(wanted)]), weights)

    def _keys_of(self, keys: list[Any], rows: NDArray[np.int64]) -> list[bytes]:
        chosen = pa.array(rows)
        return key_list([column.take(chosen) for column in keys], self._order, self._suffix)

"""Looks for heavy keys among hash-partitioned rows when they are flushed, ordered by subpartition.

A heavy key makes its subpartition heavy, and what each of them has is known then: so nothing is looked at unless one has much more
than the average. Of such a one some rows are taken, evenly spread over it, and their keys counted. Nothing is left to
chance: same rows, same report.
"""

from __future__ import annotations

from collections import Counter
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
from firesteel.results.messages import Before
from firesteel.results.plain import has_constant_width, is_text, stored_offsets

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

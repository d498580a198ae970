"""The ranges of a RANGE result: decided once, from the sketches of all its producers, and then kept for good.

There is no sampling pass: every producer told, as it finished, a summary of the keys that it wrote and how many bytes lie
between them (``firesteel.model.sketches``). Merged they give keys that part the result into as many ranges of about equal bytes
as it has subpartitions; from there on it is as any keyed result whose sizes are known. Whoever has read by these ranges
has left the other rows to others, so they stay as they are when producers run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firesteel.humanize import format_bytes, plural
from firesteel.model.arrays import Ints
from firesteel.model.job_graph import IntermediateDataSet
from firesteel.model.sketches import Boundaries, Sketch, bytes_between, decode_sketch, error_bound, merge_sketches
from firesteel.scheduler.exchange.file_ranges import file_boundaries


@dataclass(frozen=True, slots=True, eq=False)
class KeyRanges:
    """``sizes``: plain bytes of each range over all producers (int64), as far as the sketches tell. ``error``: how many
    bytes each of them may be off at most."""

    boundaries: Boundaries
    sizes: Ints
    sketches: int
    error: int


def decide_ranges(rows: Sequence[bytes], n: int, file_volume: int | None = None) -> KeyRanges:
    """``rows``: encoded sketches. Where nothing was written all ranges but the last are empty. ``file_volume``: plain bytes of the files that the
    ranges are for, one or some of them each; None: they are for none, and should be of about equal bytes."""
    sketches = [decode_sketch(row) for row in rows]
    boundaries = merge_sketches(sketches, n) if file_volume is None else file_boundaries(sketches, n, file_volume)
    return KeyRanges(boundaries, bytes_in(sketches, boundaries, n), len(sketches), error_bound(sketches))


def bytes_in(sketches: Sequence[Sketch], boundaries: Boundaries, n: int) -> Ints:
    """Plain bytes of each of ``n`` ranges, over all these producers."""
    total = np.zeros(n, np.int64)
    for sketch in sketches:
        total += bytes_between(sketch, boundaries)
    return total


def explain(dataset: IntermediateDataSet, ranges: KeyRanges) -> dict[str, Any]:
    """The decision's record: fields of ``records.Decision`` without what, vertex and name."""
    order, n = dataset.order, len(ranges.sizes)
    columns = [] if order is None else [(c.name, c.ascending) for c in order.columns]
    by = ", ".join(name if ascending else f"{name} descending" for name, ascending in columns)
    parted = order is not None and order.split_equal
    total, largest = int(ranges.sizes.sum()), int(ranges.sizes.max(initial=0))
    mean = total / n
    even = (
        f"largest {format_bytes(largest)}, {largest / mean:.2f} times the mean" if total else "there is nothing in them"
    )
    equal = "equal keys of several producers may be parted" if parted else "equal keys stay together"
    return {
        "inputs": {
            "dataset": dataset.id,
            "columns": [[name, ascending] for name, ascending in columns],
            "split_equal": parted,
            "sketches": ranges.sketches,
            "bytes": total,
        },
        "rule": "merged sketches",
        "result": {
            "ranges": n,
            "largest": largest,
            "mean": round(mean),
            "empty": int((ranges.sizes == 0).sum()),
            "error": ranges.error,
        },
        "reason": (
            f"{plural(n, 'range')} of {by or 'the key'} over {format_bytes(total)}, from the sketches of "
            f"{plural(ranges.sketches, 'producer')}, with no pass to sample them; {even}, each known to within "
            f"{format_bytes(ranges.error)}; {equal}"
        ),
    }

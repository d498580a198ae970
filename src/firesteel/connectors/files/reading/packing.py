"""The size of splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_LEAST = 1 << 20
_MOST_SPLITS = 20_000


def piece_bytes(total: int, data_volume: int) -> int:
    """Plain bytes a split should have: a sixteenth of a subtask's volume, so that there is something to balance.

    Not under 1 MiB unless the volume is, and never so little that there are more than some 20,000 splits.
    """
    return max(data_volume // 16, min(data_volume, _LEAST), -(-total // _MOST_SPLITS), 1)


def pack(items: Sequence[T], sizes: Sequence[int], target: int) -> list[tuple[list[T], int]]:
    """Groups neighbours, in order, up to ``target`` bytes; a larger item stays alone. Returns each group with its bytes."""
    groups: list[list[T]] = []
    totals: list[int] = []
    for item, size in zip(items, sizes, strict=True):
        if groups and totals[-1] + size <= target:
            groups[-1].append(item)
            totals[-1] += size
        else:
            groups.append([item])
            totals.append(size)
    return list(zip(groups, totals, strict=True))

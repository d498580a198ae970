"""Heavy keys: those few with so many bytes that their subpartitions are much heavier than the others.

Found inside Spark tasks (``results.heavy_keys``), added up in the control plane: stdlib only, imports nothing of Firesteel. A producer
reports at most 1 KB, and nothing where no key is heavy; of any number of reports a summary of fixed size is kept (Misra and
Gries 1982; added up as in Agarwal et al. 2012).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

LEAST_SHARE = 0.01
"""Of all bytes: keys that have less are not named."""
TIMES_OTHERS = 2
"""Nor those that have less than so many times what each other subpartition has on average, of those that have any."""
MOST_BYTES = 1_024
"""Of one report."""
MOST_KEYS = 8
"""In one report, or record."""
MOST_HELD = 64
"""Keys in a summary."""
MOST_VALUES = 8
"""Columns of a key that are told; of longer keys the first ones."""
LONGEST_VALUE = 48
"""Bytes of a value as text; the rest is cut off."""
_VERSION = 1
_HEADER = struct.Struct("<BB")
"""Version, keys."""
_KEY = struct.Struct("<IqB")
"""Subpartition, weight, number of values."""


def least_share(filled: int) -> float:
    """Returns the share of all bytes from which on a key, or a subpartition, is heavy, where so many subpartitions have any."""
    return max(LEAST_SHARE, TIMES_OTHERS / (max(filled, 1) - 1 + TIMES_OTHERS))


class HeavyKey(NamedTuple):
    """``weight``: plain bytes of its rows. ``values``: of its columns, as text; with the subpartition they stand for the key."""

    subpartition: int
    weight: int
    values: tuple[str, ...]


class HeavyKeys:
    """A summary of weighted keys. The weight of a key is never too high, and too low by ``lost`` at most: nothing as long as there are no
    more than MOST_HELD keys, and never more than a sixty-fifth of all weights together."""

    def __init__(self) -> None:
        self._weights: dict[tuple[int, tuple[str, ...]], int] = {}
        """By subpartition and values."""
        self.lost = 0

    def add(self, keys: Iterable[HeavyKey]) -> None:
        weights = self._weights
        for subpartition, weight, values in keys:
            name = subpartition, values
            weights[name] = weights.get(name, 0) + weight
        if len(weights) > MOST_HELD:
            self._reduce()

    def heavy(self, total: int, filled: int) -> list[HeavyKey]:
        """Returns those that are heavy among ``total`` plain bytes in ``filled`` subpartitions, the heaviest first; MOST_KEYS at most."""
        least = max(least_share(filled) * total, 1)
        found = [HeavyKey(name[0], weight, name[1]) for name, weight in self._weights.items() if weight >= least]
        return sorted(found, key=lambda key: (-key.weight, key))[:MOST_KEYS]

    def _reduce(self) -> None:
        """Take from all as much as the heaviest of those has that are too many."""
        less = nlargest(MOST_HELD + 1, self._weights.values())[-1]
        self.lost += less
        self._weights = {name: weight - less for name, weight in self._weights.items() if weight > less}


def value_text(value: object) -> str:
    """A value of a key as people write it, in LONGEST_VALUE bytes at most: text in quotes, bytes in hexadecimal digits."""
    end = "…"
    if value is None:
        return "null"
    if isinstance(value, str):
        text = repr(value[: LONGEST_VALUE + 1])
        end += text[-1]
    elif isinstance(value, bytes):
        text = f"0x{value[: LONGEST_VALUE + 1].hex()}"
    else:
        text = str(value)
    encoded = text.encode(errors="replace")
    if len(encoded) <= LONGEST_VALUE:
        return text
    return encoded[: LONGEST_VALUE - len(end.encode())].decode(errors="ignore") + end


# --- on the way to the driver --------------------------------------------------------------------------------------


def encode_heavy_keys(keys: Iterable[HeavyKey]) -> bytes:
    """As many of them as fit, in their order; of none nothing."""
    parts: list[bytes] = []
    left = MOST_BYTES - _HEADER.size
    for key in keys:
        values = [value.encode(errors="replace") for value in key.values[:MOST_VALUES]]
        numbers = _KEY.pack(key.subpartition, key.weight, len(values))
        part = numbers + b"".join(bytes([len(value)]) + value for value in values)
        left -= len(part)
        if left < 0 or len(parts) == MOST_KEYS:
            break
        parts.append(part)
    return _HEADER.pack(_VERSION, len(parts)) + b"".join(parts) if parts else b""


def decode_heavy_keys(data: bytes) -> list[HeavyKey]:
    """Raises ValueError for bytes that are no report of heavy keys."""
    if not data:
        return []
    keys: list[HeavyKey] = []
    try:
        version, count = _HEADER.unpack_from(data)
        at = _HEADER.size
        for _ in range(count):
            subpartition, weight, columns = _KEY.unpack_from(data, at)
            at += _KEY.size
            values: list[str] = []
            for _ in range(columns):
                end = at + 1 + data[at]
                values.append(data[at + 1 : end].decode())
                at = end
            keys.append(HeavyKey(subpartition, weight, tuple(values)))
    except (struct.error, IndexError, UnicodeDecodeError) as damage:
        raise ValueError(f"no report of heavy keys: {damage}") from damage
    if version != _VERSION or at != len(data):
        raise ValueError("no report of heavy keys: it is cut, or of another version")
    return keys

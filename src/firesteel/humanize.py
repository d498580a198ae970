"""Bytes, counts and durations as people write them. Stdlib only."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from firesteel.errors import UsageError

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but line ends and tabs, and those that turn the direction of text."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_bytes(count: float) -> str:
    """``"741 MiB"``, ``"63.1 MiB"``, ``"17 B"``: binary units, three significant digits, none where exact."""
    if count < 0:
        return "-" + format_bytes(-count)
    value, unit = float(count), 0
    # 1023.5 KiB would be printed as "1024 KiB": that is the next unit's 1.
    while unit < len(_UNITS) - 1 and round(value) >= 1024:
        value /= 1024
        unit += 1
    return f"{_three_digits(value)} {_UNITS[unit]}"


def format_count(count: int) -> str:
    """``"12,345"``."""
    return f"{count:,}"


def format_seconds(seconds: float) -> str:
    """``"12 ms"``, ``"3.4 s"``, ``"2 min 5 s"``, ``"1 h 2 min"``."""
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{round(seconds, 1):g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def plural(count: int, noun: str, ending: str = "s") -> str:
    """``"1 subtask"``, ``"12 subtasks"``; ``"12 batches"`` with the ending ``"es"``."""
    return f"{format_count(count)} {noun}" if count == 1 else f"{format_count(count)} {noun}{ending}"


def minor_version(version: str) -> str:
    """``3.11`` of ``3.11.4``."""
    return ".".join(version.split(".")[:2])


def first_of(names: Sequence[str], most: int = 50) -> str:
    """``"a, b, c"``; of many names the first, and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {format_count(len(names) - most + 1)} more"


def named_twice(names: Iterable[str]) -> str | None:
    """The first name that occurs more than once; None where none does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def check_once(names: Iterable[str], said: Callable[[str], str], hint: str | None = None) -> None:
    """Raises UsageError for the first name that occurs more than once. ``said``: the sentence about it."""
    twice = named_twice(names)
    if twice is not None:
        raise UsageError(said(twice), hint=hint)


def _three_digits(value: float) -> str:
    if value == int(value) or value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def printable(text: str) -> str:
    """The text without what steers a terminal, and with a question mark for each character that stdout's encoding lacks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return unsteering(text).encode(encoding, "replace").decode(encoding)


def unsteering(text: str) -> str:
    """The text with an escape (``\\x1b``) for each character that would steer the terminal: names in journals, rows and what
    users' functions raise are not ours."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)

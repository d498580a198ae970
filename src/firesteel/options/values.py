"""Options and the syntax of their values: sizes, durations, numbers, names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

T = TypeVar("T")

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_MOST = 1 << 63
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kb": KIB,
    "kib": KIB,
    "m": MIB,
    "mb": MIB,
    "mib": MIB,
    "g": GIB,
    "gb": GIB,
    "gib": GIB,
    "t": GIB << 10,
    "tb": GIB << 10,
    "tib": GIB << 10,
}
_TIME_UNITS = {"": 0.001, "ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")


def parse_size(value: Any) -> int:
    """Bytes of ``"16 MiB"``, ``"1g"``, ``4096`` (KB, MB, GB are binary, as in Flink). Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _no_more_than_eib(value)
    match = _QUANTITY.match(str(value))
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("a size such as '64 MiB', '1 GiB' or a number of bytes")
    unit = _SIZE_UNITS[match[2].lower()]
    # A float has 53 bits: whole numbers are taken as they are.
    return _no_more_than_eib(int(match[1]) * unit if match[1].isdigit() else round(min(float(match[1]), _MOST) * unit))


class TooLargeError(ValueError):
    """A size of so many bytes is more than any counter of ours holds."""

    def __init__(self, size: int) -> None:
        super().__init__("a size below 8 EiB")
        self.size = size


def _no_more_than_eib(size: int) -> int:
    if size >= _MOST:
        raise TooLargeError(size)
    return size


def parse_seconds(value: Any) -> float:
    """Seconds of ``"1 s"``, ``"500 ms"``, ``"2 min"``; a bare number is milliseconds, as in Flink. Raises ValueError."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    match = _QUANTITY.match(str(value))
    if match is None or match[2].lower() not in _TIME_UNITS:
        raise ValueError("a duration such as '500 ms', '1 s' or '2 min'")
    return float(match[1]) * _TIME_UNITS[match[2].lower()]


def parse_wait(value: Any) -> float:
    """Seconds; whatever is negative is -1: without limit."""
    text = str(value).strip()
    if text.startswith("-"):
        parse_seconds(text[1:])
        return -1.0
    return parse_seconds(value)


def parse_int(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
        raise ValueError("a whole number")
    try:
        return int(value)
    except ValueError:  # Python refuses to read thousands of digits
        raise ValueError("a whole number of fewer digits") from None


def parse_number(value: Any) -> float:
    """``0.75``, ``"75%"``. Raises ValueError."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def parse_bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def parse_names(value: Any) -> tuple[str, ...]:
    """Dotted names out of ``"a.b, c"``, or of a list of them. Raises ValueError."""
    given: Any = value if isinstance(value, tuple | list) else str(value).split(",")
    names = tuple(name for one in given if (name := str(one).strip()))
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise ValueError("names of modules or functions with commas between them")
    return names


class Scope(Enum):
    """Kinds of jobs in which an option has an effect."""

    BATCH = "batch jobs"
    STREAMS = "streams"
    BOTH = "batch jobs and streams"


_KINDS: dict[Callable[[Any], Any], str] = {
    parse_int: "int",
    parse_number: "float",
    parse_bool: "bool",
    parse_size: "size",
    parse_seconds: "duration",
    parse_wait: "duration",
    parse_names: "string",
    str: "string",
}


@dataclass(frozen=True)
class Option(Generic[T]):
    """``check`` returns a complaint ("must be at least 1") or None. A default of None means unset."""

    key: str
    parse: Callable[[Any], T]
    default: T
    doc: str
    aliases: tuple[str, ...] = ()
    """Other keys that mean the same, without a warning (today's Flink keys)."""
    deprecated_keys: tuple[str, ...] = ()
    """Older keys that mean the same; using one warns, once in a process."""
    check: Callable[[T], str | None] = lambda _value: None
    scope: Scope = Scope.BATCH
    streams_have: str = ""
    """The option for streams in the place of this one, which is for batch jobs."""

    @property
    def kind(self) -> str:
        """``int``, ``float``, ``bool``, ``size``, ``duration``, ``string``, or ``enum``: one of some names."""
        return _KINDS.get(self.parse, "enum")


def at_least(least: float, text: str | None = None) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value is None or value >= least:
            return None
        return f"must be at least {text or least}" if least else "must not be negative"

    return check


def is_share(value: float) -> str | None:
    return None if 0 <= value <= 1 else "must be between 0 and 1"

"""Types that Spark brings together by itself: operands, branches, arguments. ``ansi``: in its ANSI mode.

A type is as in ``types``; ``void`` is that of a null. A wanted type may be a kind of types (``number``), or several of them: ``string/binary``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from firesteel.plan.types import FLOATS, INTEGERS, decimal_of, element_of, entry_of, fields_of, is_text

VOID = "void"
MOST_DIGITS = 38
TIMES = ("timestamp", "timestamp_ntz")
_NUMBERS = (*INTEGERS, *FLOATS)
"""In order: each type is widened to those after it."""
_DIGITS = {"byte": (3, 0), "short": (5, 0), "integer": (10, 0), "long": (20, 0), "float": (14, 7), "double": (30, 15)}
_PLAIN = ("string", "binary", "boolean", "date", *TIMES)


def is_number(kind: Any) -> bool:
    return kind in _NUMBERS or decimal_of(kind) is not None


def as_decimal(kind: Any) -> tuple[int, int]:
    """Digits and places of the decimal for a type of numbers."""
    return decimal_of(kind) or _DIGITS[kind]


def decimal(digits: int, places: int) -> str:
    return f"decimal({digits},{places})"


def bounded(digits: int, places: int) -> str:
    """The type, with fewer places where it would have more than 38 digits, but with six of them at least."""
    if digits <= MOST_DIGITS:
        return decimal(digits, places)
    return decimal(MOST_DIGITS, max(MOST_DIGITS - (digits - places), min(places, 6)))


def wider_decimal(a: Any, b: Any) -> str:
    """Keeps all digits before the point."""
    (p1, s1), (p2, s2) = as_decimal(a), as_decimal(b)
    places = max(s1, s2)
    digits = max(p1 - s1, p2 - s2) + places
    return decimal(min(digits, MOST_DIGITS), max(places - max(digits - MOST_DIGITS, 0), 0))


def tightest(a: Any, b: Any, ansi: bool) -> Any:
    """The type that holds the values of both, without a loss of digits; None: there is none."""
    if a == VOID:
        return b
    if b in (a, VOID):
        return a
    if a in _NUMBERS and b in _NUMBERS:
        wider = max(a, b, key=_NUMBERS.index)
        return "double" if wider == "float" and ansi else wider
    if is_number(a) and is_number(b) and not {a, b} & set(FLOATS):
        return next((one for one, other in ((a, b), (b, a)) if decimal_of(one) and _holds(one, other)), None)
    if a in ("date", *TIMES) and b in ("date", *TIMES):
        return "timestamp" if "timestamp" in (a, b) else "timestamp_ntz"
    return _of_parts(a, b, lambda c, d: tightest(c, d, ansi))


def _holds(a: Any, b: Any) -> bool:
    (p1, s1), (p2, s2) = as_decimal(a), as_decimal(b)
    return p1 - s1 >= p2 - s2 and s1 >= s2


def _of_parts(a: Any, b: Any, find: Callable[[Any, Any], Any]) -> Any:
    """The type of arrays, maps and structs whose parts have one."""
    elements = element_of(a), element_of(b)
    if None not in elements:
        return array_of(found) if (found := find(*elements)) else None
    one, other = entry_of(a), entry_of(b)
    if one and other:
        found = list(map(find, one, other))
        return map_of(*found) if None not in found else None
    left, right = fields_of(a), fields_of(b)
    if left and right and [name for name, _ in left] == [name for name, _ in right]:
        found = [find(kind, to) for (_, kind), (_, to) in zip(left, right, strict=True)]
        return struct_of([(n, kind) for (n, _), kind in zip(left, found, strict=True)]) if None not in found else None
    return None


def array_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def struct_of(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
    }


def with_text(a: Any, b: Any) -> Any:
    """In ANSI mode, the type as which a text and another value are compared or computed with; None: they are not."""
    other = b if is_text(a) else a
    if is_text(a) == is_text(b) or isinstance(other, dict):
        return None
    if other == VOID:
        return "string"
    if is_number(other):
        return "long" if other in INTEGERS else "double"
    return other if other in _PLAIN else None


def wider(a: Any, b: Any, ansi: bool, *, texts: bool = True) -> Any:
    """The type of a choice between both; None: there is none. ``texts``: one of them may be a text and the other one not."""
    found = tightest(a, b, ansi)
    if found is None and is_number(a) and is_number(b):
        found = "double" if {a, b} & set(FLOATS) else wider_decimal(a, b)
    if found is None and texts and is_text(a) != is_text(b):
        other = b if is_text(a) else a
        plain = is_number(other) or other in ("date", *TIMES)
        found = with_text(a, b) if ansi else "string" if plain else None
    return found or _of_parts(a, b, lambda c, d: wider(c, d, ansi, texts=texts))


def common(kinds: Sequence[Any], ansi: bool, *, texts: bool = True) -> Any:
    """As :func:`wider` of several."""
    found: Any = VOID
    for kind in kinds if ansi else sorted(kinds, key=lambda kind: not is_text(kind)):
        found = None if found is None else wider(found, kind, ansi, texts=texts)
    return found


def compared(a: Any, b: Any, ansi: bool) -> Any:
    """The type as which two values are compared; None: they are not."""
    if is_text(a) != is_text(b) and VOID not in (a, b):
        if ansi:
            return with_text(a, b)
        other = b if is_text(a) else a
        if (decimal_of(other) or (0, 0))[1]:
            return "double"
        return other if is_number(other) or other in _PLAIN else None
    if is_number(a) and is_number(b):
        return wider(a, b, ansi)
    return tightest(a, b, ansi)


# --- arguments --------------------------------------------------------------------------------------------------------

_KINDS: dict[str, tuple[Callable[[Any], bool], Any]] = {
    "any": (lambda kind: True, None),
    "number": (is_number, "double"),
    "integral": (lambda kind: kind in INTEGERS, "long"),
    "decimal": (lambda kind: decimal_of(kind) is not None, "decimal(38,18)"),
    "time": (lambda kind: kind in TIMES, "timestamp"),
    "array": (lambda kind: element_of(kind) is not None, array_of(VOID)),
    "map": (lambda kind: entry_of(kind) is not None, map_of(VOID, VOID)),
    "struct": (lambda kind: fields_of(kind) is not None, None),
    "arrays": (lambda kind: element_of(element_of(kind)) is not None, None),
    "entries": (lambda kind: len(fields_of(element_of(kind)) or ()) == 2, None),
    "strings": (lambda kind: is_text(element_of(kind)), array_of("string")),
}
"""Kinds of types: which belong to one, and which is taken for a null."""


def accepts(wanted: str, kind: Any) -> bool:
    return any(_KINDS[one][0](kind) if one in _KINDS else one == kind for one in wanted.split("/"))


def implicit(kind: Any, wanted: str, ansi: bool) -> Any:
    """The type to which an argument is cast where ``wanted`` is taken; None: it is not."""
    if wanted.startswith("!") and kind != VOID:
        return kind if accepts(wanted[1:], kind) else None
    wanted = wanted.removeprefix("!")
    if accepts(wanted, kind):
        return kind
    several = wanted.split("/")
    if len(several) == 1:
        return _to_one(kind, wanted, ansi)
    found = [to for one in several if (to := _to_one(kind, one, ansi)) is not None]
    if not ansi or not found:
        return found[0] if found else None
    closest = next(
        (one for one in found if all(one == to or (isinstance(to, str) and implicit(one, to, ansi)) for to in found)),
        None,
    )
    return "double" if closest == "float" and "double" in found else closest


def _to_one(kind: Any, wanted: str, ansi: bool) -> Any:  # noqa: PLR0911 - one for each family
    if accepts(wanted, kind):
        return kind
    default = _KINDS[wanted][1] if wanted in _KINDS else wanted
    if kind == VOID:
        return default
    if wanted == "decimal" and is_number(kind):
        return decimal(*as_decimal(kind))
    if is_text(kind):
        return default if isinstance(default, str) and wanted not in ("integral", ansi or "boolean") else None
    if kind == "date" and wanted == "time":
        return default
    if wanted == "strings" and isinstance(element_of(kind), str):
        return default
    if wanted in _KINDS or isinstance(kind, dict):
        return None
    numbers = is_number(kind) and is_number(wanted)
    days = kind in ("date", *TIMES) and wanted in ("date", *TIMES)
    return wanted if numbers or days or wanted == "string" else None

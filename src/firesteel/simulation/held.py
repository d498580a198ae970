"""Memory of an object, by walking to all that it refers to. Exact for columns; costs nothing but when asked. And memory given back."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_NOT_HELD = (type, ModuleType, FunctionType, BuiltinFunctionType, Enum)
"""Code, not state."""


def held_bytes(root: object, *, without: Iterable[object] = ()) -> int:
    """Bytes of ``root`` and of everything reachable from it, each counted once; ``without`` is not followed."""
    seen = {id(other) for other in without}
    total, waiting = 0, [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, _NOT_HELD):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, np.ndarray):
            # A view's memory is its base's, which may be another view of a thing that is not an array.
            waiting += [] if thing.base is None else [thing.base]
        else:
            waiting += _referred_to(thing)
    return total


def give_back() -> None:
    """Gives the system what large columns have left free in the middle of the heap, where the C library can do that (glibc)."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _referred_to(thing: Any) -> list[Any]:
    if isinstance(thing, str | bytes | int | float | memoryview):
        return []
    if isinstance(thing, Mapping):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set | frozenset | deque):
        return list(thing)
    if isinstance(thing, MethodType):
        return [thing.__self__]
    found = [vars(thing)] if hasattr(thing, "__dict__") else []
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        found += [getattr(thing, name) for name in names if name != "__dict__" and hasattr(thing, name)]
    # Fields of records are not attributes of a dictionary.
    found += [getattr(thing, name) for name in getattr(type(thing), "__struct_fields__", ())]
    return found

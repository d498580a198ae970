"""The arguments of ``map_async``, checked."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from firesteel.api.steps.common import plain_function, require_count
from firesteel.errors import UsageError
from firesteel.options.registry import parse_seconds
from firesteel.task.services.calls import CallPolicy

_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*/\s*(s|sec|second|min|minute|h|hour)\s*$")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
MOST_CONCURRENT = 10_000
_NO_SET_UP = "Give an async function, or an object whose async __call__ opens the client in its first call, on the event loop it belongs to."


def settings(func: Any, *, concurrency: Any, ordered: bool, rate: Any, retries: Any, timeout: Any) -> dict[str, Any]:
    """The fields of ``MapAsync`` for them. Raises UsageError."""
    name = plain_function(func, "map_async", _NO_SET_UP)
    if not is_async(func):
        raise UsageError(
            f"map_async wants an async function, and {name} is none.",
            hint="Write 'async def', or use map(f, schema) for a plain function.",
        )
    if require_count(concurrency, "concurrency of map_async", 1) > MOST_CONCURRENT:
        raise UsageError(f"concurrency of map_async must be at most {MOST_CONCURRENT:,}, not {concurrency:,}.")
    require_count(retries, "retries of map_async", 0)
    return {
        "calls": CallPolicy(concurrency, retries, None if timeout is None else _seconds(timeout)),
        "ordered": bool(ordered),
        "rate": None if rate is None else per_second(rate),
    }


def is_async(func: Callable[..., Any]) -> bool:
    """True of coroutine functions, of objects that are called as one, and of either with some arguments bound."""
    while isinstance(func, partial):
        func = func.func  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def per_second(rate: Any) -> float:
    """Calls a second of ``"100/s"``, ``"5000/min"`` or a number, which is by the second. Raises UsageError."""
    found = None
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        found = float(rate)
    elif isinstance(rate, str) and (match := _RATE.match(rate)):
        found = float(match[1]) / _SECONDS[match[2][0]]
    if found is None:
        raise UsageError(
            f'rate of map_async is a number of calls a second, "100/s", "5000/min" or "1000/h", not {rate!r}.'
        )
    if not 0 < found < math.inf:
        raise UsageError(
            f"The rate of map_async must be above 0 calls a second and finite; {rate!r} is not.",
            hint="Leave rate out to call without a limit.",
        )
    return found


def _seconds(timeout: Any) -> float:
    found = None
    if isinstance(timeout, timedelta):
        found = timeout.total_seconds()
    elif isinstance(timeout, int | float) and not isinstance(timeout, bool):
        found = float(timeout)
    elif isinstance(timeout, str):
        try:
            found = parse_seconds(timeout)
        except ValueError:
            found = None
    if found is None or not (0 < found < math.inf):
        raise UsageError(f'timeout of map_async is a number of seconds, or "500 ms" or "2 s", not {timeout!r}.')
    return found

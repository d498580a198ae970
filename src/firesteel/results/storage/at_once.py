"""Requests of which several are under way at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def mapped(function: Callable[[_T], _R], items: Iterable[_T], at_once: int) -> list[_R]:
    """Returns ``function`` of each item, of ``at_once`` of them at the same time. One after another where there are no threads to be had, as at the end
    of the process: some may be asked for twice then. Raises what the first of them raises."""
    wanted = list(items)
    if min(at_once, len(wanted)) <= 1:
        return [function(item) for item in wanted]
    with ThreadPoolExecutor(min(at_once, len(wanted))) as pool:
        try:
            found = pool.map(function, wanted)
        except RuntimeError:  # raised where an item is handed over; what the function raises comes later
            found = map(function, wanted)
        return list(found)

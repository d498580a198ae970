"""Fetches from a far store what will be needed next, while what is there already is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_W = TypeVar("_W")
_F = TypeVar("_F")


def fetched(wanted: Iterable[_W], fetch: Callable[[_W], _F], threads: int) -> Iterator[tuple[_W, _F]]:
    """Each with what ``fetch`` gave for it, in order; ``threads``: how many are fetched ahead, 0: none.

    Closing the iterator gives up what was not begun, and waits for what was.
    """
    if threads == 0:
        for one in wanted:
            yield one, fetch(one)
        return
    pool = ThreadPoolExecutor(threads)
    waiting: deque[tuple[_W, Future[_F]]] = deque()
    try:
        for one in wanted:
            waiting.append((one, pool.submit(fetch, one)))
            if len(waiting) > threads:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)

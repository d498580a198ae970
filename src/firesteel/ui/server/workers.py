"""Threads that make answers: two of them beside the server's loop, which rest after each, so that they never take more than a part of a core
from the job beside them; and what several ask for at once is made once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from firesteel.errors import FiresteelError

T = TypeVar("T")

THREADS = 2
MOST_WAITING = 256
"""Answers that wait to be made; who asks for more is told to come again later."""
LONGEST_REST = 0.5
"""A process that ends waits for it."""
KEPT_SECONDS = 1.0
"""While others wait, an answer that was made so shortly ago is given again."""
KEPT_BYTES = 1 << 24


class Busy(FiresteelError):
    """Too much is asked for at once."""


class Workers:
    """Used on one loop. ``rest``: of each thread after its work, as a multiple of the time that took: 0 where there is no job beside it."""

    def __init__(self, rest: float = 0.0) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "firesteel-ui-worker")
        self._rest = rest
        self._waiting = 0

    @property
    def is_busy(self) -> bool:
        """Somebody would have to wait."""
        return self._waiting >= THREADS

    async def run(self, make: Callable[[], T]) -> T:
        """Returns or raises as ``make`` does. Raises Busy."""
        if self._waiting >= MOST_WAITING:
            raise Busy("Too much is asked for at once.", hint="Try again later.")
        self._waiting += 1
        loop = asyncio.get_running_loop()
        made: asyncio.Future[T] = loop.create_future()
        try:
            self._pool.submit(self._work, make, loop, made)
            return await made
        except RuntimeError as error:  # the process ends
            if made.done():
                raise
            raise Busy("The server ends.") from error
        finally:
            self._waiting -= 1

    def _work(self, make: Callable[[], T], loop: asyncio.AbstractEventLoop, made: asyncio.Future[T]) -> None:
        began = time.thread_time()
        try:
            result = make()
        except BaseException as error:
            self._tell(loop, lambda error=error: made.done() or made.set_exception(error))
        else:
            self._tell(loop, lambda: made.done() or made.set_result(result))
        if self._rest:
            time.sleep(min(LONGEST_REST, self._rest * (time.thread_time() - began)))

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[], object]) -> None:
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the server has stopped meanwhile
            return

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Shared(Generic[T]):
    """Things that are made once for all who ask at the same time, and, under load, a moment after. ``size``: bytes of one."""

    def __init__(self, size: Callable[[T], int]) -> None:
        self._size = size
        self._making: dict[Hashable, asyncio.Task[T]] = {}
        self._kept: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._bytes = 0

    async def get(self, key: Hashable, make: Callable[[], T], workers: Workers) -> T:
        """Raises what ``make`` raises, and Busy."""
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and workers.is_busy and now - kept[0] < KEPT_SECONDS:
            return kept[1]
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._made(key, make, workers))
        return await asyncio.shield(task)

    async def _made(self, key: Hashable, make: Callable[[], T], workers: Workers) -> T:
        try:
            made = await workers.run(make)
        finally:
            del self._making[key]
        self._keep(key, made)
        return made

    def _keep(self, key: Hashable, made: T) -> None:
        now = time.monotonic()
        old = self._kept.pop(key, None)
        self._bytes += self._size(made) - (self._size(old[1]) if old else 0)
        self._kept[key] = (now, made)
        while self._kept and (self._bytes > KEPT_BYTES or now - next(iter(self._kept.values()))[0] >= KEPT_SECONDS):
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= self._size(gone)

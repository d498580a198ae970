"""Calls in flight: rows go in from the task's thread, a fixed number of coroutines on the worker's event loop works on them."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from firesteel.errors import FiresteelError
from firesteel.model.reports import CALL_MS, CALLS, RETRIES, WAITED_MS, StepReport
from firesteel.task.functions.rows import Row
from firesteel.task.services.rates import SharedRate

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds before the first repetition, at most; each further one waits twice as long."""
CLOSE_SECONDS = 5.0
"""For coroutines that were cancelled to end."""


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """``retries``: repetitions of a call that failed; ``timeout``: seconds for each try, None: as long as it takes."""

    concurrency: int
    retries: int = 0
    timeout: float | None = None


ONE_CALL = CallPolicy(1)


class Answer(NamedTuple):
    """``number``: of the row, as it was submitted. ``error``: None if the function returned ``value``."""

    number: int
    value: Any
    error: BaseException | None


class Calls:
    """The calls of one step in one task. A context: at its end what is still in flight is cancelled, and waited for.

    ``seed``: of the pauses' jitter. Rows that are submitted wait until one of ``concurrency`` coroutines is free.
    """

    def __init__(
        self,
        function: Callable[[Row], Awaitable[Any]],
        policy: CallPolicy,
        rate: SharedRate | None,
        report: StepReport,
        seed: str,
    ) -> None:
        self._function, self._policy, self._rate, self._report = function, policy, rate, report
        self._random = random.Random(seed)
        self._enough = max(1, policy.concurrency // 2)
        """Answers that are worth waking the task's thread for, while rows are left to work on."""
        self._answers: deque[Answer] = deque()
        self._news = threading.Event()
        self._gone = threading.Event()
        self._broken: BaseException | None = None
        self._seconds = self._waited = 0.0
        self.most_outstanding = 2 * policy.concurrency
        """As many rows wait as are worked on, so that no coroutine has to wait for one."""
        self.outstanding = 0
        """Rows that were submitted and whose answers were not taken yet."""

    def __enter__(self) -> Self:
        self._loop = worker_loop()
        self._rows: asyncio.Queue[tuple[int, Row]] = asyncio.Queue()
        self._loop.call_soon_threadsafe(self._begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        if not self._gone.wait(CLOSE_SECONDS):
            give_up(self._loop)
        self._report.add(CALL_MS, round(1e3 * self._seconds))
        self._report.add(WAITED_MS, round(1e3 * self._waited))

    @property
    def room(self) -> int:
        """Rows to submit now."""
        return max(0, self.most_outstanding - self.outstanding)

    def submit(self, rows: Sequence[tuple[int, Row]]) -> None:
        self.outstanding += len(rows)
        self._loop.call_soon_threadsafe(self._take_in, rows)

    def answers(self, timeout: float) -> list[Answer]:
        """Waits for answers, at most ``timeout`` seconds; they come in the order in which they were given.

        Raises FiresteelError where the calls have ended by themselves.
        """
        begun = time.monotonic()
        self._news.wait(timeout)
        self._waited += time.monotonic() - begun
        self._news.clear()
        found = [self._answers.popleft() for _ in range(len(self._answers))]
        self.outstanding -= len(found)
        if not found and self._gone.is_set():
            raise FiresteelError("The calls have ended before all rows were worked on.") from self._broken
        return found

    # --- on the event loop ---

    def _take_in(self, rows: Sequence[tuple[int, Row]]) -> None:
        for row in rows:
            self._rows.put_nowait(row)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work_all())
        self._task.add_done_callback(self._ended)  # called too if it is cancelled before it has begun

    def _cancel(self) -> None:
        self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._broken = None if task.cancelled() else task.exception()
        self._gone.set()
        self._news.set()

    async def _work_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._policy.concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            number, row = await self._rows.get()
            self._answers.append(await self._answer(number, row))
            if len(self._answers) >= self._enough or self._rows.empty():
                self._news.set()

    async def _answer(self, number: int, row: Row) -> Answer:
        tries = 0
        while True:
            try:
                if self._rate is not None:
                    await self._rate.turn()
                return Answer(number, await self._call(row), None)
            except FiresteelError as error:
                return Answer(number, None, error)
            except Exception as error:
                if tries == self._policy.retries:
                    return Answer(number, None, error)
            tries += 1
            self._report.add(RETRIES)
            await asyncio.sleep(self._pause(tries))

    async def _call(self, row: Row) -> Any:
        self._report.add(CALLS)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._policy.timeout):
                return await self._function(row)
        except TimeoutError as error:
            if self._policy.timeout is not None and time.monotonic() - begun >= self._policy.timeout:
                raise TimeoutError(f"no answer within {self._policy.timeout:g} s") from error
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # we are closed
            raise RuntimeError("it was cancelled by itself") from error
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop of all steps
            raise RuntimeError(f"{type(error).__name__} in a coroutine") from error
        finally:
            self._seconds += time.monotonic() - begun

    def _pause(self, tries: int) -> float:
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 20))
        return longest * (0.5 + self._random.random() / 2)


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = 0
"""The process that the loop's thread runs in: a forked one has none."""


def worker_loop() -> asyncio.AbstractEventLoop:
    """The running loop of this process."""
    global _loop, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="firesteel-event-loop", daemon=True).start()
        return _loop


def give_up(loop: asyncio.AbstractEventLoop) -> None:
    """Something holds the loop up and does not let go: what comes next gets another one."""
    global _loop  # noqa: PLW0603
    with _lock:
        if _loop is loop:
            _loop = None

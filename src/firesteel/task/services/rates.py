"""A limit on calls a second that all subtasks of a step share, wherever they run.

The workers of an executor share a bucket: a small file on its local disk, locked for the microseconds in which one of them takes some
calls out of it. Executors share the limit evenly: each that calls leaves a mark on the job's storage and looks at the others' marks
every second; with n of them a share is the n-th part. Shares never come to more than the limit:

* Who comes leaves its mark first and looks then; where it is not alone it waits for VALID_SECONDS. By then all others have looked again,
  or do not call: what a look told is good for so long from before it on.
* A mark is a number that its owner counts up at each look. One that stands still for GONE_SECONDS is of an executor that calls no more,
  and would have to come anew: its share falls to the others.

No clocks are compared. Within a share calls are spaced evenly; what is not used within GRAIN_SECONDS is lost. The pace is a little below
the limit, so that a grain too much does not pass it in any second.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from firesteel.errors import error_words
from firesteel.results.storage.store import ResultStore, StorageError
from firesteel.task.program import TaskContext

GRAIN_SECONDS = 0.01
"""Calls of so long a time may be made together."""
PACE = 0.98
LOOK_SECONDS, VALID_SECONDS, GONE_SECONDS = 1.0, 3.0, 10.0
_LOOKED_FOR = 10.0
"""Seconds after which a worker that began to look is taken to have died of it."""
_NEVER = -1e9


def rate_of(step: str, limit: float | None, ctx: TaskContext) -> SharedRate | None:
    """``limit``: calls a second of the whole job; None: as many as there are."""
    if limit is None:
        return None
    name = "rate-" + hashlib.sha1(f"{ctx.vertex}/{step}".encode(), usedforsecurity=False).hexdigest()[:12]
    marks = None if ctx.peers is None else Marks(ctx.peers.within(name))
    return SharedRate(limit, ctx.scratch.parent / f"{name}.json", marks)


class Marks:
    """Of the executors, as objects named ``owner.number``, so that one listing tells all."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    def leave(self, owner: str, number: int) -> None:
        """Raises StorageError."""
        if number == 1:
            self._store.create()
        self._store.replace(f"{owner}.{number}", b"")
        self._store.delete([f"{owner}.{number - 1}"])

    def numbers(self) -> dict[str, int]:
        """By owner. Raises StorageError."""
        found: dict[str, int] = {}
        for name in self._store.list():
            owner, _, number = name.partition(".")
            if number.isdigit():
                found[owner] = max(found.get(owner, 0), int(number))
        return found


@dataclass(slots=True)
class Bucket:
    """The common knowledge of an executor's workers. Times are of the machine's monotonic clock."""

    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    next: float = _NEVER
    """When the next call may be made."""
    executors: int = 0
    """The number that share the limit."""
    begins: float = _NEVER
    """When our share may be used first."""
    looked: float = _NEVER
    """When the last look was begun."""
    looking: float = _NEVER
    """When a worker began to look; nobody else does meanwhile."""
    others: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Of each other executor the number on its mark, and when it was seen first."""

    def saw(self, numbers: Mapping[str, int], *, began: float, left: float) -> None:
        """A look that began at ``began`` and had left our mark at ``left`` found these marks."""
        came = left - self.looked >= GONE_SECONDS - VALID_SECONDS
        known = self.others
        self.others = {
            owner: known[owner] if owner in known and known[owner][0] == number else (number, began)
            for owner, number in numbers.items()
            if owner != self.owner
        }
        living = sum(began - since < GONE_SECONDS for _, since in self.others.values())
        if came:
            self.begins = left + VALID_SECONDS if living else _NEVER
        self.looked, self.looking, self.executors = began, _NEVER, 1 + living


class SharedRate:
    """``limit``: calls a second of all executors. ``file``: of the bucket. ``marks``: None where there is no other executor."""

    def __init__(
        self, limit: float, file: Path, marks: Marks | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._file, self._marks, self._clock = limit * PACE, file, marks, clock
        self._queue = asyncio.Lock()
        self._taken, self._until = 0, 0.0
        """Calls that were taken out of the bucket, and when they are lost."""
        self._look: asyncio.Future[None] | None = None

    async def turn(self) -> None:
        """Returns when one more call may be made."""
        async with self._queue:
            while (pause := self.take()) > 0:
                if self._look is not None and self._look.done():
                    self._look.result()  # raises what it raised
                    self._look = None
                await asyncio.sleep(pause)

    def take(self) -> float:
        """Takes one call and returns 0, or the seconds after which to ask again."""
        now = self._clock()
        if not self._taken or now > self._until:
            pause = self._fill(now)
            if pause > 0:
                return pause
        self._taken -= 1
        return 0.0

    def _fill(self, now: float) -> float:
        with self._bucket() as bucket:
            if self._marks is None:
                bucket.executors = 1
            else:
                if now >= bucket.looked + LOOK_SECONDS and now >= bucket.looking + _LOOKED_FOR:
                    bucket.looking = now
                    self._begin_look()
                if now >= bucket.looked + VALID_SECONDS:
                    return GRAIN_SECONDS
            if now < bucket.begins:
                return bucket.begins - now
            if now < bucket.next:
                return bucket.next - now
            share = self._limit / bucket.executors
            self._taken = max(1, int(share * GRAIN_SECONDS))
            bucket.next = max(bucket.next, now - GRAIN_SECONDS) + self._taken / share
            self._until = now + GRAIN_SECONDS
            return 0.0

    def _begin_look(self) -> None:
        self._look = asyncio.get_running_loop().run_in_executor(None, self.look)

    def look(self) -> None:
        """Leaves our mark, and takes note of the others'. In a thread of its own: storage may take its time. Raises StorageError."""
        assert self._marks is not None
        began = self._clock()
        with self._bucket() as bucket:
            bucket.number += 1
            owner, number = bucket.owner, bucket.number
        self._marks.leave(owner, number)
        left = self._clock()
        numbers = self._marks.numbers()
        with self._bucket() as bucket:
            bucket.saw(numbers, began=began, left=left)

    @contextmanager
    def _bucket(self) -> Generator[Bucket]:
        """The bucket, locked; what is changed of it is kept. Raises StorageError."""
        try:
            handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(
                f"{self._file}, by which workers share a rate, cannot be opened: {error_words(error)}."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            data = os.pread(handle, 1 << 20, 0)
            bucket = Bucket(**json.loads(data)) if data else Bucket()
            bucket.others = {owner: (seen[0], seen[1]) for owner, seen in bucket.others.items()}
            yield bucket
            new = json.dumps(asdict(bucket)).encode()
            os.pwrite(handle, new, 0)
            os.ftruncate(handle, len(new))
        finally:
            os.close(handle)  # which gives the lock back

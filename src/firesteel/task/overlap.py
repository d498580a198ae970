"""Work beside a function that computes: its next batches are read, and its results written, by threads of their own.

Both are bounded by a number of batches, hand errors on as if there were no thread, and end with whoever has started them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from firesteel.task.batches import closing
from firesteel.task.program import TaskContext

T = TypeVar("T")


class _Channel(Generic[T]):
    """A queue of at most ``most`` items from one thread to another. Either of them may end it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._is_complete = False
        self._is_left = False

    def put(self, item: T) -> bool:
        """Waits for room. False: nobody takes it any more."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._most or self._is_left)
            if not self._is_left:
                self._items.append(item)
                self._changed.notify_all()
            return not self._is_left

    def complete(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def leave(self) -> None:
        """Nothing more is taken."""
        with self._changed:
            self._is_left = True
            self._items.clear()
            self._changed.notify_all()

    def items(self) -> Iterator[T]:
        """Yields the items that come, until there are no more."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_complete or self._is_left)
                if not self._items:
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item


def ahead(items: Iterator[T], number: int, ctx: TaskContext) -> Iterator[T]:
    """The same items; a thread makes up to ``number`` of them before they are asked for (0: none).

    ``ctx.place`` is in each thread that of the item it has in hand.
    """
    return items if not number else _ahead(items, number, ctx)


def _ahead(items: Iterator[T], number: int, ctx: TaskContext) -> Iterator[T]:
    channel = _Channel[tuple[T, str]](number)
    failed: list[tuple[BaseException, str]] = []

    def read() -> None:
        try:
            for item in items:
                if not channel.put((item, ctx.place)):
                    break
        except BaseException as error:
            failed.append((error, ctx.place))
        channel.complete()

    reader = threading.Thread(target=read, name="firesteel reads ahead", daemon=True)
    reader.start()
    try:
        for item, place in channel.items():
            ctx.place = place
            yield item
        ctx.place = ""
        for error, place in failed:
            ctx.place = place
            raise error
    finally:
        channel.leave()
        reader.join()
        closing(items)


class Behind(Generic[T]):
    """Calls ``write`` in a thread, for up to ``number`` items that wait. What it raises is raised by the next call of ``put`` or ``end``."""

    def __init__(self, write: Callable[[T], None], number: int) -> None:
        self._write = write
        self._channel = _Channel[T](number)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="firesteel writes behind", daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Waits until fewer than ``number`` wait."""
        if not self._channel.put(item) and self._error is not None:
            raise self._error

    def end(self) -> None:
        """Waits until all is written."""
        self._channel.complete()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Lets nothing more be written, and waits for what is being written just now."""
        self._channel.leave()
        self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._channel.items():
                self._write(item)
        except BaseException as error:
            self._error = error
            self._channel.leave()

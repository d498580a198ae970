"""Lines: the connections of a job's standing tasks, whose other ends one thread listens to.

A thread for each would cost the driver twice the CPU for each small execution: two reads for a message, and Python's own lock handed from thread
to thread. Messages are those of ``multiprocessing.connection``: four bytes say how many follow.
"""

from __future__ import annotations

import logging
import math
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

_HEAD, _LONG = struct.Struct("!i"), struct.Struct("!Q")
_SHORT_BYTES = (1 << 31) - 1
"""Longer messages are sent with -1 and a longer number before them. None comes."""
_READ_BYTES = 1 << 16
_COPIED_BYTES = 1 << 14
"""From so many bytes on a second write costs less than a copy."""
_log = logging.getLogger("firesteel.spark")

Heard = Callable[["Line", bytes], None]
Ended = Callable[["Line"], None]


class Line:
    """One connection, taken over. ``heard`` is called with it and each message, ``ended`` once, when the other end is gone; both in the thread of
    the lines. ``attend``: there is something for that to do."""

    def __init__(self, connection: Connection, heard: Heard, ended: Ended, attend: Callable[[Line], None]) -> None:
        self._heard, self.ended = heard, ended
        self.fd = connection.fileno()
        self.is_closing = False
        self.is_closed = False
        self._connection, self._attend = connection, attend
        self._sending = threading.Lock()
        self._inbox = bytearray()
        self._outbox: deque[memoryview] = deque()
        os.set_blocking(self.fd, False)

    def send(self, message: bytes) -> None:
        """Returns at once: what the other end does not take now it gets later, and where that is gone, ``ended`` will tell. Any thread."""
        with self._sending:
            is_next = not self._outbox
            head = _head(len(message))
            parts = (head + message,) if len(message) < _COPIED_BYTES else (head, message)
            self._outbox.extend(map(memoryview, parts))
            if is_next and self._flushed():
                return
        self._attend(self)

    def close(self) -> None:
        """Returns at once; nothing is heard any more. Any thread."""
        self.is_closing = True
        self._attend(self)

    # --- in the thread of the lines --------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """To wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)

    def write(self) -> None:
        """Sends what was left."""
        with self._sending:
            self._flushed()

    def read(self) -> bool:
        """Hears what has come. Returns False when the other end is gone."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._inbox += data
        while not self.is_closing and (message := self._message()) is not None:
            self._heard(self, message)
        return bool(data)

    def give_up(self) -> None:
        with self._sending:
            self.is_closing = self.is_closed = True
            self._outbox.clear()
            self._connection.close()

    # ---------------------------------------------------------------------------------------------------------

    def _message(self) -> bytes | None:
        """Takes out the first one, if all of it is there."""
        if len(self._inbox) < _HEAD.size:
            return None
        (length,) = _HEAD.unpack_from(self._inbox)
        if length < 0:
            raise ValueError("a message of over 2 GiB")
        end = _HEAD.size + length
        if len(self._inbox) < end:
            return None
        message = bytes(self._inbox[_HEAD.size : end])
        del self._inbox[:end]
        return message

    def _flushed(self) -> bool:
        """Sends what can be sent. Returns True when nothing is left."""
        try:
            while self._outbox and not self.is_closed:
                first = self._outbox[0]
                sent = os.write(self.fd, first)
                if sent < len(first):
                    self._outbox[0] = first[sent:]
                else:
                    self._outbox.popleft()
        except BlockingIOError:
            return False
        except OSError:  # the other end is gone
            self._outbox.clear()
        return True


def _head(length: int) -> bytes:
    return _HEAD.pack(length) if length <= _SHORT_BYTES else _HEAD.pack(-1) + _LONG.pack(length)


class Lines:
    """All lines of a job. ``due`` is called in their thread when the time has come that :meth:`call_at` was told; it says the next one there."""

    def __init__(self, name: str, due: Callable[[], None]) -> None:
        self._due, self._at = due, math.inf
        self._known: dict[int, tuple[Line, int]] = {}
        """By descriptor, with the events that are waited for."""
        self._changed: deque[Line] = deque()
        """New ones, those that have more to send, and those that are to be closed."""
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._waking = threading.Lock()
        self._awake, self._wakes = socket.socketpair()
        for end in (self._awake, self._wakes):
            end.setblocking(False)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def add(self, connection: Connection, heard: Heard, ended: Ended) -> Line:
        """Takes the connection over. Any thread."""
        line = Line(connection, heard, ended, self._attend)
        self._attend(line)
        return line

    def call_at(self, when: float) -> None:
        """By ``time.monotonic``; of several times the first one counts. Any thread."""
        if when < self._at:
            self._at = when
            self._wake()

    def close(self) -> None:
        """The thread ends with the last line."""
        self._is_closed = True
        self._wake()

    # ---------------------------------------------------------------------------------------------------------

    def _attend(self, line: Line) -> None:
        self._changed.append(line)
        self._wake()

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:
            with self._waking, suppress(OSError):  # as good as awake; or it has ended
                self._wakes.send(b"\0")

    def _listen(self) -> None:
        with self._selector, self._awake:
            while self._known or self._changed or not self._is_closed:
                self._look()
        with self._waking:
            self._wakes.close()

    def _look(self) -> None:
        left = None if self._at == math.inf else max(0.0, self._at - time.monotonic())
        for key, events in self._selector.select(left):
            if key.data is None:
                with suppress(BlockingIOError):
                    self._awake.recv(_READ_BYTES)
            elif not key.data.is_closing:
                self._serve(key.data, events)
        if time.monotonic() >= self._at:
            self._at = math.inf
            self._due()
        while self._changed:  # last, for what is done here wakes nobody
            self._settle(self._changed.popleft())

    def _serve(self, line: Line, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            line.write()
            self._changed.append(line)
        if events & selectors.EVENT_READ and not self._reads(line):
            was_closing = line.is_closing
            self._forget(line)
            if not was_closing:
                line.ended(line)

    def _reads(self, line: Line) -> bool:
        try:
            return line.read()
        except Exception:  # it speaks another language; the others go on
            _log.exception("a standing task said something that cannot be understood")
            return False

    def _settle(self, line: Line) -> None:
        if line.is_closing:
            self._forget(line)
            return
        try:
            self._listen_to(line, line.events)
        except OSError:  # the machine has no room for one more
            _log.exception("a standing task cannot be listened to")
            self._forget(line)
            line.ended(line)

    def _listen_to(self, line: Line, events: int) -> None:
        known = self._known.get(line.fd)
        if known is None:
            self._selector.register(line.fd, events, line)
        elif known[1] != events:
            self._selector.modify(line.fd, events, line)
        self._known[line.fd] = line, events

    def _forget(self, line: Line) -> None:
        known = self._known.get(line.fd)
        if known is not None and known[0] is line:
            self._selector.unregister(line.fd)
            del self._known[line.fd]
        line.give_up()

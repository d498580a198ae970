"""Messages of the control socket: one JSON line per request and per answer, both bounded.

``multiprocessing.connection`` waits for ever for a message whose sender stops in its middle, and does not identify the caller.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from enum import Enum
from typing import Any

import msgspec

from firesteel.errors import FiresteelError, JobCancelledError, UsageError
from firesteel.scheduler.streaming.records import StreamStatus as StreamStatus  # noqa: PLC0414 - what an answer holds
from firesteel.scheduler.streaming.wish import check_partitions

MAX_REQUEST = 1 << 16
MAX_ANSWER = 1 << 22
_CHUNK = 1 << 16


class Call(Enum):
    STATUS = "status"
    REQUIREMENTS = "requirements"
    RESCALE = "rescale"
    STOP = "stop"
    CANCEL = "cancel"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    call: Call
    lower: int | None = None
    upper: int | None = None
    parallelism: int | None = None


def rescaling(parallelism: int | None) -> Request:
    """A request for so many partitions; None: for what the scheduler wants. Raises UsageError unless a stream can have so many."""
    if parallelism is not None:
        check_partitions(parallelism)
    return Request(call=Call.RESCALE, parallelism=parallelism)


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    result: msgspec.Raw = msgspec.Raw(b"null")
    """A StreamStatus for every call: how things are once it was taken in."""
    error: str = ""
    """A sentence; empty: it went well."""
    hint: str | None = None
    exit_code: int = 1

    def raise_error(self) -> None:
        """Raises what the stream said of a wrong request, as if it had been found here."""
        if self.error:
            kinds: dict[int, type[FiresteelError]] = {2: UsageError, 130: JobCancelledError}
            raise kinds.get(self.exit_code, FiresteelError)(self.error, hint=self.hint)


class LineTooLong(Exception):
    pass


def encode(message: Request | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def failure(error: Exception) -> Answer:
    """Returns the answer that tells a caller of an error, never with a trace."""
    if isinstance(error, FiresteelError):
        return Answer(error=error.message, hint=error.hint, exit_code=error.exit_code)
    return Answer(error=f"The stream could not do it: {type(error).__name__}: {error}".rstrip(": ") + ".")


def done(value: Any) -> Answer:
    return Answer(result=msgspec.Raw(msgspec.json.encode(value)))


class Lines:
    """Lines that come in over a socket. Raises LineTooLong, and TimeoutError where none is whole in time."""

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self._connection = connection
        self._longest = longest
        self._read = bytearray()

    def next(self, seconds: float) -> bytes | None:
        """The next line without its end, within so many seconds however slowly it drips; None: the other side has gone."""
        deadline = time.monotonic() + seconds
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > self._longest:
                raise LineTooLong
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            chunk = self._connection.recv(_CHUNK)
            if not chunk:
                return None
            self._read += chunk
        if end > self._longest:
            raise LineTooLong
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line


def peer_user(connection: socket.socket) -> int | None:
    """The user at the other end; None where the system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", packed)[1])
    if sys.platform == "darwin":  # LOCAL_PEERCRED: struct xucred begins with a version and the user
        return int(struct.unpack("2I", connection.getsockopt(0, 1, struct.calcsize("2I")))[1])
    return None

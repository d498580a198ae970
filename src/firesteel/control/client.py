"""The other end of the socket: asks a running stream for something, and waits until it has come about."""

from __future__ import annotations

import os
import shlex
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from firesteel.control.messages import MAX_ANSWER, Answer, Call, Lines, LineTooLong, Request, encode, peer_user
from firesteel.control.names import StreamEntry, reread
from firesteel.errors import FiresteelError
from firesteel.scheduler.streaming.records import StreamStatus

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0


class StreamGone(FiresteelError):
    """The stream does not run (any more)."""


class StreamClient:
    """A connection to a running stream. Raises StreamGone where there is none, FiresteelError where it does not answer."""

    def __init__(self, entry: StreamEntry) -> None:
        self.entry = entry
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect(entry)
        except BaseException:
            self._connection.close()
            raise
        self._lines = Lines(self._connection, MAX_ANSWER)

    def _connect(self, entry: StreamEntry) -> None:
        if entry.ended is not None:
            raise gone(entry)
        self._connection.settimeout(CONNECT_SECONDS)
        try:
            self._connection.connect(entry.socket)
        except TimeoutError:
            raise self._silent(CONNECT_SECONDS) from None
        except OSError:
            raise gone(reread(entry)) from None
        if peer_user(self._connection) not in (None, os.geteuid()):
            raise FiresteelError(f"Another user listens at the socket of '{entry.name}': {entry.socket}.")

    def call(self, request: Request, seconds: float = ANSWER_SECONDS) -> StreamStatus:
        """Sends the request and returns the stream's status once it has taken it in."""
        try:
            self._connection.settimeout(seconds)
            with suppress(ConnectionError):  # it has hung up, perhaps with a word
                self._connection.sendall(encode(request))
            line = self._lines.next(seconds)
        except TimeoutError:
            raise self._silent(seconds) from None
        except (OSError, LineTooLong):
            line = None
        if line is None:
            raise gone(reread(self.entry))
        try:
            answer = msgspec.json.decode(line, type=Answer)
            answer.raise_error()
            return msgspec.json.decode(answer.result, type=StreamStatus)
        except msgspec.MsgspecError as error:
            raise FiresteelError(
                f"The stream '{self.entry.name}' gave an answer that cannot be read: {error}.",
                hint="Does it run with another version of Firesteel?",
            ) from None

    def status(self) -> StreamStatus:
        return self.call(Request(call=Call.STATUS))

    def _silent(self, seconds: float) -> FiresteelError:
        return FiresteelError(
            f"The stream '{self.entry.name}' (process {self.entry.pid}) does not answer within {seconds:g} s."
        )

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def gone(entry: StreamEntry) -> StreamGone:
    """Returns the error that this stream does not run here, with the reason as far as it is known."""
    here = entry.host == socket.gethostname()
    hint = f"'firesteel stream explain {shlex.quote(entry.checkpoint)}' says how it ended." if entry.journal else None
    if entry.ended is not None:
        ago = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.ended))
        return StreamGone(f"The stream '{entry.name}' does not run: it ended on {ago}.", hint=hint)
    if not here:
        return StreamGone(
            f"The stream '{entry.name}' was started on {entry.host}, and can be asked only there.", hint=None
        )
    return StreamGone(f"The stream '{entry.name}' does not run: its process {entry.pid} is gone.", hint=hint)

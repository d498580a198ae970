"""The stream's end of the socket: claims the checkpoint for one stream, answers its owner, disturbs nothing.

A stream that cannot have a socket (no Unix sockets, no directory to put it in) runs without: :class:`NoControl`.
"""

from __future__ import annotations

import logging
import os
import selectors
import shlex
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from firesteel.control import claims, names, places
from firesteel.control.claims import Claim
from firesteel.control.messages import (
    MAX_REQUEST,
    Answer,
    Call,
    Lines,
    LineTooLong,
    Request,
    done,
    encode,
    failure,
    peer_user,
)
from firesteel.errors import UsageError
from firesteel.scheduler.streaming.records import StreamStatus

MAX_CALLERS = 16
REQUEST_SECONDS = 60.0
"""Seconds after which a client that sends nothing, or sends too slowly, is disconnected."""
ANSWER_SECONDS = 5.0

_log = logging.getLogger("firesteel.control")
_open: weakref.WeakSet[ControlServer] = weakref.WeakSet()
_request = msgspec.json.Decoder(Request)


class StreamHandler(Protocol):
    """A stream as the socket needs it. Each call only takes the request in and returns at once; wrong ones raise UsageError."""

    def status(self) -> StreamStatus: ...
    def update_requirements(self, lower: int | None, upper: int | None) -> None: ...
    def rescale(self, parallelism: int | None) -> None: ...
    def stop(self) -> None: ...
    def cancel(self) -> None: ...


class NoControl:
    """Stands for the socket of a stream that cannot have one. ``claim`` on its checkpoint; None: that cannot be had either."""

    def __init__(self, reason: str, claim: Claim | None = None) -> None:
        self.reason = reason
        self._claim = claim

    def serve(self, handler: StreamHandler) -> None:
        pass

    def close(self) -> None:
        if self._claim is not None:
            self._claim.release()


def open_control(checkpoint: str, *, name: str, journal: str = "") -> ControlServer | NoControl:
    """Claims ``checkpoint`` (a path or URL) for this process. Call it before anything in the checkpoint is touched.

    Raises UsageError if another stream runs on it: on this machine, of any user who may write the checkpoint (of this user,
    where it lies elsewhere); or if another user's directory keeps it from being claimed.
    """
    if claims.fcntl is None or not hasattr(socket, "AF_UNIX"):
        return _without(name, "this system has no Unix sockets")
    try:
        claim = claims.claim(checkpoint)
    except claims.Taken:
        raise _in_use(checkpoint) from None
    except OSError as error:
        return _without(name, f"there is no place for its socket: {error.strerror or error}")
    problem = OSError("there is no directory to use")
    try:
        for home in places.make_homes(checkpoint):
            try:
                return ControlServer(home, claim, checkpoint, name, journal)
            except OSError as error:  # a file system without sockets
                problem = error
    except OSError as error:
        problem = error
    except BaseException:
        claim.release()
        raise
    return _without(name, f"its socket cannot be made: {problem.strerror or problem}", claim)


def _without(name: str, reason: str, claim: Claim | None = None) -> NoControl:
    _log.warning("'firesteel stream' cannot reach the stream '%s': %s.", name, reason)
    return NoControl(reason, claim)


def _in_use(checkpoint: str) -> UsageError:
    said = f"A stream runs on the checkpoint '{checkpoint}' already: "
    found = (names.read_entry(home / places.ENTRY) for home in places.homes_of(checkpoint))
    entry = next((entry for entry in found if entry is not None and entry.ended is None), None)
    if entry is not None:
        hint = f"Stop it first: firesteel stream stop {shlex.quote(entry.checkpoint)}."
        return UsageError(f"{said}'{entry.name}' (process {entry.pid} on {entry.host}).", hint=hint)
    near = places.beside(checkpoint)
    if near is not None and near.exists() and near.stat().st_uid != os.geteuid():
        return UsageError(f"{said}one that {claims.owner_of(near)} started.", hint="Its owner can stop it.")
    return UsageError(f"{said}another process.", hint="Stop it first.")


class ControlServer:
    """The socket, until :meth:`close`. ``home``: its private directory; ``claim``: given back when it is closed."""

    def __init__(self, home: Path, claim: Claim, checkpoint: str, name: str, journal: str) -> None:
        self._home = home
        self._claim = claim
        self._is_closed = False
        self.path = places.socket_of(home, checkpoint)
        self.path.unlink(missing_ok=True)  # of a process that was killed: the checkpoint is ours
        self._entry = names.StreamEntry(
            name=name,
            checkpoint=places.canonical(checkpoint),
            socket=str(self.path),
            pid=os.getpid(),
            host=socket.gethostname(),
            started=time.time(),
            journal=journal,
        )
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(self.path))
            self.path.chmod(0o600)
            self._listener.listen(MAX_CALLERS)  # who calls before there is a handler waits for it
            names.write_entry(self._entry, home)
        except OSError:
            self._listener.close()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            raise
        self._callers = threading.BoundedSemaphore(MAX_CALLERS)
        self._wake, self._woken = socket.socketpair()
        self._closing = threading.Lock()
        self._thread: threading.Thread | None = None
        _open.add(self)

    def serve(self, handler: StreamHandler) -> None:
        """Answers from now on, on threads of its own."""
        self._thread = threading.Thread(target=self._accept, args=(handler,), name="firesteel-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes the socket away and lets another stream have the checkpoint. Safe to call twice."""
        with self._closing:
            before, self._is_closed = self._is_closed, True
        if before:
            return
        self._wake.close()
        if self._thread is not None:
            self._thread.join()
        self._woken.close()
        self._listener.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        with suppress(OSError):
            names.write_entry(msgspec.structs.replace(self._entry, ended=time.time()), self._home)
        self._claim.release()

    def forget(self) -> None:
        """In a forked child: nobody is to take it for a parent that was killed."""
        self._is_closed = True
        self._listener.close()

    def _accept(self, handler: StreamHandler) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._woken, selectors.EVENT_READ)
            ready.register(self._listener, selectors.EVENT_READ)
            while all(key.fileobj is not self._woken for key, _ in ready.select()):
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    time.sleep(0.1)  # no descriptors left, for now: not to be retried at once
                    continue
                if not self._callers.acquire(blocking=False):
                    _refuse(connection)
                    continue
                threading.Thread(
                    target=self._talk, args=(connection, handler), name="firesteel-control-caller", daemon=True
                ).start()

    def _talk(self, connection: socket.socket, handler: StreamHandler) -> None:
        """Requests of one caller, until it goes, hangs, or says what is not a request."""
        try:
            with connection:
                self._check(connection)
                lines = Lines(connection, MAX_REQUEST)
                while (line := lines.next(REQUEST_SECONDS)) is not None:
                    self._send(connection, answer(line, handler))
        except LineTooLong:
            _log.info("A request was longer than %s bytes.", MAX_REQUEST)
        except (OSError, PermissionError) as error:
            _log.debug("A caller went away: %s", error)
        finally:
            self._callers.release()

    @staticmethod
    def _check(connection: socket.socket) -> None:
        if (user := peer_user(connection)) not in (None, os.geteuid()):
            raise PermissionError(f"user {user} is not its owner")

    @staticmethod
    def _send(connection: socket.socket, said: Answer) -> None:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(encode(said))


def _refuse(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.settimeout(0)
        connection.sendall(encode(Answer(error=f"The stream has {MAX_CALLERS} connections already; try again later.")))


def answer(line: bytes, handler: StreamHandler) -> Answer:
    """To one request. Nothing that a request holds makes this raise."""
    try:
        request = _request.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return failure(UsageError(f"This version of Firesteel does not know the request: {error}."))
    try:
        _calls[request.call](handler, request)
        return done(handler.status())
    except Exception as error:
        _log.debug("%s failed", request.call, exc_info=True)
        return failure(error)


_calls: dict[Call, Callable[[StreamHandler, Request], None]] = {
    Call.STATUS: lambda handler, request: None,
    Call.REQUIREMENTS: lambda handler, request: handler.update_requirements(request.lower, request.upper),
    Call.RESCALE: lambda handler, request: handler.rescale(request.parallelism),
    Call.STOP: lambda handler, request: handler.stop(),
    Call.CANCEL: lambda handler, request: handler.cancel(),
}


def _forget_all() -> None:
    for control in tuple(_open):
        control.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)

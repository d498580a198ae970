"""Doors: where standing tasks reach their driver. On its own machine a Unix socket that only its user can open; from others a TCP port, where
each side proves that it knows a secret of this one door.

The secret travels as the job's code does. What is said through a TCP port is not encrypted, so there is no door in a session that encrypts.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from contextlib import suppress
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from firesteel.spark.session.sessions import setting
from firesteel.task.executor.standing import Address, TcpAddress, UnixAddress, connected

BACKLOG = 128
SECRET_BYTES = 32
UNCHECKED_SECONDS = 10.0
"""Whoever comes and does not say a word for so long is sent away."""
ENCRYPTING = (
    "spark.network.crypto.enabled",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.network.sasl.serverAlwaysEncrypt",
)


class UnixDoor:
    """In a directory of this user's only. Raises OSError where there can be no socket: its path is too long, say."""

    def __init__(self) -> None:
        self._listener = Listener(family="AF_UNIX", backlog=BACKLOG)
        self.address: Address = UnixAddress(str(self._listener.address))

    def accept(self) -> Connection:
        """Waits for the next one. Raises OSError."""
        return self._listener.accept()

    def check(self, connection: Connection) -> None:
        """Nobody else can open it."""

    def close(self) -> None:
        """Wakes who waits in :meth:`accept`: with a connection that has ended."""
        with suppress(OSError):  # somebody tidied up its directory
            self.address.connect().close()
        with suppress(OSError):
            self._listener.close()


class TcpDoor:
    """On any free port of ``bind``, which executors reach as ``host``."""

    def __init__(self, bind: str, host: str) -> None:
        bind, host = bind.strip("[]"), host.strip("[]")  # Spark's way to write IPv6
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._socket = socket.create_server((bind, 0), family=family, backlog=BACKLOG)
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self.address: Address = TcpAddress(host, self._socket.getsockname()[1], self._secret)

    def accept(self) -> Connection:
        return connected(self._socket.accept()[0])

    def check(self, connection: Connection) -> None:
        """Makes sure that one of ours is at the other end. Raises EOFError, OSError, ValueError or ProcessError."""
        _wait_at_most(connection, UNCHECKED_SECONDS)
        deliver_challenge(connection, self._secret)
        answer_challenge(connection, self._secret)
        _wait_at_most(connection, 0)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes on Linux, without a descriptor
        with suppress(OSError):
            socket.create_connection(self._socket.getsockname()[:2]).close()
        self._socket.close()


Door = UnixDoor | TcpDoor
"""Open until it is closed. ``address``: what standing tasks are told."""


def _wait_at_most(connection: Connection, seconds: float) -> None:
    """For what is read and written. 0: for ever."""
    told = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, limit, told)


def encrypts(context: Any) -> bool:
    """True in a session whose machines speak in secret with each other."""
    return any(str(setting(context, key, "false")).lower() == "true" for key in ENCRYPTING)


def tcp_door(context: Any) -> TcpDoor:
    """Open where Spark's own executors reach the driver, on a port of its own. Raises OSError."""
    host = str(setting(context, "spark.driver.host"))
    return TcpDoor(str(setting(context, "spark.driver.bindAddress") or host), host)

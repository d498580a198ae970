"""The standing tasks of a job: Spark jobs of one task each, and the door through which they come.

A Spark job for each, so that one whose worker dies takes nobody along, and one can be cancelled alone. Where Spark starts its task again, that
connects as the first one did.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from firesteel.spark.driver.batch import WithEnvironment
from firesteel.spark.driver.threads import aside, cancel_jobs, local_properties
from firesteel.spark.placement import pools
from firesteel.spark.session.own_workers import OwnWorkers
from firesteel.spark.session.sessions import setting
from firesteel.spark.standing.lines import Line
from firesteel.spark.standing.work import Turn
from firesteel.task.executor.information import Blob
from firesteel.task.executor.standing import NUMBER, Address, Greeting, StandingTask, TcpAddress, UnixAddress, connected

RETRY_SECONDS = 0.1
COMING_SECONDS = 1.0


@dataclass(eq=False)
class Member:
    """A standing task, or one that Spark was asked for. ``greeting``: None until it has connected, and again when it is gone."""

    number: int
    tag: str
    greeting: Greeting | None = None
    met: bool = False
    """It has connected once."""
    line: Line | None = None
    """None: it has not come yet, it is gone, or it was let go."""
    asked: float = field(default_factory=time.monotonic)
    since: float = 0.0
    """When it connected."""
    turn: Turn | None = None
    """The execution that it runs."""
    lost: Turn | None = None
    """The one that it ran when its connection ended; Spark has yet to say why."""
    dead: int = -1
    """Spark's id of the task that is gone, with ``lost``; and where it ran."""
    node: str = ""
    idle_until: float | None = None
    """None: it has something to do, or is not there."""
    relieved: bool = False
    """Another was asked for in its place."""
    leaves: bool = False
    """It is given nothing more."""
    doomed: bool = False
    """It was cancelled in Spark."""
    known: set[int] = field(default_factory=set)
    """Batches whose code it has."""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def task(self) -> int:
        """Spark's id of its last task that has connected; later ones have greater numbers. -1: none has."""
        return self.dead if self.greeting is None else self.greeting.task

    @property
    def seconds(self) -> float:
        """Since Spark was asked for it."""
        return time.monotonic() - self.asked


class Crew:
    """Starts members and lets them in. ``meets`` is given each connection, with its greeting; ``ended`` is called in the thread of the member's
    Spark job, with what Spark raised.

    Made in the job's thread, whose Spark properties all of them have. ``door``: open; closed with this.
    """

    def __init__(
        self,
        context: Any,
        job: Blob,
        job_id: str,
        description: str,
        own_workers: OwnWorkers,
        *,
        door: Door,
        meets: Callable[[Connection, Greeting], None],
        ended: Callable[[Member, BaseException | None], None],
    ) -> None:
        self._context, self._job_id, self._description = context, job_id, description
        self._own_workers, self._door, self._meets, self._ended = own_workers, door, meets, ended
        self._function = StandingTask(door.address, job)
        self._making = threading.Lock()
        self._rows: Any = None
        self._inherit = local_properties(context)
        self._pool = pools.borrow()  # for all together, so that they share the slots with other jobs as one batch does
        self._closed = threading.Event()
        self._made = 0
        self._acceptor = threading.Thread(target=self._accept, name=f"firesteel-{job_id}-standing", daemon=True)
        self._acceptor.start()

    def start(self) -> Member:
        """Asks Spark for one more; returns at once. Raises RuntimeError where no thread can be had."""
        self._made += 1
        member = Member(self._made, f"firesteel-{self._job_id}-standing-{self._made}")
        threading.Thread(target=self._run, args=(member,), name=member.tag, daemon=True).start()
        return member

    def cancel(self, member: Member) -> None:
        """Has Spark end it, whatever it does; returns at once. Its Spark job ends soon, its process some seconds after: then its connection does."""
        if not member.doomed:
            member.doomed = member.leaves = True
            cancel_jobs(self._context, member.tag, member.ended)

    def close(self, coming: Iterable[Member]) -> None:
        """Accepts nobody any more. ``coming`` were not started by Spark yet: they end at once when they are, and are cancelled if that takes
        long (whatever is cancelled, Spark warns of)."""
        for member in coming:
            aside(partial(self._forget, member), f"{member.tag}-forgotten")
        self._closed.set()
        self._door.close()
        pools.give_back(self._pool)

    def _forget(self, member: Member) -> None:
        if not member.ended.wait(COMING_SECONDS):
            self.cancel(member)

    def _run(self, member: Member) -> None:
        context = self._context
        error: BaseException | None = None
        try:
            self._inherit()
            context.addJobTag(member.tag)
            context.setJobDescription(self._description)
            context.setLocalProperty("spark.scheduler.pool", self._pool)
            context.setLocalProperty(NUMBER, str(member.number))
            with self._own_workers.workers({}) as variables:
                self._rdd(variables).glom().count()  # of no rows, and without a socket for them
        except BaseException as raised:
            error = raised
        member.ended.set()
        self._ended(member, error)

    def _rdd(self, variables: Mapping[str, str]) -> Any:
        """The JVM's, of one partition. One for all: making it takes longer than all else that a member costs this process. It is only to be
        derived from: with a stage that fails, Spark ends all jobs that the stage's own RDD is of."""
        with self._making:
            if self._rows is None:
                rows = self._context.parallelize([b""], 1)
                if variables:
                    rows.ctx = WithEnvironment(self._context, variables)
                self._rows = rows.mapPartitions(self._function)._jrdd
            return self._rows

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection = self._door.accept()
            except OSError:  # out of file descriptors, say
                self._closed.wait(RETRY_SECONDS)
                continue
            if self._closed.is_set():
                connection.close()
                return
            try:
                threading.Thread(target=self._greet, args=(connection,), name="firesteel-standing", daemon=True).start()
            except RuntimeError:  # the process ends
                connection.close()

    def _greet(self, connection: Connection) -> None:
        try:
            self._door.check(connection)
            greeting: Greeting = connection.recv()
        except Exception:  # a stranger, or gone already
            connection.close()
        else:
            self._meets(connection, greeting)


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

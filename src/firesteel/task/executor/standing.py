"""A standing task: a Spark task that runs small executions one after another, as the driver gives them to it.

Each goes the way of one that has a Spark task for itself (``spark_task``), but its descriptor comes, and its messages go, over a connection to
the driver: a Unix socket on its machine, TCP from others. What the executions of a batch share is sent with the first of them. The task ends when the
driver closes the connection, so it ends with the driver too; PySpark collects all garbage then, once for all of them.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any, NamedTuple

from firesteel.model.descriptors import decode_execution
from firesteel.task.executor.information import TASK_BITS, Blob, JobInformation, VertexPart
from firesteel.task.executor.place import here
from firesteel.task.executor.spark_task import BatchFunction

NUMBER = "firesteel.standing"
"""The property of Spark's that tells a standing task its number."""
CONNECT_SECONDS = 10.0
"""An executor reaches its driver in milliseconds, and a busy driver answers in some tenths; a firewall does not answer at all."""


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: str

    def connect(self) -> Connection:
        """Raises OSError where nobody listens, or not the one who told this address."""
        return Client(self.path, "AF_UNIX")


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """``secret``: the driver and its standing tasks know it, and prove that to each other without telling it."""

    host: str
    port: int
    secret: bytes = field(repr=False)

    def connect(self) -> Connection:
        connection = connected(socket.create_connection((self.host, self.port), CONNECT_SECONDS))
        try:
            if not connection.poll(CONNECT_SECONDS):
                raise EOFError("it says nothing")
            answer_challenge(connection, self.secret)
            deliver_challenge(connection, self.secret)
        except (
            EOFError,
            AuthenticationError,
            ValueError,
            AssertionError,
        ) as error:  # of another service's answers, too
            connection.close()
            raise ConnectionRefusedError(f"{self.host}:{self.port} is not the driver") from error
        return connection


Address = UnixAddress | TcpAddress
"""The place where the driver listens. Picklable."""


def connected(made: socket.socket) -> Connection:
    """The connection of a TCP socket, whose small messages go at once, and whose other end is known to be gone some minutes after its machine is."""
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 8)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(made.detach())


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of a standing task. ``number``: as it was told; ``task``: Spark's id; ``node``: as ``Place.encoded``."""

    number: int
    task: int
    node: str


@dataclass(frozen=True, slots=True)
class BatchCode:
    """A batch of which executions follow. Parts and blobs that nobody needs: as of :class:`BatchFunction`."""

    batch: int
    parts: tuple[VertexPart, ...]
    dropped: tuple[bytes, ...]


class Order(NamedTuple):
    """One execution of each part of a batch, to be run together. (A tuple: there are very many of them.)"""

    batch: int
    descriptors: tuple[bytes, ...]


class StandingTask:
    """The function that Spark runs, the same for all standing tasks of a job. ``address``: the driver's. Picklable by name, carries bytes only."""

    def __init__(self, address: Address, job: Blob) -> None:
        self.address, self.job = address, job

    def __call__(self, rows: Iterator[Any]) -> Iterator[bytes]:
        """Drains its input, as every task of ours. Ends at once where nobody listens: the job is over."""
        for _ in rows:
            try:
                connection = self.address.connect()
            except OSError:
                continue
            with connection, suppress(OSError):
                self._serve(connection)
        return iter(())

    def _serve(self, connection: Connection) -> None:
        task = _spark_task()
        own = task.taskAttemptId()
        number = int(task.getLocalProperty(NUMBER))
        connection.send(Greeting(number, own, here(self._node_variable()).encoded))
        functions: dict[int, BatchFunction] = {}
        turns = count()
        for message in _messages(connection):
            if isinstance(message, BatchCode):
                function = BatchFunction(message.batch, self.job, message.parts, message.dropped, None)
                function.take_in_modules()
                functions[message.batch] = function
                continue
            descriptors = list(map(decode_execution, message.descriptors))
            _appear(task, subtask=descriptors[0].subtask, number=next(turns) << TASK_BITS | own)
            connection.send(functions[message.batch].execute(descriptors, None))

    def _node_variable(self) -> str | None:
        with suppress(Exception):  # told when the job is loaded to be run
            job: JobInformation = self.job.load()
            return job.node_variable
        return None


def _messages(connection: Connection) -> Iterator[BatchCode | Order]:
    """Until the driver wants no more of this task, or is gone."""
    with suppress(EOFError, OSError):
        while True:
            yield pickle.loads(connection.recv_bytes())


def _appear(task: Any, *, subtask: int, number: int) -> None:
    """Functions that ask Spark's context find a task of their own: a partition of the batch, and an id that no other has."""
    task._partitionId, task._taskAttemptId, task._attemptNumber = subtask, number, 0


def _spark_task() -> Any:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "a standing task is a Spark task"
    return task

"""The standing tasks of a job: Spark jobs of one task each, and the door through which they come.

A Spark job for each, so that one whose worker dies takes nobody along, and one can be cancelled alone. Where Spark starts its task again, that
connects as the first one did.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from firesteel.spark.driver.batch import WithEnvironment
from firesteel.spark.driver.threads import aside, cancel_jobs, local_properties
from firesteel.spark.placement import pools
from firesteel.spark.session.own_workers import OwnWorkers
from firesteel.spark.standing.doors import Door
from firesteel.spark.standing.lines import Line
from firesteel.spark.standing.work import Turn
from firesteel.task.executor.information import Blob
from firesteel.task.executor.standing import NUMBER, Greeting, StandingTask

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

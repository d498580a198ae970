"""Small executions in standing tasks: which batches, when Spark is asked for more tasks, when one is let go, what is told of those that die.

A batch that goes this way has no Spark job of its own. Its executions wait here; whoever is free takes the next one, so it does not
matter which of them takes long. A standing task holds a slot, as Spark sees it. One that has nothing to do gives it back soon: after
some tenths of a second, or as the job sends Spark a batch for which slots lack; and where Spark shares its slots among pools, one that has worked
for a while gives it back although there is more to do.
"""

from __future__ import annotations

import logging
import math
import pickle
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from firesteel.options import STANDING_TASKS, STANDING_TASKS_MAX_INPUT, Options
from firesteel.scheduler.kernel.commands import Deploy
from firesteel.scheduler.kernel.events import CancelRequested
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.driver.batch import Batch, BatchCode
from firesteel.spark.driver.spark_errors import was_cancelled
from firesteel.spark.driver.threads import aside, pins_threads
from firesteel.spark.placement.pools import is_fair
from firesteel.spark.placement.status_store import SparkStatus, SparkTask
from firesteel.spark.placement.watch import NO_TASK, TaskGone, TasksLost
from firesteel.spark.session.own_workers import OwnWorkers, own_workers
from firesteel.spark.session.preflight import runs_our_interpreter
from firesteel.spark.session.sessions import grows, is_local, local_slots, setting
from firesteel.spark.standing.crew import Crew, Door, Member, UnixDoor, encrypts, tcp_door
from firesteel.spark.standing.lines import Line, Lines
from firesteel.spark.standing.work import (
    EndedEarlyError,
    NotTaken,
    Standing,
    StandingTasks,
    Turn,
    TurnLost,
    UnreachedError,
    Waiting,
    Work,
    no_standing_tasks,
)
from firesteel.task.executor.information import Blob
from firesteel.task.executor.place import Place
from firesteel.task.executor.standing import Greeting

WORKER_REUSE = "spark.python.worker.reuse"
LOOK_SECONDS = 1.0


class Slots:
    """That standing tasks may fill. ``count``: tasks that Spark ran at once at the last look; at least 1. A local master was told how many; a
    cluster's executors have those of Spark's default profile, and a look within a second of the last one sees nothing new."""

    def __init__(self, context: Any) -> None:
        self._status = None if is_local(context) else SparkStatus(context)
        self._looked = -math.inf
        self.count = local_slots(context) if self._status is None else 1

    def look(self) -> None:
        if self._status is None or time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        with suppress(Exception):  # Spark is stopping
            executors = self._status.executors().values()
            self.count = max(1, sum(executor.slots for executor in executors if not executor.profile_id))


LEAST_IDLE_SECONDS, MOST_IDLE_SECONDS = 0.1, 0.5
"""An idle one goes after twice the time that the last one took to come, within these bounds: a slot is held in vain for no longer than about
what another one costs."""
PATIENCE_SECONDS = 0.02
"""So long something waits for those that are there before Spark is asked for one more: most small executions take less."""
WORKING_SECONDS = 0.5
"""After so long a task goes although something waits; the next one is asked for RELIEF_SECONDS before."""
RELIEF_SECONDS = 0.06
MOST = 100
"""A standing task costs its driver a thread and a file descriptor. What would keep more of them busy is a Spark job."""
_log = logging.getLogger("firesteel.spark")
_unreached: set[str] = set()
"""Spark applications whose executors could not connect: they are not asked again."""


@dataclass(frozen=True)
class SmallStanding:
    """``slots`` of the session; ``grows``: Spark asks for more executors where Spark jobs wait for slots, which executions here do not. ``is_fair``: it
    shares slots among pools; else who comes later waits. ``max_input``: plain bytes that a subtask may read. ``open_door`` raises OSError. ``ran``: vertex to
    the tag of the Spark job whose standing task was given an execution of it last; kept up to date."""

    context: Any
    job: Blob
    job_id: str
    name: str
    slots: Slots
    grows: bool
    is_fair: bool
    max_input: int
    own_workers: OwnWorkers
    open_door: Callable[[], Door]
    ran: dict[int, str]


def reads_little(deploys: Sequence[Deploy], code: BatchCode, most: int) -> bool:
    """Returns True for a batch of one vertex whose subtasks read at most so many plain bytes each (a source's: of its splits), in any of Spark's
    own slots, wherever it is."""
    deploy, *others = deploys
    if others or code.dataframe is not None or code.slots is not None or deploy.placement is not None:
        return False
    return deploy.input_bytes is not None and int(deploy.input_bytes.max(initial=0)) <= most


class SmallStandingTasks(StandingTasks):
    """``given``: see there."""

    def __init__(self, given: SmallStanding, report: Callable[[Any], None], now: Callable[[], float]) -> None:
        self._in, self._report, self._now = given, report, now
        self._lock = threading.Lock()
        self._waiting = Waiting(report)
        self._members: dict[int, Member] = {}
        self._crew: Crew | None = None
        self._lines: Lines | None = None
        self._is_off = given.context.applicationId in _unreached
        self._closed = False
        self._idle_seconds = LEAST_IDLE_SECONDS

    # --- in the job's thread ---------------------------------------------------------------------------------

    def takes(self, batch: Batch, code: BatchCode) -> Decision | None:
        if self._is_off or not reads_little(batch.deploys, code, self._in.max_input):
            return None
        self._in.slots.look()
        if self._wants_more(batch) or not self._has_crew():
            return None
        work = Work(batch, code, self._now())
        with self._lock:
            if self._is_off:  # since a moment ago
                return None
            batch.standing = True
            self._waiting.add(work)
        if work.must_wait:
            aside(partial(self._offer_prepared, work), f"{batch.tag}-prepared")
        else:
            self._offer(work)
        return self._decision(batch.deploys[0], "standing tasks", "in standing tasks, without a Spark job of its own")

    def make_room(self, others: int) -> None:
        with self._lock:
            lacking = len(self._there()) + others - self._in.slots.count
            idle = [member for member in self._there() if member.idle_until is not None]
            for member in idle[: max(0, lacking)]:
                self._let_go(member)

    def cancel(self, batch: Batch) -> None:
        """A batch whose subtasks must be alone ends when they are gone, others at once."""
        batch.cancelled = True
        with self._lock:
            work = self._waiting.of(batch)
            if work is None:
                return
            self._waiting.withdraw(work)
            for member in self._running(work):
                self._end(member)
            if batch.exclusive:
                batch.lingered = True  # it has no need to
                self._waiting.end_if_over(work)
            else:
                self._waiting.end(work)

    def kill(self, batch: Batch, subtasks: Collection[int], reason: str) -> None:
        with self._lock:
            work = self._waiting.of(batch)
            if work is None:
                return
            for subtask in self._waiting.withdraw(work, subtasks):
                self._report(TaskGone(batch, subtask, NO_TASK))
            for member in self._running(work):
                turn = member.turn or member.lost
                if turn is not None and turn.subtask in subtasks:
                    _log.debug("standing task %s is ended: %s", member.tag, reason)
                    self._end(member)
            self._waiting.end_if_over(work)

    def follow(self, batch: Batch, subtasks: Collection[int]) -> None:
        """Nothing to do: whatever is cancelled is told when it is gone."""

    def has_ended(self, batch: Batch, subtasks: Collection[int]) -> None:
        """Nothing to do: they were not looked for."""

    def due(self) -> list[float]:
        with self._lock:
            return [self._patient_until()] if self._short() else []

    def fire(self) -> None:
        with self._lock:
            waits = bool(self._waiting)
        if waits:
            self._in.slots.look()
        with self._lock:
            if self._short() and self._patient_until() <= self._now():
                self._ask_for(self._short())

    def close(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._lock:
            self._closed = True
            for work in self._waiting.works():
                self._waiting.withdraw(work)
            members = list(self._members.values())
            for member in members:
                if member.turn is not None:
                    self._end(member)
                else:
                    self._let_go(member)
        if self._lines is not None:
            self._lines.close()
        if self._crew is not None:
            self._crew.close([member for member in members if member.greeting is None])
        for member in members:
            if member.greeting is not None:
                member.ended.wait(max(0.0, until - time.monotonic()))

    # --- in the watcher's ------------------------------------------------------------------------------------

    def launches(self) -> list[tuple[Batch, list[SparkTask]]]:
        found: list[tuple[Batch, list[SparkTask]]] = []
        with self._lock:
            for member in self._members.values():
                turn, greeting = member.turn, member.greeting
                if turn is not None and greeting is not None and not turn.told:
                    turn.told = True
                    place = Place.decode(greeting.node)
                    task = SparkTask(greeting.task, turn.position, turn.launched, place.executor, place.host)
                    found.append((turn.work.batch, [task]))
        return found

    def executors_gone(self, gone: Mapping[str, str]) -> None:
        """Tells that what ran there is lost, before Spark has started its task again. Where no two attempts may run at once, that is waited for."""
        with self._lock:
            for member in self._members.values():
                turn = member.turn
                if turn is not None and member.doomed and turn.work.batch.exclusive:
                    continue  # nothing but the end of its connection tells that it is surely gone
                if member.greeting is not None and Place.decode(member.greeting.node).executor in gone:
                    self._lose(member)  # its connection may not end for minutes
                turn, where = member.lost, Place.decode(member.node).executor
                if turn is None or where not in gone or turn.work.batch.exclusive:
                    continue
                member.lost = None
                self._report(TasksLost(turn.work.batch, (turn.subtask,), gone[where]))
                self._waiting.over(turn)

    # --- in any thread ---------------------------------------------------------------------------------------

    def _offer(self, work: Work) -> None:
        """Its executions are given to those who have nothing to do."""
        with self._lock:
            self._waiting.offer(work)
            for member in self._idle():
                if self._waiting:
                    self._give(member)

    def _offer_prepared(self, work: Work) -> None:
        with suppress(Exception):  # as whoever takes it will see
            work.prepare()
        self._offer(work)
        with self._lock:
            if not self._closed:
                self._ask_for(self._short())  # the job's thread, which had nothing to wait for, may sleep

    def _meets(self, connection: Connection, greeting: Greeting) -> None:
        """A standing task has come."""
        with self._lock:
            member = self._members.get(greeting.number)
            known = member is not None and not member.doomed and greeting.task >= member.task
            if member is None or self._lines is None or self._closed or not known:
                connection.close()
                return
            self._explain(member, None)  # it was started again
            if not member.met:
                self._idle_seconds = min(max(2 * member.seconds, LEAST_IDLE_SECONDS), MOST_IDLE_SECONDS)
            member.greeting = greeting
            member.line = self._lines.add(connection, partial(self._answered, member), partial(self._gone, member))
            member.met, member.relieved, member.since = True, False, time.monotonic()
            member.known.clear()
            self._give(member)

    # --- in the thread of the lines --------------------------------------------------------------------------

    def _answered(self, member: Member, line: Line, message: bytes) -> None:
        messages: Sequence[bytes] = pickle.loads(message)
        with self._lock:
            for each in messages:
                self._report(each)
            if member.line is not line:  # another has come in its place
                line.close()
                return
            turn, member.turn = member.turn, None
            if turn is not None:
                self._waiting.over(turn)
            self._give(member)

    def _gone(self, member: Member, line: Line) -> None:
        """Its worker has ended, or is about to."""
        with self._lock:
            if member.line is line:
                self._lose(member)
            if member.doomed and member.ended.is_set():
                self._members.pop(member.number, None)

    def _were_idle(self) -> None:
        """Some have had nothing to do for long enough."""
        now = time.monotonic()
        with self._lock:
            for member in self._idle():
                if member.idle_until is not None and member.idle_until <= now:
                    self._let_go(member)
                else:
                    self._waits(member)

    # --- under the lock --------------------------------------------------------------------------------------

    def _give(self, member: Member) -> None:
        """The next execution, if it is to go on and there is one. Else it waits for a while, or goes."""
        left = member.since + WORKING_SECONDS - time.monotonic() if self._in.is_fair and not self._is_off else math.inf
        goes = self._closed or member.leaves
        while self._waiting and left > 0.0 and not goes:
            if self._sent(member, self._waiting.take(time.time())):
                if left < RELIEF_SECONDS:
                    self._relieve(member)
                return
        if goes or self._waiting:
            self._let_go(member)
        elif member.idle_until is None:
            member.idle_until = time.monotonic() + self._idle_seconds
            self._waits(member)

    def _sent(self, member: Member, turn: Turn) -> bool:
        """False: it cannot be, and its batch fails."""
        work, line = turn.work, member.line
        assert line is not None
        try:
            messages = [work.order(turn.position)]
            if work.batch.id not in member.known:
                messages.insert(0, work.code_message)
        except Exception as error:
            self._waiting.fail(work, error)
            self._waiting.over(turn)
            return False
        member.known.add(work.batch.id)
        member.turn, member.idle_until = turn, None
        self._in.ran[work.batch.deploys[0].vertex] = member.tag
        for message in messages:
            line.send(message)
        return True

    def _let_go(self, member: Member) -> None:
        """It ends; others do what waits."""
        line, member.line, member.idle_until = member.line, None, None
        member.leaves = True
        if line is not None:
            line.close()
            self._relieve(member)

    def _waits(self, member: Member) -> None:
        """It is looked at when it has for long enough."""
        if self._lines is not None and member.idle_until is not None:
            self._lines.call_at(member.idle_until)

    def _idle(self) -> list[Member]:
        return [member for member in self._members.values() if member.idle_until is not None]

    def _relieve(self, member: Member) -> None:
        """It goes, or soon will: others do what waits."""
        member.relieved = True
        if not self._closed:
            self._ask_for(self._short())

    def _lose(self, member: Member) -> None:
        """Nobody is at the other end of its connection any more."""
        turn, greeting = member.turn, member.greeting
        if greeting is not None:
            member.dead, member.node = greeting.task, greeting.node
        if turn is None and member.line is not None:
            member.line.close()  # else what it runs may speak yet
        member.turn = member.greeting = member.line = member.idle_until = None
        if turn is None:
            return
        if member.doomed:
            self._report(TaskGone(turn.work.batch, turn.subtask, member.dead))
            self._waiting.over(turn)
        else:
            member.lost = turn

    def _explain(self, member: Member, error: BaseException | None) -> None:
        """Spark has said why: it was started again, or its job has ended with the error."""
        if member.line is not None:  # its end has not been read yet
            self._lose(member)
        turn, member.lost = member.lost, None
        if turn is None:
            return
        if error is not None and was_cancelled(error):
            self._report(CancelRequested(at=self._now(), reason="cancelled in Spark"))
        else:
            about = member.tag, member.dead, turn.launched, member.node
            self._report(TurnLost(turn.work.batch, turn.subtask, *about, error))
        self._waiting.over(turn)

    def _end(self, member: Member) -> None:
        """In Spark; what it runs is told when it is gone."""
        turn, member.lost = member.lost, None
        if turn is not None:
            self._report(TaskGone(turn.work.batch, turn.subtask, member.dead))
            self._waiting.over(turn)
        if self._crew is not None:
            self._crew.cancel(member)

    def _running(self, work: Work) -> list[Member]:
        turns = ((member, member.turn or member.lost) for member in self._members.values())
        return [member for member, turn in turns if turn is not None and turn.work is work]

    def _there(self) -> list[Member]:
        """Members that take executions for a while, or will when Spark has started them."""
        return [member for member in self._members.values() if not member.leaves and not member.relieved]

    def _patient_until(self) -> float:
        """On the job's clock. The first ones come at once."""
        return self._waiting.since + (PATIENCE_SECONDS if self._there() else 0.0)

    def _short(self) -> int:
        """Returns how many more could do something now, in the slots there are."""
        if self._is_off:
            return 0
        there = self._there()
        coming = sum(member.greeting is None for member in there)
        return max(0, min(self._in.slots.count - len(there), MOST - len(there), len(self._waiting) - coming))

    def _ask_for(self, count: int) -> None:
        assert self._crew is not None
        for _ in range(count):
            try:
                member = self._crew.start()
            except RuntimeError as error:  # the process ends
                if not self._there():
                    self._waiting.give_up(error)
                return
            self._members[member.number] = member

    # --- the Spark jobs --------------------------------------------------------------------------------------

    def _ended(self, member: Member, error: BaseException | None) -> None:
        with self._lock:
            member.leaves = True
            if member.doomed or self._closed:
                if member.line is None:
                    self._members.pop(member.number, None)
                return  # else its process lives yet
            self._explain(member, error or EndedEarlyError())
            self._members.pop(member.number, None)
            if error is None and not member.met:
                self._go_off()
            elif error is not None and not member.met and not self._there():
                self._waiting.give_up(error)  # Spark's error, and so that of the batches
            elif self._is_off and not self._there():
                self._waiting.give_up(UnreachedError())
            elif member.met:
                self._ask_for(self._short())

    def _go_off(self) -> None:
        """Tasks cannot reach us, from some executors at least. From now on batches are Spark jobs; those of which something has begun are left to the
        members that are there."""
        self._is_off = True
        _unreached.add(self._in.context.applicationId)
        for work in self._waiting.hand_back():
            work.batch.standing = False
            deploy = work.batch.deploys[0]
            decision = self._decision(
                deploy, "Spark job", "in a Spark job of its own, for standing tasks could not connect"
            )
            self._report(NotTaken(work.batch, work.code, decision))
        if not self._there():
            self._waiting.give_up(UnreachedError())

    def _wants_more(self, batch: Batch) -> bool:
        """True where the batch would keep too many busy, or Spark would start executors for it if it was a Spark job."""
        slots = self._in.slots.count
        with self._lock:
            wanted = sum(len(work.waiting) for work in self._waiting.works()) + len(batch.subtasks)
        return min(wanted, slots) > MOST or (self._in.grows and wanted > slots)

    def _has_crew(self) -> bool:
        if self._crew is None:
            given = self._in
            about = given.context, given.job, given.job_id, f"{given.name}: standing tasks", given.own_workers
            try:
                door = given.open_door()
                self._lines = Lines(f"firesteel-{given.job_id}-lines", self._were_idle)
                self._crew = Crew(*about, door=door, meets=self._meets, ended=self._ended)
            except Exception:  # the path of a socket is too long, say; what ails Spark a Spark job will tell
                _log.debug("no standing tasks", exc_info=True)
                self._is_off = True
        return self._crew is not None

    def _decision(self, deploy: Deploy, result: str, reason: str) -> Decision:
        assert deploy.input_bytes is not None
        read = int(deploy.input_bytes.max(initial=0))
        return Decision(
            at=self._now(),
            what="deployment",
            vertex=deploy.vertex,
            inputs={"max input": read, "subtasks": len(deploy.subtasks)},
            rule="no subtask reads much",
            result=result,
            reason=reason,
        )


def standing_tasks(
    context: Any, options: Options, job: Blob, job_id: str, job_name: str, *, ran: dict[int, str]
) -> Standing:
    """None where it is off, where a process must not serve two tasks, where threads have no Spark properties of their own, or where :func:`_reached` says
    so. ``ran``: see :class:`SmallStanding`."""
    kept = str(setting(context, WORKER_REUSE, "true")).lower() == "true"
    if not (options[STANDING_TASKS] and kept and pins_threads(context) and _reached(context)):
        return no_standing_tasks
    given = SmallStanding(
        context,
        job,
        job_id,
        job_name,
        slots=Slots(context),
        grows=grows(context),
        is_fair=is_fair(context),
        max_input=options[STANDING_TASKS_MAX_INPUT],
        own_workers=own_workers(context),
        open_door=UnixDoor if is_local(context) else partial(tcp_door, context),
        ran=ran,
    )
    return partial(SmallStandingTasks, given)


def _reached(context: Any) -> bool:
    """On a local master, by its own interpreter; on a cluster, where what is said may be read on the way."""
    return runs_our_interpreter(context) if is_local(context) else not encrypts(context)

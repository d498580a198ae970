"""The gate between what the scheduler wants done and what is done: commands wait until the events they follow from are durable.

Events are written to the job's log with the facts that followed (write ahead, ``recovery.log``). What changes nothing outside of this
process is done at once, as long as nothing before it waits.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.recovery.log import Durable, FencedError, LogFile, LogLost, Writer
from firesteel.scheduler.inputs import SideInputs
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import (
    CancelTimer,
    Command,
    CommitSinks,
    JobStatus,
    Record,
    ReleasePartitions,
    SetTimer,
)
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.recovery.codec import encode
from firesteel.scheduler.recovery.facts import facts_of
from firesteel.scheduler.recovery.records import Alive, AnyLogRecord, Ended, NarrowedTo, SinkStep, Told, encode_records
from firesteel.spark.driver.narrowing import NarrowingDone
from firesteel.spark.driver.serialise import dumps

HARMLESS = (Record, SetTimer, CancelTimer)
"""Commands whose effect goes with the driver's process, but for the journal, which a resumed job writes anew."""

_log = logging.getLogger("firesteel.recovery")
_said: set[tuple[str, str]] = set()
"""Steps and functions of which this process has said that they open something."""
Execute = Callable[[Command], None]
Put = Callable[[Any], None]
Now = Callable[[], float]


class Gate:
    """Lets everything through at once: of a job without a log. ``narrowed``, ``heard`` and ``take`` are called in the job's thread."""

    lasts = False
    """Steps outlive the driver."""

    def __init__(self, put: Put, now: Now, execute: Execute, *, lost: str = "") -> None:
        """``put`` takes what is to come back by :meth:`take`, ``now`` is the job's clock, ``execute`` carries out a command. ``lost``: a log was to be
        written, and cannot be for this reason."""
        self._put, self._now, self._execute = put, now, execute
        if lost:
            put(LogLost(lost, is_void=True))

    def narrowed(self, done: NarrowingDone) -> None:
        """Notes that a source was narrowed. The next event reports it to the scheduler."""

    def note(self, record: AnyLogRecord) -> None:
        """Writes a record that the scheduler does not receive."""

    def heard(self, event: ev.Event, commands: Sequence[Command]) -> None:
        for command in commands:
            self._execute(command)

    def take(self, item: Durable | LogLost) -> None:
        """Something that the gate had put on the job's queue. Raises FencedError when another driver has taken the job over."""
        if isinstance(item, LogLost):
            self._execute(Record(_given_up(item.reason, self._now())))

    def step(self, vertex: int, sink: int, step: str, state: bytes = b"") -> None:
        """Returns when it is durable that a sink came so far. Raises FiresteelError where that cannot be."""

    def close(self, status: JobStatus | None) -> None:
        """The last call. None: the driver's own fault ended the job."""


Recovery = Callable[[Put, Now, Execute], Gate]
"""Opens the gate of a job, once; see :class:`Gate`."""


class LogGate(Gate):
    """Lets commands through when their events are durable, in order."""

    lasts = True

    def __init__(
        self,
        put: Put,
        now: Now,
        execute: Execute,
        *,
        file: LogFile,
        first: Sequence[AnyLogRecord],
        side_inputs: SideInputs,
        retains: bool = False,
    ) -> None:
        """``file``: receives the job's log. ``first``: its first records. ``side_inputs``: those of the scheduler. ``retains``: results stay for
        other jobs, also after this job has finished."""
        super().__init__(put, now, _but_releases(execute) if retains else execute)
        self._file, self._side_inputs, self._retains = file, side_inputs, retains
        self._writer = Writer(file, put, alive=lambda: encode_records([Alive(now())]))
        self._held: deque[tuple[int, Command]] = deque()
        """Commands that wait, each with the number of the entry that it waits for."""
        self._facts: list[AnyLogRecord] = []
        """On the event that comes next."""
        self._lost: LogLost | None = None
        for record in first:
            self.note(record)

    def note(self, record: AnyLogRecord) -> None:
        """Appends an entry that nothing waits for."""
        self._writer.append(encode_records([record]), awaited=False)

    def narrowed(self, done: NarrowingDone) -> None:
        if done.found is None or self._lost is not None:
            return
        try:
            data, name = dumps(done.found), f"narrowed-{done.vertex}.pkl"
            self._file.put(name, data)
        except Exception as error:
            self._writer.give_up(f"{type(error).__name__}: {error}")
            return
        self._facts.append(NarrowedTo(done.vertex, name, hashlib.blake2b(data, digest_size=16).digest()))

    def heard(self, event: ev.Event, commands: Sequence[Command]) -> None:
        if self._lost is not None:
            for command in commands:
                self._without_log(command)
            return
        if self._retains and isinstance(event, ev.ExecutionsFinished):
            _say_opened(event)
        awaited = not all(isinstance(command, HARMLESS) for command in commands)
        entry = self._writer.append(self._entry(event, commands), awaited=awaited)
        for command in commands:
            if self._held or not isinstance(command, HARMLESS):
                self._held.append((entry, command))
            else:
                self._execute(command)

    def _entry(self, event: ev.Event, commands: Sequence[Command]) -> bytes:
        facts, self._facts = self._facts, []
        try:
            return encode_records([Told(*encode(event), self._side_inputs.take()), *facts, *facts_of(commands)])
        except Exception as error:  # an answer of a user's function that is no plain data, say
            self._writer.give_up(f"{type(error).__name__}: {error}")
            return b""

    def take(self, item: Durable | LogLost) -> None:
        if isinstance(item, LogLost):
            self._log_lost(item)
            return
        while self._held and self._held[0][0] <= item.entry:
            self._execute(self._held.popleft()[1])

    def step(self, vertex: int, sink: int, step: str, state: bytes = b"") -> None:
        try:
            self._writer.wait(self._writer.append(encode_records([SinkStep(vertex, sink, step, state)]), awaited=True))
            self._file.verify()
        except OSError as error:
            if not self._is_void():
                raise FiresteelError(_unsafe(str(error))) from error

    def close(self, status: JobStatus | None) -> None:
        if status is not JobStatus.FINISHED or self._retains:  # else its log goes
            self.note(Ended((status or JobStatus.FAILED).value, time.time()))
        self._writer.close()

    def _log_lost(self, lost: LogLost) -> None:
        """The job goes on without a log; if another driver has it, it goes on there."""
        if lost.fenced:
            raise FencedError(lost.reason)
        self._lost = lost
        self._execute(Record(_given_up(lost.reason, self._now())))
        while self._held:
            self._without_log(self._held.popleft()[1])

    def _without_log(self, command: Command) -> None:
        """Nothing is published while somebody might resume from what there is of the log, and publish it again."""
        if self._lost is not None and isinstance(command, CommitSinks) and not self._is_void():
            cause = ev.FailureCause(ev.FailureKind.FATAL, _unsafe(self._lost.reason))
            self._put(ev.SinksFailed(at=self._now(), cause=cause))
            return
        self._execute(command)

    def _is_void(self) -> bool:
        """Nobody can resume from the log, for it is gone."""
        if self._lost is not None and self._lost.is_void:
            return True
        try:
            self._file.remove()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def _say_opened(event: ev.ExecutionsFinished) -> None:
    """Names each function that was seen to open something, once in this process."""
    found = {(one.step, one.opened.function): one for own in event.reports.steps for one in own if one.opened}
    for function, report in found.items():
        if function not in _said:
            _said.add(function)
            _log.warning("'%s' %s: its results are computed again in every job.", report.step, report.opened)


def _but_releases(execute: Execute) -> Execute:
    """Partitions that nobody in the job reads any more stay where they are."""
    return lambda command: None if isinstance(command, ReleasePartitions) else execute(command)


def _given_up(reason: str, at: float) -> Decision:
    said = f"The job's log cannot be written ({reason}). The job goes on, but nobody could go on with it if its driver died."
    return Decision(at=at, what="recovery", result="given up", reason=said)


def _unsafe(reason: str) -> str:
    return (
        f"The job's log cannot be written ({reason}) nor removed, so its outputs are not published: a resume, which reads there that they were "
        "not, might publish them again."
    )

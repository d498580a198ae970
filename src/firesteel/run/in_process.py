"""A query as one statement in this process, with the records of any job: journal, metrics and page."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firesteel.errors import EngineStop, JobCancelledError, Stop, interruption
from firesteel.journal.file import Instruments, Journal
from firesteel.model.runner import Choice
from firesteel.monitoring.exporters import monitoring
from firesteel.options import ENGINE_MEMORY, IN_PROCESS_THREADS, MIB, PROGRESS, Options
from firesteel.run.choose import decision_of, decisions_of
from firesteel.run.engine import ENGINE, Running
from firesteel.run.statement import Statement
from firesteel.scheduler.kernel.records import JobPlanned, JobStatusRecord, JournalRecord, MetricsSnapshot, StateChange
from firesteel.ui.begun import Begun
from firesteel.ui.process import ui_of
from firesteel.view import progress
from firesteel.view.notebook.progress import notebook_view

FOR_STAGES = (Stop.MEMORY, Stop.INTERNAL)
"""Where the engine of this process stops by itself, stages may still answer."""
LONG_SECONDS = 2.0
"""A query that takes longer shows its progress."""
_VERTEX = 0
_LEAST = 32 * MIB


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose query it is: the session, and for the thread that asks Spark's job group (None: none), its job tags and its tags in the session."""

    session: Any = None
    group: str | None = None
    tags: frozenset[str] = frozenset()
    session_tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Answered:
    """``rows`` of the job ``id``."""

    id: str
    rows: pa.Table


_running: dict[Running, Caller] = {}
_lock = threading.Lock()


def cancel(of: Callable[[Caller], bool]) -> None:
    """Ends the queries of these callers. For any thread."""
    with _lock:
        ended = [run for run, caller in _running.items() if of(caller)]
    for run in ended:
        run.interrupt()


def engine_memory(options: Options, outside_heap: int) -> int:
    """Bytes that the engine may hold. ``outside_heap``: the memory of the machine or container, without the JVM's heap."""
    given: int | None = options[ENGINE_MEMORY]
    return max(_LEAST, outside_heap // 4) if given is None else given


def run(  # noqa: PLR0917
    statement: Statement,
    choice: Choice,
    schema: pa.Schema,
    name: str,
    options: Options,
    job_id: str,
    caller: Caller,
    most: int,
) -> Answered:
    """The rows, under the names and types of ``schema``. ``most``: bytes of them.

    Raises EngineStop where the engine stops by itself, TooManyBytes, JobCancelledError, and KeyboardInterrupt on Ctrl-C.
    """
    threads = options[IN_PROCESS_THREADS] or len(os.sched_getaffinity(0))
    ui = ui_of(options)
    with ExitStack() as ending:
        journal = Journal.create(options, name, job_id)
        taps = [] if ui is None else [ui.instrument()]
        instruments = Instruments([journal, *taps, *monitoring(options)])
        job = _JobRecords(instruments, statement)
        ending.callback(job.close)
        try:
            job.begins(name, job_id, choice, options)
            cursor = ending.enter_context(ENGINE.cursor(choice.inputs["memory"], threads, statement.files))
            running = Running(cursor, statement, threads, most)
            if ui is not None:
                ui.began(taps[0], Begun(job_id, name, journal.path, running.interrupt, lambda: None))
            with _lock:
                _running[running] = caller
            try:
                seconds = 0.0 if progress.is_json() else LONG_SECONDS
                rows = running.wait(schema, seconds, lambda: job.shows(options))
            finally:
                with _lock:
                    del _running[running]
        except KeyboardInterrupt:
            job.ends("CANCELED", "interrupted by the user")
            raise interruption(f"The job '{name}' ({job_id}) was interrupted.") from None
        except EngineStop as stop:
            if stop.kind is Stop.INTERRUPTED:
                job.ends("CANCELED", "cancelled")
                raise JobCancelledError(f"The job '{name}' ({job_id}) was cancelled.") from None
            if stop.kind is Stop.INTERNAL:
                ENGINE.forget()
            job.ends("FAILED", f"left to {'stages' if stop.kind in FOR_STAGES else 'Spark'}: {stop.message}")
            raise
        except BaseException as error:
            job.ends("FAILED", str(error))
            raise
        job.finishes(rows, running.peak)
        return Answered(job_id, rows)


class _JobRecords:
    """The records of a job of one vertex with one subtask."""

    def __init__(self, instruments: Instruments, statement: Statement) -> None:
        self._instruments, self._statement = instruments, statement
        self._recorded: list[JournalRecord] = []
        self._began = time.perf_counter()
        self._deployed = 0.0

    def shows(self, options: Options) -> None:
        """Shows the job's progress from now on, with all records so far."""
        view = progress.create(options[PROGRESS], make=notebook_view())
        for record in self._recorded:
            view.record(record)
        self._instruments = Instruments([self._instruments, view])

    def close(self) -> None:
        self._instruments.close()

    def _record(self, record: JournalRecord) -> None:
        self._recorded.append(record)
        self._instruments.record(record)

    def begins(self, name: str, job_id: str, choice: Choice, options: Options) -> None:
        record = self._record
        vertex = {
            "id": _VERTEX,
            "name": "query",
            "uid": "",
            "inputs": [],
            "datasets": [],
            "parallelism": 1,
            "max_parallelism": -1,
            "splits": None,
            "sink": False,
        }
        record(
            JobPlanned(
                at=0.0,
                job_id=job_id,
                job_name=name,
                vertices=[vertex],
                datasets=[],
                options={key: options[key] for key in options},
                origins={key: options.origin(key).where for key in options},
            )
        )
        record(decision_of(choice, self._at()))
        for one in decisions_of(self._statement.rules, self._at()):
            record(one)
        self._deployed = self._at()
        record(StateChange(at=self._deployed, vertex=_VERTEX, state="SCHEDULED", subtasks=[0], attempts=[0]))
        record(JobStatusRecord(at=self._deployed, status="RUNNING", cause=f"job '{name}' started"))

    def _at(self) -> float:
        return time.perf_counter() - self._began

    def ends(self, status: str, cause: str) -> None:
        """Without rows."""
        at = self._at()
        self._record(StateChange(at=at, vertex=_VERTEX, state=status, subtasks=[0], attempts=[0], cause=cause))
        self._record(JobStatusRecord(at=at, status=status, cause=cause))

    def finishes(self, rows: pa.Table, peak: int) -> None:
        """``peak``: bytes."""
        at = self._at()
        self._record(
            StateChange(
                at=at,
                vertex=_VERTEX,
                state="FINISHED",
                subtasks=[0],
                attempts=[0],
                hosts=[socket.gethostname()],
                nodes=[0],
                deployed=[self._deployed],
                running=[self._deployed],
                peaks=[-(-peak // MIB)],
            )
        )
        numbers = {
            "parallelism": 1,
            "numFinishedTasks": 1,
            "numRecordsOut": rows.num_rows,
            "numBytesIn": self._statement.nbytes,
            "numBytesProduced": rows.nbytes,
            "accumulateBusyTimeMs": round(1000 * (at - self._deployed)),
        }
        self._record(MetricsSnapshot(at=at, job={}, vertices={_VERTEX: numbers}))
        self._record(JobStatusRecord(at=at, status="FINISHED"))

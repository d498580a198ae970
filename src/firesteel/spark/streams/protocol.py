"""Carries out what a stream's scheduler asks of Spark, one thing after the other: start, rescale, stop.

A rescale: stop the query at its next commit barrier, bring the state to the new number, start again. Whatever goes
wrong on the way, the checkpoint is brought into order and the query started with the number it has.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from msgspec import structs
from py4j.protocol import Py4JError, Py4JNetworkError

from firesteel.errors import FiresteelError, UsageError, error_words, shortened
from firesteel.scheduler.streaming.commands import Action, Rescale, StartQuery, StopQuery
from firesteel.scheduler.streaming.events import (
    QueryFailed,
    QueryStarted,
    QueryStopped,
    RescaleFailed,
    RescaleStep,
    RescaleStepped,
)
from firesteel.spark.driver.threads import aside
from firesteel.spark.streams.checkpoint_files import SHUFFLE_PARTITIONS, CheckpointFiles, CheckpointState
from firesteel.spark.streams.commit_barrier import CommitBarrier, commit_barrier_of, refuse_if_taken, stop_query
from firesteel.spark.streams.progress import Commits, Heard, Progress, ProgressListener
from firesteel.spark.streams.query import Prepared, QueryStarter
from firesteel.spark.streams.repartition import cancel_repartition, recover, repartition_state, replay_pending
from firesteel.task.functions.user_code import is_foreign, user_frames

LOOK_SECONDS = 0.1
"""Between looks, while a query is built, whether it is still wanted."""
BUILD_SECONDS = 2.0
"""So long a query may still be built after all else is done before that is told as a step."""
_log = logging.getLogger("firesteel.spark")


@dataclass(eq=False)
class Run:
    """A query that was started."""

    number: int
    query: Any
    barrier: CommitBarrier
    listener: ProgressListener
    commits: Commits
    started: QueryStarted
    expected: bool = False
    """It is being stopped by us: its end is not news."""

    def close(self) -> None:
        self.barrier.close()
        self.listener.close()


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A query is gone that nobody stopped. ``failed`` None: it ended by itself. ``recent``: the last of its progress."""

    run: Run
    failed: QueryFailed | None
    recent: tuple[Progress, ...]
    committed: int


class Protocol:
    """``report`` takes events, each Run when it has started, and RunEnded, from several threads; ``stepped`` is called as each step begins."""

    def __init__(
        self,
        spark: Any,
        starter: QueryStarter,
        checkpoint: str,
        *,
        report: Callable[[Any], None],
        now: Callable[[], float],
        stepped: Callable[[RescaleStep], None],
    ) -> None:
        self._spark = spark
        self._starter = starter
        self._checkpoint = checkpoint
        self._report = report
        self._now = now
        self._stepped = stepped
        self._commands: SimpleQueue[StartQuery | Rescale | StopQuery | None] = SimpleQueue()
        self._run: Run | None = None
        self._given_up = threading.Event()
        """Whatever is under way is not to start a query any more."""
        self._replaying: Any = None
        """The query that replays a batch; None: none does."""
        self._parallelism = 0
        """Of the query that ran last; 0: none did."""
        self._thread = threading.Thread(target=self._work, name="firesteel-query", daemon=True)

    # --- for the driver's thread -----------------------------------------------------------------------------

    def begin(self) -> None:
        self._thread.start()

    def do(self, command: StartQuery | Rescale | StopQuery) -> None:
        """In order; returns at once. A stop without savepoint breaks into a wait for a checkpoint, and into a repartition."""
        if isinstance(command, StopQuery) and not command.savepoint:
            self._give_up()
            run = self._run
            if run is not None:
                run.expected = True
                threading.Thread(target=run.barrier.close, name="firesteel-let-go", daemon=True).start()
        self._commands.put(command)

    def end(self) -> None:
        """Whatever runs is stopped; returns when the thread has ended."""
        self._give_up()
        run = self._run
        if run is not None:
            run.expected = True
            run.barrier.close()
        self._commands.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _give_up(self) -> None:
        self._given_up.set()
        with suppress(Exception):  # Spark may be gone
            cancel_repartition(self._spark, self._checkpoint)
        self._break_off_replay()

    def _break_off_replay(self) -> None:
        query = self._replaying
        if query is not None and self._given_up.is_set():
            aside(partial(_stop_quietly, query), "firesteel-stop", lambda: None)

    # --- in the protocol's thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while (command := self._commands.get()) is not None:
            try:
                match command:
                    case StartQuery():
                        self._start(command.run, command.parallelism)
                    case Rescale():
                        self._rescale(command)
                    case StopQuery():
                        self._stop(command)
            except Exception as error:
                _log.debug("%s went wrong", type(command).__name__, exc_info=error)
                self._tell_failed(command.run, error)
        with suppress(Exception):  # Spark may be gone
            self._forget_run(stop=True)

    def _tell_failed(self, number: int, error: BaseException, batch: int | None = None) -> None:
        self._report(self._failure(number, describe(error), batch))

    def _failure(self, number: int, told: Described, batch: int | None) -> QueryFailed:
        return QueryFailed(
            at=self._now(), run=number, cause=told.cause, batch=batch, final=told.final, counted=told.counted
        )

    def _start(
        self,
        number: int,
        parallelism: int,
        prepared: Prepared | None = None,
        *,
        state: CheckpointState | None = None,
        replayed_rows: int = 0,
    ) -> None:
        """``state``: of a checkpoint that is known to be in order. Raises whatever keeps the query from starting."""
        self._forget_run(stop=True)
        sentence = ""
        if state is None:
            refuse_if_taken(self._spark, self._checkpoint)
            recovery = recover(self._spark, self._checkpoint)
            state, sentence = recovery.state, recovery.sentence
        if prepared is None or prepared.parallelism != parallelism:
            prepared = self._built(self._starter.begin(parallelism, state))
        if prepared is None or self._given_up.is_set():
            return
        pinned = state.parallelism if prepared.plan.stateful else None
        started = QueryStarted(
            at=self._now(),
            run=number,
            plan=replace(prepared.plan, parallelism=pinned or prepared.plan.parallelism),
            batch=state.committed,
            recovered=sentence,
            replayed_rows=replayed_rows,
        )
        self._run = run = self._begin_run(prepared, started)
        self._parallelism = started.plan.parallelism
        self._report(run)
        threading.Thread(target=self._await_end, args=(run,), name="firesteel-await", daemon=True).start()

    def _begin_run(self, prepared: Prepared, started: QueryStarted) -> Run:
        number = started.run
        listener = ProgressListener(prepared.session, number, self._report)
        query: Any = None
        try:
            query = prepared.writer.start()
            barrier = commit_barrier_of(
                number, query, self._spark.sparkContext, partial(stop_query, query), self._report
            )
            plan = replace(started.plan, has_commit_barrier=barrier.is_available)
            started = structs.replace(started, at=self._now(), plan=plan)
            return Run(number, query, barrier, listener, Commits(number, started.batch), started)
        except BaseException:
            if query is not None:  # nobody would know of it
                _stop_quietly(query)
            listener.close()
            raise

    def _built(self, future: Future[Prepared]) -> Prepared | None:
        """Raises what ``build`` raised. None: given up before it came to an end."""
        while not self._given_up.is_set():
            if wait([future], LOOK_SECONDS).done:
                if (error := future.exception()) is not None:
                    raise error  # result() would put frames of its own among the user's
                return future.result()
        return None

    def _built_ahead(self, ahead: Future[Prepared], rescaling: _Rescaling) -> Prepared | None:
        """None: given up, or it failed; it is tried again then, for the user to see why."""
        if not wait([ahead], BUILD_SECONDS).done:
            self._step(rescaling, RescaleStep.BUILD)
        try:
            return self._built(ahead)
        except Exception:
            return None

    def _rescale(self, command: Rescale) -> None:
        rescaling = _Rescaling(command, self._parallelism)
        prepared: Prepared | None = None
        state: CheckpointState | None = None
        try:
            try:
                self._halt(rescaling)
                if self._given_up.is_set():
                    return
                ahead = self._starter.begin(command.parallelism, None)
                self._replay(rescaling)
                if self._given_up.is_set():
                    return
            except Exception as error:  # the query's own: whether and when it is started again is not for us to say
                _log.debug("the query failed in rescale %d", command.rescale, exc_info=error)
                if not self._given_up.is_set():
                    self._tell_failed(command.run, error, rescaling.pending)
                return
            if command.action is Action.REPARTITION:
                self._step(rescaling, RescaleStep.REPARTITION)
                batch = repartition_state(self._spark, self._checkpoint, command.parallelism)
                state = rescaling.repartitioned(batch)
            prepared = self._built_ahead(ahead, rescaling)
            parallelism = command.parallelism
        except Exception as error:
            parallelism = rescaling.before or (rescaling.state and rescaling.state.parallelism) or command.parallelism
            cause = error.message if isinstance(error, FiresteelError) else describe(error).cause
            _log.debug("rescale %d failed", command.rescale, exc_info=error)
            self._report(RescaleFailed(at=self._now(), rescale=command.rescale, cause=cause, parallelism=parallelism))
        if self._given_up.is_set():
            return
        self._step(rescaling, RescaleStep.START)
        self._start(command.run, parallelism, prepared, state=state, replayed_rows=rescaling.replayed)

    def _halt(self, rescaling: _Rescaling) -> None:
        """Stops the query, at a checkpoint unless the command is not to wait for one."""
        self._step(rescaling, RescaleStep.COMMIT_BARRIER)
        run = self._run
        if run is None:
            return
        run.expected = True
        # A rescale that comes with the restart after a failure: that the query failed is known, and its batch is replayed.
        is_known = rescaling.command.replay and not run.query.isActive
        if rescaling.command.replay or not run.query.isActive:
            run.barrier.close()
            self._step(rescaling, RescaleStep.STOP)
            stop_query(run.query)
        else:
            self._stop_at_barrier(run, rescaling)
        error = run.query.exception()
        self._forget_run()
        rescaling.state = self._state()
        rescaling.old_run = run.number
        self._tell_last(run, rescaling.state.committed)
        if error is not None and not is_known:
            raise error

    def _stop_at_barrier(self, run: Run, rescaling: _Rescaling) -> None:
        """Stops the query at its next checkpoint; where it is, if the command is not to wait so long."""
        within = rescaling.command.within
        patience = None if within is None else threading.Timer(within, run.barrier.close)
        if patience is not None:
            patience.daemon = True
            patience.start()
        try:
            run.barrier.stop(lambda: self._step(rescaling, RescaleStep.STOP))
        finally:
            if patience is not None:
                patience.cancel()

    def _replay(self, rescaling: _Rescaling) -> None:
        """Commits a batch that was left half done, with the number it was planned for."""
        state = rescaling.state
        if state is None or state.pending is None or state.unfinished is not None:
            return
        self._step(rescaling, RescaleStep.REPLAY)
        parallelism = rescaling.before or state.parallelism or rescaling.command.parallelism
        prepared = self._built(self._starter.begin(parallelism, state))
        if prepared is None:
            return
        try:
            replayed = replay_pending(prepared.writer, self._spark, self._checkpoint, self._replay_begun)
        finally:
            self._replaying = None
        rescaling.replayed, rescaling.state = replayed.rows, replace(state, committed=replayed.batch)
        if replayed.told is not None:
            self._report(Heard(rescaling.old_run, replayed.told))

    def _replay_begun(self, query: Any) -> None:
        self._replaying = query
        self._break_off_replay()

    def _step(self, rescaling: _Rescaling, step: RescaleStep) -> None:
        if step in rescaling.told:
            return
        rescaling.told.append(step)
        batch = -1 if rescaling.state is None else rescaling.state.committed
        if rescaling.state is None and self._run is not None:
            batch = self._run.commits.last
        self._report(RescaleStepped(at=self._now(), rescale=rescaling.command.rescale, step=step, batch=batch))
        self._stepped(step)

    def _stop(self, command: StopQuery) -> None:
        run, error = self._run, None
        if run is not None:
            run.expected = True
            if command.savepoint and run.query.isActive:
                run.barrier.stop(lambda: None)
            error = run.query.exception() if command.savepoint else None
            self._forget_run(stop=True)
        state = self._state()
        if run is not None:
            self._tell_last(run, state.committed)
        if error is not None and not self._given_up.is_set():
            self._tell_failed(command.run, error, state.pending)
            return
        committed = state.pending is None
        self._report(QueryStopped(at=self._now(), run=command.run, batch=state.committed, committed=committed))

    def _forget_run(self, *, stop: bool = False) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        run.expected = True
        run.barrier.close()
        if stop:
            stop_query(run.query)
        run.listener.close()

    def _tell_last(self, run: Run, committed: int) -> None:
        """Reports the last batches that a stopped query committed: Spark's listener may not have spoken of it before it was closed."""
        with suppress(Exception):  # Spark may be gone
            for progress in reversed(recent_progress(run)):
                if progress.batch <= committed:
                    self._report(Heard(run.number, progress))

    def _state(self) -> CheckpointState:
        return CheckpointFiles(self._spark, self._checkpoint).read()

    # --- in a thread of each run -----------------------------------------------------------------------------

    def _await_end(self, run: Run) -> None:
        with suppress(Exception):  # what it ended with is asked below
            run.query.awaitTermination()
        if run.expected:
            return
        recent: list[Progress] = []
        committed, pending = run.commits.last, None
        try:
            error = run.query.exception()
            recent = list(recent_progress(run))
            state = self._state()
            committed, pending = state.committed, state.pending
        except Exception as gone:
            error = gone
        told = None if error is None else describe(error)
        if told is None and run.started.plan.continuous:  # it does not end by itself
            told = STOPPED_FROM_OUTSIDE
        failed = None if told is None else self._failure(run.number, told, pending)
        if not run.expected:
            self._report(RunEnded(run, failed, tuple(recent), committed))


@dataclass(eq=False)
class _Rescaling:
    """A rescale under way. ``before``: partitions that the query has, 0: not known. ``state``: of its checkpoint, stopped."""

    command: Rescale
    before: int
    state: CheckpointState | None = None
    replayed: int = 0
    old_run: int = 0
    """Number of the run that was stopped; 0: none was."""
    told: list[RescaleStep] = field(default_factory=list[RescaleStep])

    @property
    def pending(self) -> int | None:
        """The batch that is left half done."""
        return None if self.state is None else self.state.pending

    def repartitioned(self, batch: int) -> CheckpointState | None:
        """The checkpoint as it is now, without asking it again; it was in order, or it had not been repartitioned."""
        if self.state is None or self.state.settings is None:
            return None
        settings = {**self.state.settings, SHUFFLE_PARTITIONS: str(self.command.parallelism)}
        return replace(self.state, planned=batch, committed=batch, settings=settings, pending_settings=None)


def recent_progress(run: Run) -> list[Progress]:
    """Returns the progress that was not told yet, newest first."""
    import json

    found: list[Progress] = []
    for told in reversed(run.query._jsq.recentProgress()):
        progress = Progress.of(json.loads(told.json()))
        if progress.batch <= run.commits.last:
            break
        found.append(progress)
    return found


def _stop_quietly(query: Any) -> None:
    with suppress(Exception):  # who waits for its end is told
        stop_query(query)


_TRACEBACK = "Traceback (most recent call last):"
_STATE = re.compile(r"\s*SQLSTATE: \w+\.?")
_CONDITION = re.compile(r"^\s*(?:[\w.$]+: )?\[[A-Z0-9_.]+\]\s*")
_UNREAD = re.compile(r"\[FAILED_READ_FILE\.?(\w*)\] Encountered error while reading file (\S+)\.\s+([^\n]*)")
_CAUSE = re.compile(r"^Caused by: ([^\n]+)", re.MULTILINE)
_OF_SPARK = re.compile(
    r"^(?:[\w.]+\.)?Py4JJavaError: An error occurred while calling \S+\s+: (?:[\w.$]+: )?(?:\[[A-Z0-9_.]+\]\s*)?(.*)",
    re.DOTALL,
)
"""What a query raised that a Python function ran."""
_FRAME = re.compile(r'\s+File "([^"]+)", line \d+')
_LOST = (
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailed",
    "Executor heartbeat timed out",
    "ExecutorDeadException",
)
_BEFORE = (
    ("Python worker exited unexpectedly", "A Python worker died in the middle of a task: "),
    ("Python worker failed to connect back", "A Python worker died in the middle of a task: "),
    ("No space left on device", "A disk is full: "),
)
_IN_DRIVER = ("FOREACH_BATCH", "raised by the Python Proxy")
_FINAL = (
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_SCHEMA_MUST_BE_NULLABLE",
    "STATE_STORE_PROVIDER_DOES_NOT_SUPPORT",
    "UNSUPPORTED_STREAMING_OPERATION",
    "STREAMING_UNFINISHED_REPARTITION_DETECTED",
    "There are [",
)
"""The checkpoint is of another query; "There are [2] sources ..." has no condition of its own."""
_NOT_THERE = ("[TABLE_OR_VIEW_NOT_FOUND", "[UNRESOLVED_ROUTINE", "[DATA_SOURCE_NOT_FOUND")
_OWN_SESSION = " 'build' gets a session of its own: make its temporary views, functions and data sources in it."
_NO_ANSWER = re.compile(r"An error occurred while calling \S+$")
"""The words of py4j on a call that the JVM died in; where the JVM has answered, its words follow."""
_JVM_ENDED = "Spark's JVM has ended: it crashed or was killed."
_GONE = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
_OF_THE_CODE = (NameError, TypeError, AttributeError, ImportError, SyntaxError, AssertionError)


@dataclass(frozen=True, slots=True)
class Described:
    """``cause``: a sentence, and below it the user's frames. ``final``: the next try would end alike. ``counted``: the stream's
    own fault."""

    cause: str
    final: bool = False
    counted: bool = True


STOPPED_FROM_OUTSIDE = Described(
    "Its query was stopped from outside, by stop() on the query itself or by another query on its checkpoint.",
    final=True,
)
"""Another try would stop that other query in turn."""


def describe(error: BaseException) -> Described:
    """Describes the error that a streaming query ended with, or that building and starting one raised."""
    if _is_without_jvm(error):
        return Described(_JVM_ENDED, final=True)
    if isinstance(error, FiresteelError):
        return Described(str(error), final=isinstance(error, UsageError))
    kind = type(error).__name__
    if not hasattr(error, "getCondition") and not hasattr(error, "java_exception"):
        frames = _cut(user_frames(error), "\n")
        return Described(f"It raised {error_words(error)}.{frames}", final=isinstance(error, _OF_THE_CODE))
    return described(_text(error), planning=kind in ("AnalysisException", "ParseException", "IllegalArgumentException"))


def described(text: str, *, planning: bool = False) -> Described:
    """``text``: what Spark says. ``planning``: before anything ran."""
    said = text.partition("\n=== Streaming Query ===")[0]
    said = said.partition("terminated with exception: ")[2] or said
    if any(word in said for word in _GONE):
        return Described("Spark was stopped while the stream was running.", final=True)
    unread = _UNREAD.search(said)
    if unread is not None:
        return Described(_unread(unread[1], unread[2], unread[3], _CAUSE.findall(said)))
    before, found, trace = said.partition(_TRACEBACK)
    if found:
        return Described(_in_python(before, trace))
    lost = next((word for word in _LOST if word in said), None)
    line = _CONDITION.sub("", _STATE.sub("", said.strip())).partition("\n\tat ")[0].partition("\nDriver stacktrace")[0]
    line = shortened(" ".join(line.split())).rstrip(".")
    if lost is not None:
        return Described(f"An executor was lost: {line}.", counted=False)
    what = next((sentence for word, sentence in _BEFORE if word in said), "")
    hint = _OWN_SESSION if not what and any(word in said for word in _NOT_THERE) else ""
    final = not what and (planning or bool(hint) or any(word in said for word in _FINAL))
    return Described(f"{what}{line}.{hint}", final=final)


def _in_python(before: str, trace: str) -> str:
    """The sentence on what a Python function raised. ``before``: what Spark says in front of its traceback."""
    frames, words = _frames(trace)
    where = "The function of foreachBatch" if any(w in before for w in _IN_DRIVER) else "A Python function of the query"
    if "FOREACH_USER" in before:
        where = "The function of foreach"
    of_spark = _OF_SPARK.match(words)
    if of_spark is not None:
        return (
            f"A query that Spark ran for {where[:1].lower()}{where[1:]} failed: {of_spark[1]}.{_cut(frames, chr(10))}"
        )
    return f"{where} raised {words}.{_cut(frames, chr(10))}"


def _unread(kind: str, path: str, more: str, causes: list[str]) -> str:
    """The sentence on a file that Spark cannot read. ``kind``: Spark's; ``more``: the rest of its message."""
    more = _STATE.sub("", more).strip() or (causes[-1].strip() if causes else "")
    said = f"The file {path} cannot be read{': ' if more else ''}{shortened(more).rstrip('.')}."
    if kind not in ("", "NO_HINT", "CANNOT_READ_FILE_FOOTER"):
        return said
    return (
        f"{said} It is damaged or has another format. Replace or remove it, or skip such files with "
        "spark.sql.files.ignoreCorruptFiles=true."
    )


def _is_without_jvm(error: BaseException | None) -> bool:
    """Returns whether a call into the JVM found nobody there. (The user's own code may find a connection refused.)"""
    while error is not None:
        if isinstance(error, Py4JNetworkError) or (type(error) is Py4JError and _NO_ANSWER.search(str(error))):
            return True
        if isinstance(error, ConnectionError):
            frames = traceback.extract_tb(error.__traceback__)
            return bool(frames) and any(_in_py4j(frame.filename) for frame in frames)
        error = error.__cause__
    return False


def _in_py4j(filename: str) -> bool:
    return "/py4j/" in filename or "/py4j-" in filename


def _frames(trace: str) -> tuple[str, str]:
    """The frames of the user's code of a traceback's text, and the error that ends it."""
    kept: list[str] = []
    words: list[str] = []
    keep = False
    for line in trace.strip("\n").split("\n"):
        frame = _FRAME.match(line)
        if frame:
            keep = not is_foreign(frame[1]) and not _in_py4j(frame[1])
        if line.startswith("  "):
            kept += [line] * keep
        elif line.startswith("\tat ") or line.strip().startswith("SQLSTATE") or (words and not line.strip()):
            break
        else:
            words.append(_STATE.sub("", line))
    told = shortened(" ".join(" ".join(words).split())).rstrip(".")
    return (f"{_TRACEBACK}\n" + "\n".join(kept) if kept else ""), told or "an error"


def _cut(frames: str, before: str) -> str:
    return before + frames.rstrip() if frames.strip() else ""


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    try:
        return str(error) if java is None else str(java.toString())
    except Exception:  # the JVM is gone
        return type(error).__name__

"""Carries out what a stream's scheduler asks of Spark, one thing after the other: start, rescale, stop.

A rescale: stop the query at its next commit barrier, bring the state to the new number, start again. Whatever goes
wrong on the way, the checkpoint is brought into order and the query started with the number it has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from msgspec import structs

from firesteel.errors import FiresteelError
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
from firesteel.spark.streams.failures import STOPPED_FROM_OUTSIDE, Described, describe
from firesteel.spark.streams.progress import Commits, Heard, Progress, ProgressListener
from firesteel.spark.streams.query import Prepared, QueryStarter
from firesteel.spark.streams.repartition import (
    cancel_repartition,
    recover,
    repartition_state,
    replay_pending,
)

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

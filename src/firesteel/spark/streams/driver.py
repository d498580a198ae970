"""The loop that runs one stream: what happens to its query and its cluster in, events to its scheduler, commands carried out.

One thread owns the scheduler, a queue of events and the timers. Whatever may take long (starting, stopping, rewriting state) is
done in the protocol's thread, which only puts something into the queue.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import structs

from firesteel.journal.file import Instruments
from firesteel.report.waits import of_stream
from firesteel.scheduler.kernel.commands import CancelTimer, Command, Record, SetTimer
from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.scheduler.streaming.adaptive_scheduler import AdaptiveScheduler
from firesteel.scheduler.streaming.commands import Continue, EndStream, Rescale, SetCommitBarrier, StartQuery, StopQuery
from firesteel.scheduler.streaming.events import (
    AnyStreamEvent,
    BatchStarted,
    ClusterChanged,
    QueryFinished,
    QueryIdle,
    RequirementsChanged,
    RescaleRequested,
    RescaleStep,
    StreamPlan,
    StreamSubmitted,
    TimerFired,
)
from firesteel.scheduler.streaming.records import RescaleRecord, StreamDatasets, StreamStatus
from firesteel.spark.driver.threads import Clock, aside
from firesteel.spark.streams.commit_barrier import AtBarrier, BarrierLost
from firesteel.spark.streams.offers import LOOK_SECONDS, ClusterWatch, Offers
from firesteel.spark.streams.progress import Heard, HeardIdle
from firesteel.spark.streams.protocol import Protocol, Run, RunEnded, recent_progress
from firesteel.spark.streams.query import Build, QueryStarter

FIRST_LOOK_SECONDS, FIRST_LOOKS = 0.05, 200
"""Seconds between looks, and their number, when a query that has just started is asked for its first batch."""
MOST_RESCALES = 10_000
"""The last ones are kept in memory; all are in the journal."""
_LIKELY = (ClusterChanged, RequirementsChanged, RescaleRequested)
"""Events that a rescale may follow."""
_log = logging.getLogger("firesteel.spark")


class Timers:
    """Of a stream: names and times, which are seconds on its clock."""

    def __init__(self) -> None:
        self._when: dict[str, float] = {}

    def set(self, timer: str, when: float) -> None:
        """One of that name that was set before is forgotten."""
        self._when[timer] = when

    def cancel(self, timer: str) -> None:
        self._when.pop(timer, None)

    def take_due(self, now: float) -> str | None:
        """The earliest that is due; it is set no more. None: none is."""
        first = min(self._when.items(), key=lambda item: item[1], default=None)
        if first is None or first[1] > now:
            return None
        del self._when[first[0]]
        return first[0]

    def pause(self, now: float) -> float | None:
        """Seconds until the next one is due; None: there is none."""
        return max(0.0, min(self._when.values()) - now) if self._when else None


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """``cause``: why it failed, empty if it did not."""

    failed: bool
    cause: str = ""


class StreamDriver:
    """``post``, ``status`` and ``join`` may be called from any thread."""

    def __init__(
        self,
        spark: Any,
        build: Build,
        checkpoint: str,
        scheduler: AdaptiveScheduler,
        instruments: Instruments,
        *,
        name: str,
        offers: Offers | None,
        stepped: Callable[[RescaleStep], None] = lambda step: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._scheduler = scheduler
        self._instruments = instruments
        self._clock = Clock()
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._protocol = Protocol(
            spark,
            QueryStarter(spark, build, checkpoint, name),
            checkpoint,
            report=self._queue.put,
            now=self._clock.now,
            stepped=stepped,
        )
        self._watch = _Watch(ClusterWatch(spark.sparkContext, offers), self._queue.put, self._clock.now)
        self._ended = ended
        self._lock = threading.Lock()
        """Of the scheduler: ``status`` is asked from other threads."""
        self._run: Run | None = None
        self._later: list[Heard | HeardIdle | AtBarrier] = []
        """Of a run that is not yet known here."""
        self._timers = Timers()
        self._events = 0
        self._told_datasets: tuple[tuple[tuple[str, str], ...], ...] = ((), ())
        self._rescales: deque[RescaleRecord] = deque(maxlen=MOST_RESCALES)
        self._end: StreamEnd | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"firesteel-stream-{name}", daemon=True)
        self._actions: dict[type[Command], Callable[[Any], None]] = {
            StartQuery: self._protocol.do,
            Rescale: self._release,
            StopQuery: self._release,
            SetCommitBarrier: self._set_barrier,
            Continue: self._go_on,
            SetTimer: lambda command: self._timers.set(command.timer, command.at),
            CancelTimer: lambda command: self._timers.cancel(command.timer),
            Record: lambda command: self._write(command.record),
            EndStream: self._end_stream,
        }

    # --- for any thread --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def now(self) -> float:
        """Seconds on the stream's clock."""
        return self._clock.now()

    def post(self, event: AnyStreamEvent) -> None:
        """Returns at once; an event after the stream's end is dropped."""
        self._queue.put(event)

    def status(self) -> StreamStatus:
        with self._lock:
            status = self._scheduler.status(self._clock.now())
        return structs.replace(status, waits_for=of_stream(status.waits))

    def refusal(self) -> str:
        """Why the running query cannot be rescaled, a sentence; empty: it can, as far as is known."""
        run = self._run
        return "" if run is None else run.started.plan.refusal

    def rescales(self) -> list[RescaleRecord]:
        return list(self._rescales)

    @property
    def end(self) -> StreamEnd | None:
        """None: it still runs."""
        return self._end if self._done.is_set() else None

    def join(self, timeout: float | None = None) -> bool:
        """True: the stream has ended, and nothing of it goes on."""
        return self._done.wait(timeout)

    # --- in the stream's thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._protocol.begin()
            self._watch.begin()
            self._feed(StreamSubmitted(at=self._clock.now()))
            while self._end is None:
                self._fire_timers()
                if self._end is not None:
                    break
                try:
                    item = self._queue.get(timeout=self._timers.pause(self._clock.now()))
                except Empty:
                    continue
                self._take(item)
        except BaseException as fault:
            _log.debug("the stream's loop ended", exc_info=fault)
            self._end = StreamEnd(True, f"A fault in Firesteel: {type(fault).__name__}: {fault}")
        finally:
            self._finish()

    def _finish(self) -> None:
        for tidy in (self._watch.end, self._protocol.end, self._instruments.close, self._ended):
            try:  # each of them, whatever the one before came to: the last gives the checkpoint back
                tidy()
            except Exception as error:
                _log.warning("The stream has ended, but cleaning up after it failed: %s", error)
        self._done.set()

    def _fire_timers(self) -> None:
        while self._end is None and (timer := self._timers.take_due(self._clock.now())) is not None:
            self._feed(TimerFired(at=self._clock.now(), timer=timer))

    def _take(self, item: Any) -> None:
        now = self._clock.now()
        match item:
            case Run():
                self._started(item)
            case RunEnded():
                self._gone(item)
            case Heard() | HeardIdle() | AtBarrier() | BarrierLost():
                self._heard(item, now)
            case _:
                if isinstance(item, _LIKELY):
                    self._expect_rescale()
                self._feed(item)

    def _expect_rescale(self) -> None:
        run = self._run
        if run is not None and run.started.plan.stateful and not run.started.plan.refusal and run.commits.last >= 0:
            warm_up(self._spark, self._checkpoint)

    def _started(self, run: Run) -> None:
        self._run = run
        self._watch.look_at(run)
        self._tell_datasets(run.started.plan)
        self._feed(run.started)
        later, self._later = self._later, []
        for item in later:
            self._heard(item, self._clock.now())

    def _tell_datasets(self, plan: StreamPlan) -> None:
        """Once, for a restarted query reads and writes the same."""
        told, self._told_datasets = self._told_datasets, (plan.reads, plan.writes)
        if told != self._told_datasets:
            inputs, outputs = ([{"namespace": n, "name": name} for n, name in names] for names in self._told_datasets)
            self._write(StreamDatasets(at=self._clock.now(), inputs=inputs, outputs=outputs))

    def _heard(self, item: Heard | HeardIdle | AtBarrier | BarrierLost, now: float) -> None:
        run = self._run
        if run is None or item.run > run.number:
            if not isinstance(item, BarrierLost):
                self._later.append(item)
            return
        if item.run < run.number:
            return
        match item:
            case Heard():
                if not run.barrier.is_available and run.commits.barrier_on:
                    self._feed_all(run.commits.at_barrier(item.progress.batch, item.progress, now))
                else:
                    self._feed_all(run.commits.heard(item.progress, now))
            case HeardIdle():
                if not run.commits.barrier_on or not run.barrier.is_available:
                    waits = run.commits.barrier_on
                    self._feed(QueryIdle(at=now, run=run.number, batch=run.commits.last, at_barrier=waits))
            case AtBarrier(found=found):
                if not run.commits.barrier_on:
                    run.barrier.go_on(found.batch)
                recent = recent_progress(run) if run.commits.misses(found.batch) else ()
                self._feed_all(run.commits.at_barrier(found.batch, found.of_batch(), now, recent))
            case BarrierLost():  # from now on it is taken for waiting where it was committed, and what it began is replayed
                events = run.commits.release(now)
                waits = run.commits.barrier_on
                self._feed_all(structs.replace(event, at_barrier=waits and event is events[-1]) for event in events)

    def _gone(self, item: RunEnded) -> None:
        run, now = item.run, self._clock.now()
        if run is not self._run:
            return
        run.commits.set_barrier(False)
        self._feed_all(run.commits.ended(item.recent, item.committed, now))
        if item.failed is not None:
            self._feed(item.failed)
        else:
            self._feed(QueryFinished(at=now, run=run.number, batch=item.committed))

    def _feed_all(self, events: Iterable[AnyStreamEvent]) -> None:
        for event in events:
            self._feed(event)

    def _feed(self, event: AnyStreamEvent) -> None:
        if self._end is not None:
            return
        self._events += 1
        with self._lock:
            commands = list(self._scheduler.handle(structs.replace(event, id=self._events)))
        for command in commands:
            self._actions[type(command)](command)

    # --- commands --------------------------------------------------------------------------------------------

    def _set_barrier(self, command: SetCommitBarrier) -> None:
        run = self._run
        if run is None or run.number != command.run:
            return
        run.commits.set_barrier(command.on)
        run.barrier.arm(command.on)
        if not command.on:
            self._feed_all(run.commits.release(self._clock.now()))

    def _go_on(self, command: Continue) -> None:
        run = self._run
        if run is not None and run.number == command.run:
            run.barrier.go_on(command.batch)

    def _release(self, command: Rescale | StopQuery) -> None:
        """The query is stopped at the barrier where it waits, or at its next commit, which is told as it is heard of."""
        if self._run is not None:
            self._run.commits.set_barrier(False)
        self._protocol.do(command)

    def _write(self, record: JournalRecord) -> None:
        if isinstance(record, RescaleRecord):
            self._rescales.append(record)
        self._instruments.record(record)

    def _end_stream(self, command: EndStream) -> None:
        self._end = StreamEnd(command.failed, command.cause)


class _Watch:
    """A thread that looks at the cluster, and for batches that have begun: Spark tells of a batch when it is over."""

    def __init__(
        self, cluster: ClusterWatch, report: Callable[[AnyStreamEvent], None], now: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._now = now
        self._run: Run | None = None
        self._looked: Run | None = None
        self._looks = 0
        self._told: tuple[int, int] = (0, -1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="firesteel-watch", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def look_at(self, run: Run) -> None:
        """Looks for this run's batches from now on."""
        self._run = run

    def end(self) -> None:
        self._stopped.set()

    def _work(self) -> None:
        look_at = 0.0
        while not self._stopped.is_set():
            try:
                if self._now() >= look_at:
                    look_at = self._now() + LOOK_SECONDS
                    changed: ClusterChanged | None = self._cluster.look(self._now())
                    if changed is not None:
                        self._report(changed)
                self._look_at_batch()
            except Exception as error:  # Spark is stopping: the query's end tells of it
                _log.debug("a look at the cluster failed", exc_info=error)
            self._stopped.wait(self._wait())

    def _wait(self) -> float:
        """A query that has just started is looked at often: when its first batch begins, a rescale's downtime is over."""
        run = self._run
        fresh = run is not None and self._told[0] != run.number and self._looks < FIRST_LOOKS
        return FIRST_LOOK_SECONDS if fresh or run is None else LOOK_SECONDS

    def _look_at_batch(self) -> None:
        run = self._run
        if run is None or run.expected:
            return
        if run is not self._looked:
            self._looked, self._looks = run, 0
        self._looks += 1
        batch = run.barrier.running()
        if batch is not None and batch > run.commits.last and (run.number, batch) > self._told:
            self._told = (run.number, batch)
            self._report(BatchStarted(at=self._now(), run=run.number, batch=batch))


_warmed: set[str] = set()
_lock = threading.Lock()


def warm_up(spark: Any, checkpoint: str) -> None:
    """Returns at once."""
    application = spark.sparkContext.applicationId
    with _lock:
        if application in _warmed:
            return
        _warmed.add(application)

    def read() -> None:
        try:
            spark.newSession().read.format("statestore").option("path", checkpoint).load().take(1)
        except Exception as error:  # several stores, no state yet, a query that has just ended
            _log.debug("the state's reader was not warmed up: %s", error)

    aside(read, "firesteel-warm-up", lambda: None)

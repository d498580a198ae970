"""AdaptiveStream: a Structured Streaming query whose parallelism follows the cluster and its user's requirements (FLIP-461)."""

from __future__ import annotations

import atexit
import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from firesteel.api.environment import ExecutionEnvironment
from firesteel.control.names import default_name
from firesteel.control.server import ControlServer, NoControl, open_control
from firesteel.errors import JobExecutionError, UsageError, interruption
from firesteel.journal.file import Instrument, Instruments, Journal, read
from firesteel.model.group_options import group_of_stream
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.monitoring.exporters import monitoring
from firesteel.options import PROGRESS
from firesteel.report.stream_report import explain_stream
from firesteel.scheduler.failover.restart_strategies import restart_strategy
from firesteel.scheduler.streaming.adaptive_scheduler import AdaptiveScheduler
from firesteel.scheduler.streaming.events import CancelRequested, RequirementsChanged, RescaleRequested, StopRequested
from firesteel.scheduler.streaming.records import RescaleRecord, StreamStatus
from firesteel.scheduler.streaming.wish import ResourceRequirements, check_partitions
from firesteel.ui.begun import Begun
from firesteel.ui.process import page_of, ui_of
from firesteel.view.stream_progress import create_stream_progress

if TYPE_CHECKING:
    from firesteel.spark.streams.driver import StreamDriver

EXIT_SECONDS = 8.0
"""Seconds that the process waits at its end for running streams, which are stopped then."""
_live: weakref.WeakSet[AdaptiveStream] = weakref.WeakSet()


class AdaptiveStream:
    """A stream that was started; see :meth:`start`. All methods may be called from any thread.

    As a context manager it is stopped at the end, as :meth:`stop` does; after an exception as :meth:`cancel` does.
    """

    def __init__(
        self,
        driver: StreamDriver,
        journal: Journal,
        *,
        id: str,
        name: str,
        checkpoint: str,
        requirements: ResourceRequirements,
    ) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.journal = journal.path
        """Its file, one JSON record a line."""
        self._id = id
        self._driver = driver
        self._requirements = requirements
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        build: Callable[[Any], Any],
        checkpoint: str | os.PathLike[str],
        requirements: ResourceRequirements | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        spark: Any = None,
        name: str | None = None,
        slot_sharing_group: SlotSharingGroup | str | None = None,
        instruments: Sequence[Instrument] = (),
    ) -> AdaptiveStream:
        """Starts a streaming query that is rescaled right after a checkpoint. Returns at once.

        ``build`` gets a SparkSession of its own and returns a DataStreamWriter that was not started and has no checkpoint
        location: ``lambda spark: spark.readStream....writeStream.outputMode("update").foreachBatch(sink)``. It is called
        again at each start of the query, so after each rescale and each failure, each time with a new session, and must
        describe the same query each time. Settings and temporary views that a query needs are set in ``build``: those of
        ``spark`` itself, and of an earlier session, are not there.

        ``checkpoint``: the query's, a path or URL; what a crash left there is finished or rolled back first. ``spark``: a
        classic session; without one, the running or a new one. ``name``: for ``firesteel stream ... NAME``; without one, the
        last two parts of the checkpoint's path (more where another stream is called so). ``slot_sharing_group``: the group that the
        whole stream is in (None: "default"), with what a slot of it, the place of one partition, needs; options
        ``slot-sharing-group.<name>.*`` go over it. Spark gives all tasks of a session alike, so a given session must give its
        tasks what the group says (``spark.task.cpus``); one that is made here does.

        Raises UsageError for options, sessions, groups and checkpoints that cannot work, and where another stream, or another
        query of this process, runs on the checkpoint. What goes wrong in ``build`` or in the query is raised by :meth:`await_termination` and :meth:`stop`.
        """
        if not callable(build):
            raise UsageError(
                "'build' must be a function from a SparkSession to a DataStreamWriter.",
                hint="As in build=lambda spark: spark.readStream....writeStream.foreachBatch(f).",
            )
        place = _absolute(checkpoint)
        wanted = requirements or ResourceRequirements()
        env = ExecutionEnvironment(spark, options)
        chosen = name or default_name(place)
        from firesteel.spark.storage.directories import new_job_id

        stream_id = new_job_id()

        def make_scheduler(group: SlotSharingGroup, cpus: int = 1) -> AdaptiveScheduler:
            strategy = restart_strategy(env.options, chosen)
            return AdaptiveScheduler(
                chosen,
                place,
                wanted,
                env.options,
                restart_strategy=strategy,
                stream_id=stream_id,
                group=group,
                cpus=cpus,
            )

        group = group_of_stream(slot_sharing_group, env.options)
        make_scheduler(group)  # complains before Spark is started, which takes a while
        ui = ui_of(env.options)
        taps = [] if ui is None else [ui.instrument()]
        journal = Journal.create(env.options, chosen, stream_id)
        control: ControlServer | NoControl | None = None
        beside: tuple[Instrument, ...] = ()
        try:
            control = open_control(place, name=chosen, journal=str(journal.path))
            from firesteel.spark.placement.status_store import SparkPages
            from firesteel.spark.session.versions import check_streaming
            from firesteel.spark.streams.commit_barrier import refuse_if_taken
            from firesteel.spark.streams.driver import StreamDriver
            from firesteel.spark.streams.offers import offers_of, session_cpus, settings_for

            session = env._session_with(settings_for(group))  # pyright: ignore[reportPrivateUsage]
            check_streaming(session.version)
            group = group_of_stream(slot_sharing_group, env.options)  # Spark's configuration is known only now
            scheduler = make_scheduler(group, session_cpus(session.sparkContext))
            offers = offers_of(session.sparkContext, group, env.options)
            refuse_if_taken(session, place)
            beside = monitoring(env.options)
            progress = create_stream_progress(env.options[PROGRESS])
            watchers = Instruments((journal, progress, *taps, *beside, *instruments))
            driver = StreamDriver(
                session,
                build,
                place,
                scheduler,
                watchers,
                name=chosen,
                offers=offers,
                stepped=partial(_stepped, instruments),
                ended=control.close,
            )
        except BaseException:
            for instrument in (journal, *beside):
                instrument.close()
            journal.path.unlink(missing_ok=True)  # nothing ran
            if control is not None:
                control.close()
            raise
        stream = cls(driver, journal, id=stream_id, name=chosen, checkpoint=place, requirements=wanted)
        handler = _Handler(stream)
        control.serve(handler)
        driver.start()
        if ui is not None:
            pages = SparkPages(session.sparkContext)
            ui.began(taps[0], Begun(stream_id, chosen, journal.path, handler.cancel, pages.streams, stream=handler))
        _live.add(stream)
        return stream

    # --- what it is doing ---

    def status(self) -> StreamStatus:
        """A snapshot: state, phase, parallelism now and wanted, batches, rates, state, what it waits for."""
        return self._driver.status()

    def history(self) -> list[RescaleRecord]:
        """Every rescale, and every one that came to nothing, oldest first."""
        return self._driver.rescales()

    def explain(self) -> str:
        """Every decision and its reason, in sentences."""
        told, page = explain_stream(read(self.journal)), page_of(self._id)
        return f"{told}\n\nIts page: {page}" if page else told

    # --- wishes ---

    def update_requirements(self, lower: int | None = None, upper: int | None = None) -> None:
        """Changes a bound or both; the stream is rescaled at a checkpoint, should that be needed. Raises UsageError."""
        with self._lock:
            before = self._requirements
            self._requirements = ResourceRequirements(
                before.lower if lower is None else lower, before.upper if upper is None else upper
            )
            changed = self._requirements
        self._driver.post(RequirementsChanged(at=self._driver.now(), lower=changed.lower, upper=changed.upper))

    def rescale(self, parallelism: int | None = None) -> None:
        """Asks for this number of partitions, or (None) for what is wanted already, whatever the downtime. Returns at once.

        Raises UsageError if the query cannot be rescaled, and for what is not a whole number from 1 to 32,768.
        """
        if parallelism is not None:
            check_partitions(parallelism)
        refusal = self._driver.refusal()
        if refusal:
            raise UsageError(f"The stream '{self.name}' cannot be rescaled. {refusal}")
        self._driver.post(RescaleRequested(at=self._driver.now(), parallelism=parallelism))

    def stop(self, timeout: float | None = None) -> bool:
        """Lets the running batch commit, stops, and waits for that, at most ``timeout`` seconds. False: the time was over.

        The checkpoint stays, and a later start goes on from it. Raises JobExecutionError if the stream has failed.
        """
        self._driver.post(StopRequested(at=self._driver.now()))
        return self.await_termination(timeout)

    def cancel(self) -> None:
        """Asks for a stop without waiting for the running batch, which the next start replays. Returns at once."""
        self._driver.post(CancelRequested(at=self._driver.now()))

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for the stream's end, at most ``timeout`` seconds. False: it still runs.

        Raises JobExecutionError if it failed. Ctrl-C lets the running batch commit and stops the stream (a second one does not
        wait for that), and raises KeyboardInterrupt.
        """
        from firesteel.spark.session.sessions import own_interrupts

        with own_interrupts():
            try:
                ended = self._driver.join(timeout)
            except KeyboardInterrupt:
                self._interrupt()
                raise interruption(f"The stream '{self.name}' was interrupted and stopped.") from None
        end = self._driver.end
        if end is not None and end.failed:
            sentence, _, trace = end.cause.partition("\n")
            raise JobExecutionError(f"The stream '{self.name}' failed: {sentence}", cause_trace=trace or None)
        return ended

    def _interrupt(self) -> None:
        self._driver.post(StopRequested(at=self._driver.now()))
        try:
            self._driver.join()
        except KeyboardInterrupt:
            self.cancel()
            self._driver.join(EXIT_SECONDS)

    @property
    def is_active(self) -> bool:
        """True until the stream has ended."""
        return self._driver.end is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        elif self.is_active:
            self.cancel()
            self._driver.join()

    def _repr_html_(self) -> str:
        """In a notebook: how it is just now, and its rescales."""
        from firesteel.view.notebook.stream import status_html

        return status_html(self.status(), self.history(), page_of(self._id))

    def __repr__(self) -> str:
        return f"AdaptiveStream({self.name!r}, {self.checkpoint!r}, {self.status().state})"


class _Handler:
    """The requests that the control socket may make of a stream; each call returns at once."""

    def __init__(self, stream: AdaptiveStream) -> None:
        self._stream = stream
        self.status = stream.status
        self.update_requirements = stream.update_requirements
        self.rescale = stream.rescale
        self.cancel = stream.cancel

    def stop(self) -> None:
        self._stream._driver.post(StopRequested(at=self._stream._driver.now()))  # pyright: ignore[reportPrivateUsage]


def _stepped(instruments: Sequence[Instrument], step: Any) -> None:
    """Instruments that want to be there while a rescale takes a step (tests, which kill it there) say so by a method."""
    for instrument in instruments:
        take = getattr(instrument, "stepped", None)
        if take is not None:
            take(step)


def _absolute(checkpoint: str | os.PathLike[str]) -> str:
    """Paths without a scheme are of this machine."""
    text = os.fspath(checkpoint)
    if not text.strip():
        raise UsageError("The checkpoint is empty; it must be a path or a URL.")
    return text.rstrip("/") if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) else str(Path(text).absolute())


def _at_exit() -> None:
    """A process that ends with streams running stops them where they are; what was begun is replayed at the next start."""
    streams = [stream for stream in _live if stream.is_active]
    for stream in streams:
        stream.cancel()
    for stream in streams:
        stream._driver.join(EXIT_SECONDS)  # pyright: ignore[reportPrivateUsage]


atexit.register(_at_exit)

"""Starting a stream's query: a session of its own for each start, what ``build`` makes of it, and what is known of it then."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from firesteel.errors import UsageError
from firesteel.scheduler.streaming.events import StreamPlan
from firesteel.spark.driver.threads import aside
from firesteel.spark.streams.checkpoint.checkpoint_files import SHUFFLE_PARTITIONS, CheckpointState
from firesteel.spark.streams.inspection import STREAM_SETTINGS, inspect, reads_of, writer_option, writes_of

Build = Callable[[Any], Any]
CHECKPOINT_OPTION = "checkpointLocation"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query that was built and analysed, and not started."""

    session: Any
    writer: Any
    plan: StreamPlan
    parallelism: int


class QueryStarter:
    """``build``: from a session to a DataStreamWriter, called again at each start. ``name``: the query's, in Spark."""

    def __init__(self, spark: Any, build: Build, checkpoint: str, name: str) -> None:
        self._spark = spark
        self._build = build
        self._checkpoint = checkpoint
        self._name = name

    def prepare(self, parallelism: int, state: CheckpointState | None) -> Prepared:
        """Calls ``build``. Raises UsageError for what it must not give back, and whatever it raises."""
        session = self._spark.newSession()
        for key, value in STREAM_SETTINGS.items():
            session.conf.set(key, value)
        session.conf.set(SHUFFLE_PARTITIONS, str(parallelism))
        with _active(session):
            built = self._build(session)
        writer = self._checked(built, session)
        writer = writer.option(CHECKPOINT_OPTION, self._checkpoint)
        if not writer_option(writer, "queryName"):  # a memory sink's table is named by it
            writer = writer.queryName(self._name.rpartition("/")[2])
        plan = replace(inspect(session, writer, state), reads=reads_of(writer), writes=writes_of(writer))
        return Prepared(session, writer, _plan(plan, parallelism), parallelism)

    def begin(self, parallelism: int, state: CheckpointState | None) -> Future[Prepared]:
        """:meth:`prepare` in a thread that no one need wait for: ``build`` is the user's, and may hang."""
        future: Future[Prepared] = Future()

        def work() -> None:
            try:
                future.set_result(self.prepare(parallelism, state))
            except BaseException as error:
                future.set_exception(error)

        aside(work, "firesteel-build")
        return future

    def _checked(self, writer: Any, session: Any) -> Any:
        from pyspark.sql import DataFrame
        from pyspark.sql.streaming.query import StreamingQuery
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        example = "build=lambda spark: spark.readStream....groupBy(...).count().writeStream.outputMode('update').foreachBatch(f)"
        if isinstance(writer, StreamingQuery):
            writer.stop()
            raise UsageError(
                "'build' has started the query itself.",
                hint="Leave out start(): Firesteel starts it, with its checkpoint, and again after each rescale.",
            )
        if isinstance(writer, DataFrame):
            raise UsageError(
                "'build' gave back a DataFrame; a DataStreamWriter is needed.",
                hint="End it with .writeStream and its sink.",
            )
        if not isinstance(writer, DataStreamWriter):
            what = "nothing" if writer is None else f"a {type(writer).__name__}"
            raise UsageError(f"'build' gave back {what}; a DataStreamWriter is needed.", hint=f"As in {example}.")
        frame: Any = writer._df
        if not frame._jdf.sparkSession().equals(session._jsparkSession):
            raise UsageError(
                "'build' reads with another session than the one it is given, so that neither the parallelism nor the state's "
                "store could be set.",
                hint="Begin with build's own argument, as in 'lambda spark: spark.readStream...'; "
                "getOrCreate() and getActiveSession() give another one.",
            )
        own = writer_option(writer, CHECKPOINT_OPTION)
        if own and own != self._checkpoint:
            raise UsageError(
                f"'build' sets {CHECKPOINT_OPTION} to '{own}', and the stream's checkpoint is '{self._checkpoint}'.",
                hint="Leave it out of 'build'.",
            )
        return writer


@contextmanager
def _active(session: Any) -> Generator[None]:
    """The session is this thread's active one, for Spark's functions that ask for it; the one before is put back."""
    sessions = session._get_j_spark_session_class(session._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _plan(plan: StreamPlan, parallelism: int) -> StreamPlan:
    """A stateless query takes any number at any start, whatever its checkpoint says."""
    return plan if plan.stateful else replace(plan, parallelism=parallelism)

"""Starting a stream's query: a session of its own for each start, what ``build`` makes of it, and what is known of it and of its plan then."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from firesteel.connectors.files.paths import DatasetName, dataset_of_url
from firesteel.errors import UsageError
from firesteel.scheduler.streaming.events import StreamPlan
from firesteel.spark.driver.threads import aside
from firesteel.spark.streams.checkpoint_files import PROVIDER, ROCKSDB, SHUFFLE_PARTITIONS, CheckpointState
from firesteel.spark.streams.repartition import ESCAPED, has_link, lacks_repartition

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


STREAM_SETTINGS = {PROVIDER: ROCKSDB}
"""Settings that a session needs so that a fresh query can be rescaled later."""
_ALWAYS_STATEFUL = {
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication within the watermark",
    "Distinct": "distinct",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "GlobalLimit": "limit",
}
_GLOBAL = (
    "An aggregation without a key has one state partition by nature: group by a key (a hash of the rows will do), and merge "
    "the few partial results downstream."
)
_TRIGGERS = {
    "ContinuousTrigger": "A continuous query has no micro-batches to stop between: give it a processing-time trigger.",
    "RealTimeTrigger": "A query in real-time mode cannot be stopped at a checkpoint: give it a processing-time trigger.",
}

_IN_CHECKPOINT = {
    "stateStoreSave": "aggregation",
    "StatefulStreamlineAggregate": "aggregation",
    "sessionWindowStateStoreSaveExec": "session window",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "symmetricHashJoin": "stream-stream join",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState",
    "transformWithStateInPySparkExec": "transformWithState",
    "globalLimit": "limit",
}
"""By the names that Spark gives operators in a checkpoint."""


@dataclass(frozen=True, slots=True)
class _Found:
    names: tuple[str, ...]
    one_partition: str
    """The reason why all rows must be in one place, a sentence; empty: nothing."""


@dataclass(frozen=True, slots=True)
class _Trigger:
    kind: str
    seconds: float | None


def inspect(spark: Any, writer: Any, state: CheckpointState | None = None) -> StreamPlan:
    """The plan of a query that is about to start.

    ``writer``: the DataStreamWriter that ``build`` gave; ``spark``: its session; ``state``: of its checkpoint, if it has begun.
    Raises UsageError where that checkpoint was written by another query.
    A stateless query takes the session's number at each start; what its offsets say (Spark writes it down all the same) is not used.
    """
    reason = lacks_repartition(spark)
    if not hasattr(writer, "_jwrite"):
        return StreamPlan(refusal=reason)
    found, trigger = _operators(writer._df), _trigger(writer)
    if state is not None:
        _check_same_query(found.names, state)
    pinned = state.parallelism if state is not None and found.names else None
    refusal = _refusal(spark, found, trigger, writer, state) or (reason if found.names else "")
    return StreamPlan(
        stateful=found.names,
        parallelism=pinned or int(spark.conf.get(SHUFFLE_PARTITIONS)),
        refusal=refusal,
        trigger_interval=trigger.seconds,
        continuous=trigger.kind not in ("OneTimeTrigger", "AvailableNowTrigger"),
    )


def _operators(frame: Any) -> _Found:
    names: list[str] = []
    single = ""
    for node in streaming_nodes(frame._jdf.queryExecution().analyzed()):
        name = node.getClass().getSimpleName()
        if name in _ALWAYS_STATEFUL:
            names.append(_ALWAYS_STATEFUL[name])
            if name == "GlobalLimit":
                single = "A limit on a stream counts all rows in one place: take the first rows downstream."
        elif name == "Aggregate":
            keys = node.groupingExpressions().mkString(" ")
            names.append("session window" if "session_window" in keys else "aggregation")
            if not keys:
                single = _GLOBAL
        elif name == "Join" and node.left().isStreaming() and node.right().isStreaming():
            names.append("stream-stream join")
    return _Found(tuple(reversed(names)), single)


def _check_same_query(names: tuple[str, ...], state: CheckpointState) -> None:
    """A checkpoint that holds none of the query's operators was not written by it. (Some may have been added or optimised away.)"""
    there = {_IN_CHECKPOINT.get(operator.name, operator.name) for operator in state.operators}
    if there and there.isdisjoint(names):
        ours = f"has {_listed(names)}" if names else "keeps no state"
        raise UsageError(
            f"The checkpoint at {state.location} belongs to another query: it holds the state of {_listed(sorted(there))}, "
            f"and this query {ours}.",
            hint="Name another directory, or remove that one to begin anew.",
        )


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def streaming_nodes(plan: Any) -> Iterator[Any]:
    """The streaming part of a logical plan, from the sink's side."""
    if not plan.isStreaming():
        return
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from streaming_nodes(children.apply(at))


def _trigger(writer: Any) -> _Trigger:
    """A trigger that cannot be read is taken for the default."""
    try:
        trigger = writer_field(writer, "trigger")
        kind = str(trigger.getClass().getSimpleName()).rstrip("$")
        seconds = trigger.intervalMs() / 1000 if kind == "ProcessingTimeTrigger" else None
    except Exception:
        return _Trigger("ProcessingTimeTrigger", None)
    return _Trigger(kind, seconds or None)


def _refusal(spark: Any, found: _Found, trigger: _Trigger, writer: Any, state: CheckpointState | None) -> str:
    if trigger.kind in _TRIGGERS:
        return _TRIGGERS[trigger.kind]
    if writer_option(writer, "asyncProgressTrackingEnabled").lower() == "true":
        return "With asynchronous progress tracking the log of batches is incomplete: leave out asyncProgressTrackingEnabled."
    if found.one_partition:
        return found.one_partition
    again = _starts_once(writer)
    if again:
        return again
    return (
        _path_refusal(spark, writer_option(writer, "checkpointLocation")) or _store_refusal(spark, state)
        if found.names
        else ""
    )


def _path_refusal(spark: Any, checkpoint: str) -> str:
    odd = sorted(set(ESCAPED.findall(checkpoint)))
    if not odd or has_link(spark, checkpoint):
        return ""
    told = ", ".join("a blank" if character.isspace() else f"'{character}'" for character in odd)
    return (
        f"Spark does not find the state to repartition in a directory whose path has {told}: stop the stream, rename the "
        f"directory '{checkpoint}', and start the stream with the new name."
    )


def _starts_once(writer: Any) -> str:
    """Why the query cannot be started a second time from its checkpoint, a sentence; empty: it can."""
    for node in streaming_nodes(writer._df._jdf.queryExecution().analyzed()):
        if node.getClass().getSimpleName().startswith("StreamingRelation") and node.sourceName() == "socket":
            return "A socket cannot be read again from where a query was stopped: put a file or a log between."
    mode = writer_field(writer, "outputMode")
    if (
        str(writer_field(writer, "source")).lower() == "memory"
        and mode is not None
        and str(mode.toString()) != "Complete"
    ):
        return (
            "Spark starts a memory sink from its checkpoint only in complete mode: write to foreachBatch or to files."
        )
    return ""


def writer_field(writer: Any, name: str) -> Any:
    """Of the JVM's writer, which keeps it to itself; None: it cannot be read."""
    try:
        field = writer._jwrite.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(writer._jwrite)
    except Exception:
        return None


def _store_refusal(spark: Any, state: CheckpointState | None) -> str:
    provider = state.provider if state is not None and state.provider else spark.conf.get(PROVIDER)
    if provider == ROCKSDB:
        return ""
    where = f"The checkpoint {state.location}" if state is not None and state.provider else "The session"
    return (
        f"{where} keeps state in {provider.rpartition('.')[2]}, which Spark cannot repartition: "
        f"begin a new checkpoint with {PROVIDER}={ROCKSDB}."
    )


def writer_option(writer: Any, name: str) -> str:
    """An option that was set on a DataStreamWriter; empty: none, or it cannot be read."""
    try:
        value = writer_field(writer, "extraOptions").get(name)
        return str(value.get()) if value.isDefined() else ""
    except Exception:
        return ""


def reads_of(writer: Any) -> tuple[DatasetName, ...]:
    """Folders and topics; of other sources nothing."""
    found: list[DatasetName] = []
    with suppress(Exception):  # another Spark may name things differently: nothing else hangs on it
        for node in streaming_nodes(writer._df._jdf.queryExecution().analyzed()):
            kind = str(node.getClass().getSimpleName())
            if kind.startswith("StreamingRelation"):
                found += _datasets(str(node.sourceName()), _source_options(node, kind))
    return tuple(dict.fromkeys(found))


def writes_of(writer: Any) -> tuple[DatasetName, ...]:
    """Folders and topics; nothing of what ``foreachBatch`` does."""
    kind = str(writer_field(writer, "source") or "")
    wanted = ("path", "topic", "kafka.bootstrap.servers")
    with suppress(ValueError):  # a path that is no URL: Spark will say so
        return tuple(_datasets(kind, {name: writer_option(writer, name) for name in wanted}))
    return ()


def _source_options(node: Any, kind: str) -> Mapping[str, str]:
    if "V2" in kind:
        options = node.extraOptions()
        return {name: str(options.get(name) or "") for name in ("path", "subscribe", "kafka.bootstrap.servers")}
    options = node.dataSource().options()
    return {name: str(options.get(name).get()) for name in ("path",) if options.contains(name)}


def _datasets(kind: str, options: Mapping[str, str]) -> Iterator[DatasetName]:
    servers = options.get("kafka.bootstrap.servers", "").partition(",")[0].strip()
    topics = options.get("topic") or options.get("subscribe") or ""
    if kind.lower() == "kafka" and servers:
        for topic in filter(None, (name.strip() for name in topics.split(","))):
            yield (f"kafka://{servers}", topic)
    elif options.get("path"):
        yield dataset_of_url(options["path"])

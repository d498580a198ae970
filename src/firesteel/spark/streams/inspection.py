"""Inspects a query before it starts: its stateful operators, why it could not be rescaled, and the data sets that it reads and writes, as lineage names them.

Read from the logical plan of the writer's DataFrame and from the checkpoint. What happens inside a ``foreachBatch`` is not seen,
and need not be: it keeps no state of the engine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from firesteel.connectors.datasets import DatasetName, dataset_of_url
from firesteel.errors import UsageError
from firesteel.scheduler.streaming.events import StreamPlan
from firesteel.spark.streams.checkpoint.checkpoint_files import PROVIDER, ROCKSDB, SHUFFLE_PARTITIONS, CheckpointState
from firesteel.spark.streams.checkpoint.repartition import ESCAPED, has_link, lacks_repartition

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

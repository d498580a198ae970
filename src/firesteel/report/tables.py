"""A journal's records as Arrow tables: decisions, vertices, attempts, timings. ``SCHEMAS`` documents their columns.

Times are in seconds on the job's clock, 0 where it began; bytes are plain, uncompressed; what is not known is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from firesteel.journal.file import plain
from firesteel.report.fold import JobFold, JobHistory, VertexHistory, parallelism_of
from firesteel.scheduler.kernel.records import Decision, JournalRecord

DECISIONS = pa.schema([
    pa.field("at", pa.float64()),
    pa.field("event", pa.int64()),  # the number of the event that caused it
    pa.field("what", pa.string()),  # "parallelism", "source parallelism", "restart", ...
    pa.field("vertex", pa.int32()),  # null: of the whole job
    pa.field("name", pa.string()),  # of the vertex
    pa.field("rule", pa.string()),
    pa.field("bounds", pa.list_(pa.string())),  # which ones were hit, in words
    pa.field("parallelism", pa.int32()),  # where one was decided
    pa.field("inputs", pa.string()),  # JSON
    pa.field("result", pa.string()),  # JSON
    pa.field("reason", pa.string()),
])  # fmt: skip
VERTICES = pa.schema([
    pa.field("vertex", pa.int32()),
    pa.field("name", pa.string()),
    pa.field("inputs", pa.list_(pa.int32())),  # the vertices it reads from
    pa.field("parallelism", pa.int32()),
    pa.field("rule", pa.string()),  # of the decision about its parallelism
    pa.field("reason", pa.string()),
    pa.field("slot_sharing_group", pa.string()),  # null where no group has resources
    pa.field("waiting", pa.int32()),  # subtasks, as last written down
    pa.field("running", pa.int32()),
    pa.field("finished", pa.int32()),
    pa.field("failures", pa.int32()),  # attempts that failed
    pa.field("mirrors", pa.int32()),
    pa.field("rows_in", pa.int64()),
    pa.field("rows_out", pa.int64()),
    pa.field("bytes_in", pa.int64()),
    pa.field("bytes_produced", pa.int64()),
    pa.field("bytes_stored", pa.int64()),  # compressed
    pa.field("peak_bytes", pa.int64()),  # most resident bytes of a worker that ran one of its subtasks
    pa.field("seconds", pa.float64()),  # from its first subtask scheduled to its last one ended
])  # fmt: skip
ATTEMPTS = pa.schema([
    pa.field("vertex", pa.int32()),
    pa.field("name", pa.string()),
    pa.field("subtask", pa.int32()),
    pa.field("attempt", pa.int32()),
    pa.field("state", pa.string()),  # its last
    pa.field("node", pa.string()),
    pa.field("mirror", pa.bool_()),  # a copy of a slow one
    pa.field("won", pa.bool_()),  # its result was admitted ...
    pa.field("void", pa.bool_()),  # ... and was lost, or thrown away, since
    pa.field("created", pa.float64()),
    pa.field("deployed", pa.float64()),  # launched by Spark
    pa.field("ended", pa.float64()),
    pa.field("seconds", pa.float64()),  # from launch to end
    pa.field("peak_bytes", pa.int64()),
    pa.field("cause", pa.string()),  # why it failed or was cancelled
])  # fmt: skip
TIMINGS = pa.schema([
    pa.field("vertex", pa.int32()),  # null: the job
    pa.field("name", pa.string()),
    pa.field("phase", pa.string()),  # "job"; "waiting" (for inputs, from the job's start), "queued", "running"
    pa.field("begin", pa.float64()),
    pa.field("end", pa.float64()),
    pa.field("seconds", pa.float64()),
])  # fmt: skip
SCHEMAS = {"decisions": DECISIONS, "vertices": VERTICES, "attempts": ATTEMPTS, "timings": TIMINGS}

_COUNTERS = {
    "rows_in": "numRecordsIn",
    "rows_out": "numRecordsOut",
    "bytes_in": "numBytesIn",
    "bytes_produced": "numBytesProduced",
    "bytes_stored": "numBytesStored",
}


def decisions_table(records: Iterable[JournalRecord]) -> pa.Table:
    """Every decision, in order."""
    return _table((_decision(record) for record in records if isinstance(record, Decision)), DECISIONS)


def _decision(record: Decision) -> dict[str, Any]:
    return _row(
        DECISIONS,
        record,
        name=record.name or None,
        parallelism=parallelism_of(record),
        inputs=_json(record.inputs),
        result=_json(record.result),
    )


def _row(schema: pa.Schema, one: Any, **more: Any) -> dict[str, Any]:
    """Returns a row: ``more``, and the attributes of ``one`` that have the names of the other columns."""
    return {name: more[name] if name in more else getattr(one, name) for name in schema.names}


def vertices_table(records: Sequence[JournalRecord]) -> pa.Table:
    """A row for each job vertex, as things stood with the last record."""
    history = JobHistory(records)
    return _table((_vertex(history.vertices[number]) for number in sorted(history.vertices)), VERTICES)


def _vertex(vertex: VertexHistory) -> dict[str, Any]:
    waiting, running, finished = vertex.counts()
    decided = vertex.decided
    return _row(
        VERTICES,
        vertex,
        vertex=vertex.id,
        rule=decided and decided.rule,
        reason=decided and decided.reason,
        slot_sharing_group=vertex.slot_sharing_group or None,
        waiting=waiting,
        running=running,
        finished=finished,
        failures=vertex.failed,
        mirrors=len(vertex.mirrors),
        peak_bytes=vertex.peaks.largest[1] << 20 if vertex.peaks.by_subtask else None,
        **{column: vertex.metrics.get(name) for column, name in _COUNTERS.items()},
    )


def attempts_table(records: Sequence[JournalRecord]) -> pa.Table:
    """A row for each execution of each subtask, by vertex, subtask and attempt."""
    fold = JobFold(records)
    rows = (
        _row(
            ATTEMPTS,
            attempt,
            vertex=vertex,
            name=fold.vertex(vertex).name,
            subtask=subtask,
            attempt=attempt.number,
            node=attempt.node or None,
            mirror=attempt.is_mirror,
            void=attempt.is_void,
            peak_bytes=attempt.peak << 20 if attempt.peak else None,
            cause=attempt.cause or None,
        )
        for (vertex, subtask), attempts in fold.lives(all_of_them=True).items()
        for attempt in attempts
    )
    return _table(rows, ATTEMPTS)


def timings_table(records: Sequence[JournalRecord]) -> pa.Table:
    """Returns the table of times: the job's own row, then, for each vertex that began, how long it waited for its inputs,
    stood in the queue, and ran (first launch to last end)."""
    return _table(_timings(records), TIMINGS)


def _timings(records: Sequence[JournalRecord]) -> Iterator[dict[str, Any]]:
    history = JobFold(records)
    if history.started_at is None or history.last_at is None:
        return
    yield _phase(None, history.plan.job_name if history.plan else None, "job", history.started_at, history.last_at)
    for number in sorted(history.vertices):
        vertex = history.vertices[number]
        if vertex.first_at is None or vertex.last_at is None:
            continue
        launches = history.executions[number].began
        first = float(np.nanmin(launches)) if not np.isnan(launches).all() else vertex.last_at
        yield _phase(number, vertex.name, "waiting", history.started_at, min(vertex.first_at, first))
        yield _phase(number, vertex.name, "queued", min(vertex.first_at, first), first)
        yield _phase(number, vertex.name, "running", first, vertex.last_at)


def _phase(vertex: int | None, name: str | None, phase: str, begin: float, end: float) -> dict[str, Any]:
    return {
        "vertex": vertex,
        "name": name,
        "phase": phase,
        "begin": begin,
        "end": end,
        "seconds": max(0.0, end - begin),
    }


def _table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value, enc_hook=plain).decode()

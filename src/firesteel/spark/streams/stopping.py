"""The one way to stop a streaming query, and what runs in this process on a checkpoint already."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from firesteel.errors import UsageError
from firesteel.spark.streams.checkpoint.checkpoint_files import CheckpointFiles

JOIN_MILLIS = 200
"""So long is the engine's thread waited for in one call to the JVM, which goes on for as often as it takes."""
_log = logging.getLogger("firesteel.spark")


def stop_query(query: Any) -> None:
    """Returns when the engine's thread has ended, however long its batch takes. Raises what Spark says if it is gone.

    Spark's own ``stop()`` is not believed: with ``spark.sql.streaming.stopTimeout`` it gives up while the batch still runs, and
    the next query would then work on the same checkpoint.
    """
    thread = engine_thread(query)
    try:
        query.stop()
    except Exception as error:
        if thread is None:
            raise
        _log.debug("stop() gave up; the query's thread is waited for", exc_info=error)
    while thread is not None and thread.isAlive():
        thread.join(JOIN_MILLIS)


def engine_thread(query: Any) -> Any:
    """Java's thread that runs the batches; None: this Spark does not show it."""
    try:
        return execution_of(query).queryExecutionThread()
    except (Py4JError, AttributeError, TypeError):
        return None


def execution_of(query: Any) -> Any:
    """Spark's own object of a query."""
    execution = query._jsq
    return execution.streamingQuery() if execution.getClass().getSimpleName() == "StreamingQueryWrapper" else execution


def refuse_if_taken(spark: Any, checkpoint: str) -> None:
    """Raises UsageError where a query of this process runs on the checkpoint, which Spark would stop without a word."""
    known = CheckpointFiles(spark, checkpoint).query_id()
    if not known:
        return
    name = None
    with suppress(Py4JError, AttributeError, TypeError):  # a Spark that does not show its queries
        running = list(spark._jsparkSession.sharedState().activeStreamingQueries().values())
        found = next((query for query in running if query.id().toString() == known), None)
        if found is None:
            return
        name = found.name() or str(found.runId().toString())
    if name is not None:
        raise UsageError(
            f"A query of this process, '{name}', runs on the checkpoint at {checkpoint} already.",
            hint="Stop it first and wait for its end, or name another checkpoint.",
        )

"""Bringing the state of a stopped query to another number of partitions, with Spark's own call; and a checkpoint into order before a query
starts on it: what a crash in a rescale left is finished or taken back. Everything here may itself be killed and run again.

The call (``spark._streamingCheckpointManager.repartition``, in Spark since 4.2, experimental) writes the state anew as one more
batch: ``offsets/N+1`` with the new number first, then the state of version N + 2, ``commits/N+1`` last.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.errors import FiresteelError, JobExecutionError, UsageError
from firesteel.scheduler.streaming.wish import check_partitions
from firesteel.spark.session.sessions import is_local
from firesteel.spark.streams.checkpoint_files import (
    PROVIDER,
    ROCKSDB,
    STATE_FORMAT,
    CheckpointFiles,
    CheckpointState,
    java_exception,
    told,
)
from firesteel.spark.streams.progress import Progress

LAST_TASKS_SECONDS = 30.0
"""Seconds that tasks of a failed repartition are waited for."""
ESCAPED = re.compile(r"""[\s"%<>\[\]{}\\^`|#?]""")
"""Characters that a URI writes as something else. Spark's call looks for the checkpoint below the escaped text of its URI, where
nothing is."""


class RepartitionError(FiresteelError):
    """The state was not brought to the new number, for this ``reason``. The checkpoint is as it was before, unless ``unfinished``."""

    def __init__(self, where: str, reason: str, *, hint: str | None = None, unfinished: bool = False) -> None:
        super().__init__(f"{where} {reason}", hint=hint)
        self.reason = reason
        self.unfinished = unfinished


def lacks_repartition(spark: Any) -> str:
    """Why this session cannot repartition state, a sentence; empty: it can."""
    if not hasattr(spark, "_jsparkSession"):
        return "This is a Spark Connect session, which has no call to rewrite state: use a classic one (master, not remote)."
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if not callable(getattr(manager, "repartition", None)):
        return f"Spark {spark.version} has no call to rewrite state (it came with 4.2): install a newer PySpark."
    return ""


def repartition_state(spark: Any, checkpoint: str, parallelism: int) -> int:
    """Rewrites the state of the stopped query of ``checkpoint`` to ``parallelism`` partitions. Returns the batch that it was recorded as.

    ``spark``: any classic session; the call has one of its own, with the checkpoint's settings. A repartition to the same number
    that broke off is finished. Raises RepartitionError; what it began was taken back then, unless it says otherwise.
    """
    files = CheckpointFiles(spark, checkpoint)
    state = files.read()
    _check(spark, state, parallelism)
    session = _session(spark, state)
    tag = _tag(checkpoint)
    spark.sparkContext.addJobTag(tag)
    try:
        with _plain_path(spark, checkpoint) as path:
            session._streamingCheckpointManager.repartition(path, parallelism, True)
    except Exception as error:
        _await_tasks(spark.sparkContext, tag)
        raise _failed(files, checkpoint, parallelism, error) from error
    finally:
        spark.sparkContext.removeJobTag(tag)
    return state.committed + 1


def cancel_repartition(spark: Any, checkpoint: str) -> None:
    """Ends one that runs in another thread, which then takes back what it began. Harmless if there is none."""
    spark.sparkContext.cancelJobsWithTag(_tag(checkpoint))


def has_link(spark: Any, checkpoint: str) -> bool:
    """Returns whether a link with a path of plain characters can lead all of Spark to the checkpoint: on one machine it can."""
    return is_local(spark.sparkContext) and CheckpointFiles(spark, checkpoint).local is not None


@contextmanager
def _plain_path(spark: Any, checkpoint: str) -> Generator[str]:
    """The checkpoint by a path in which nothing is escaped, as long as this lasts; by its own where there is no such."""
    if not ESCAPED.search(checkpoint) or not has_link(spark, checkpoint):
        yield checkpoint
        return
    usual = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="firesteel-", dir="/tmp" if ESCAPED.search(usual) else usual) as folder:
        link = Path(folder) / "checkpoint"
        link.symlink_to(CheckpointFiles(spark, checkpoint).local or "")
        yield str(link)


def _tag(checkpoint: str) -> str:
    return f"firesteel-repartition-{zlib.crc32(checkpoint.encode()):08x}"


def _await_tasks(context: Any, tag: str) -> None:
    """Waits until no task of a failed repartition runs: one that outlives its job would write state after it was taken back."""
    tracker = context._jsc.sc().statusTracker()
    until = time.monotonic() + LAST_TASKS_SECONDS
    with suppress(Exception):  # Spark is gone, and its tasks with it
        while time.monotonic() < until and _runs(tracker, tag):
            time.sleep(0.02)


def _runs(tracker: Any, tag: str) -> bool:
    for job in tracker.getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            found = tracker.getStageInfo(stage)
            if found.isDefined() and found.get().numActiveTasks() > 0:
                return True
    return False


def _check(spark: Any, state: CheckpointState, parallelism: int) -> None:
    reason = lacks_repartition(spark)
    if reason:
        raise RepartitionError("The state cannot be repartitioned.", reason)
    where = f"The state in {state.location} cannot be repartitioned to {parallelism}:"
    try:
        check_partitions(parallelism)
    except UsageError as error:
        raise RepartitionError(where, error.message, hint=error.hint) from None
    if state.committed < 0:
        raise RepartitionError(where, "no batch was committed yet.", hint="Let the query commit one first.")
    if not state.operators:
        raise RepartitionError(where, "it holds no stateful operator.", hint="Restart the query with the new number.")
    if state.provider and state.provider != ROCKSDB:
        raise RepartitionError(
            where,
            f"it is kept in {state.provider.rpartition('.')[2]}, whose state Spark cannot repartition.",
            hint=f"Begin a new checkpoint with {PROVIDER}={ROCKSDB}.",
        )
    if state.unfinished is not None and state.unfinished != parallelism:
        raise RepartitionError(
            where,
            f"a repartition to {state.unfinished} was interrupted there and must be finished or rolled back first.",
            unfinished=True,
        )
    if state.pending is not None and state.unfinished is None:
        raise RepartitionError(where, f"batch {state.pending} was not committed.", hint="It must be replayed first.")
    if state.pending is None and state.parallelism == parallelism:
        raise RepartitionError(where, "it has that many partitions already.")


def _session(spark: Any, state: CheckpointState) -> Any:
    session = spark.newSession()
    session.conf.set(PROVIDER, ROCKSDB)
    session.conf.set(STATE_FORMAT, str(state.state_format))
    return session


def _failed(files: CheckpointFiles, checkpoint: str, parallelism: int, error: Exception) -> RepartitionError:
    """Rolls back what had begun, and returns the error for the user."""
    said, hint = _translated(error)
    where = f"The state in {checkpoint} could not be rewritten to {parallelism} partitions:"
    try:
        roll_back(files)
    except UsageError as trouble:
        return RepartitionError(
            where,
            f"{said} What had been written could not be rolled back either: {trouble.message}",
            hint="The next start finishes it or rolls it back.",
            unfinished=True,
        )
    return RepartitionError(where, said, hint=hint)


def roll_back(files: CheckpointFiles) -> None:
    """Takes back a repartition that broke off, if there is one. Raises UsageError."""
    state = files.read()
    if state.unfinished is not None and state.pending is not None:
        files.delete_batch(state.pending)


_SENTENCES = {
    "UNSUPPORTED_STATEFUL_OPERATOR": "Spark cannot repartition the state of one of its operators.",
    "UNSUPPORTED_TRANSFORM_WITH_STATE_VARIABLE_TYPE": "Spark cannot repartition one of the state variables.",
    "MISSING_OPERATOR_METADATA": "it holds no stateful operator, or was written by a Spark before 4.0.",
    "MISSING_OFFSET_SEQ_METADATA": "it was written by a Spark before 4.0.",
    "OFFSET_SEQ_NOT_FOUND": "the offsets of its last committed batch are missing.",
    "CONCURRENT_STREAM_LOG_UPDATE": "another program works on the same checkpoint.",
}


def _translated(error: Exception) -> tuple[str, str | None]:
    """A sentence for Spark's error, and what would help."""
    java = java_exception(error)
    text = f"{java.toString()} {told(error)}" if java is not None else str(error)
    if "No space left on device" in text or "quota" in text.lower():
        return "the disk is full.", "Make room for a second copy of the state; it is tried again at the next change."
    if "cancelled" in text.lower():
        return "it was cancelled.", None
    for condition, sentence in _SENTENCES.items():
        if condition in text:
            return sentence, None
    return f"{told(error).rstrip('.')}.", None


@dataclass(frozen=True, slots=True)
class Recovery:
    """``sentence``: what was done or is about to be done; empty where there was nothing to do. ``state``: as it is now."""

    sentence: str
    state: CheckpointState


@dataclass(frozen=True, slots=True)
class Replayed:
    """``batch``: the last that is committed now. ``rows``: read a second time. ``told``: what Spark says of it; None: nothing."""

    batch: int
    rows: int
    told: Progress | None = None


def recover(spark: Any, checkpoint: str) -> Recovery:
    """Finishes a repartition that broke off, or takes it back if it cannot be finished. Called before each start.

    Raises UsageError where the checkpoint is unreadable or damaged, or cannot be changed.
    """
    files = CheckpointFiles(spark, checkpoint)
    state = files.read()
    if state.pending is None:
        return Recovery("", state)
    if state.unfinished is None:
        return Recovery(f"Batch {state.pending} was begun before and not committed; it is replayed.", state)
    from_to = (
        f"A repartition of the state from {state.parallelism} to {state.unfinished} partitions had been interrupted"
    )
    try:
        repartition_state(spark, checkpoint, state.unfinished)
    except RepartitionError as error:
        roll_back(files)
        told = f"{from_to}; it was rolled back, for it could not be finished: {error.reason}"
        return Recovery(told, files.read())
    return Recovery(f"{from_to}; it was finished.", files.read())


def replay_pending(
    writer: Any, spark: Any, checkpoint: str, begun: Callable[[Any], None] = lambda query: None
) -> Replayed:
    """Runs exactly the pending batch and waits for it; nothing if there is none.

    ``writer``: a DataStreamWriter of the query, as ``build`` gives it, in a session with the old number of partitions.
    ``begun`` gets the query that does it, to stop it.
    Raises JobExecutionError if the batch was not committed.
    """
    files = CheckpointFiles(spark, checkpoint)
    state = files.read()
    if state.pending is None:
        return Replayed(state.committed, 0)
    query = writer.option("checkpointLocation", checkpoint).trigger(once=True).start()
    begun(query)
    query.awaitTermination()
    said = [Progress.of(json.loads(p.json)) for p in query.recentProgress if p.batchId == state.pending]
    now = files.read()
    if now.committed < state.pending:
        raise JobExecutionError(f"Batch {state.pending} of {checkpoint} was replayed and is not committed.")
    return Replayed(now.committed, sum(progress.rows for progress in said), said[0] if said else None)

"""Bringing a checkpoint into order before a query starts on it: what a crash in a rescale left is finished or taken back.

Everything here may itself be killed and run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from firesteel.errors import JobExecutionError
from firesteel.spark.streams.checkpoint.checkpoint_files import CheckpointFiles, CheckpointState
from firesteel.spark.streams.checkpoint.repartition import RepartitionError, repartition_state, roll_back
from firesteel.spark.streams.progress import Progress


class Outcome(Enum):
    CLEAN = "clean"
    """Nothing to do."""
    PENDING = "pending"
    """A batch was planned and not committed; the engine replays it at the start."""
    FINISHED = "finished"
    """A repartition that broke off was finished."""
    ROLLED_BACK = "rolled back"
    """A repartition that broke off was taken back."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """``sentence``: what was done or is about to be done; empty where there was nothing to do. ``state``: as it is now."""

    outcome: Outcome
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
        return Recovery(Outcome.CLEAN, "", state)
    if state.unfinished is None:
        return Recovery(
            Outcome.PENDING, f"Batch {state.pending} was begun before and not committed; it is replayed.", state
        )
    from_to = (
        f"A repartition of the state from {state.parallelism} to {state.unfinished} partitions had been interrupted"
    )
    try:
        repartition_state(spark, checkpoint, state.unfinished)
    except RepartitionError as error:
        now = files.read()
        if now.unfinished is not None:
            roll_back(files, now)
            now = files.read()
        why = error.message.partition(": ")[2] or error.message
        return Recovery(Outcome.ROLLED_BACK, f"{from_to}; it was rolled back, for it could not be finished: {why}", now)
    return Recovery(Outcome.FINISHED, f"{from_to}; it was finished.", files.read())


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

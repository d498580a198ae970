"""The times that executions have taken, as columns: rules for slow ones compare them (FLIP-168: definition of execution time).

An execution's time runs from DEPLOYING: to FINISHED, or until now while it is DEPLOYING or RUNNING. All others have none. Set-ups of
functions (a model loaded once in each worker) are left out: of a finished one what it told, of a running one the longest that is known of
its vertex, for it may be the first in its worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Floats
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import NO_ROW, ExecutionTable, Rows
from firesteel.scheduler.topology.groups import Mask

S = ExecutionState
_IS_RUNNING = np.isin(np.arange(len(S)), (S.DEPLOYING, S.RUNNING))
LEAST_BYTES = 1.0
"""An execution that reads nothing counts as one that reads this."""
LEAST_SECONDS = 1e-3
"""The shortest time, in seconds, that stamps can tell; an execution that took less tells of no rate below this per what it read."""


@dataclass(frozen=True, slots=True, eq=False)
class RunningTimes:
    """Current executions of one vertex that Spark has launched and that may still finish. All columns run parallel."""

    rows: Rows
    elapsed: Floats
    """Seconds since each was launched, less those of a set-up; nan: nobody told when."""
    input_bytes: Floats | None
    """None: not known."""

    def select(self, chosen: Mask) -> RunningTimes:
        read = None if self.input_bytes is None else self.input_bytes[chosen]
        return RunningTimes(self.rows[chosen], self.elapsed[chosen], read)


@dataclass(frozen=True, slots=True, eq=False)
class FinishedTimes:
    """Admitted executions, in the order of subtasks, whose times are known."""

    seconds: Floats
    ended: Floats
    input_bytes: Floats | None

    def __len__(self) -> int:
        return len(self.seconds)

    def select(self, places: Rows | Mask) -> FinishedTimes:
        read = None if self.input_bytes is None else self.input_bytes[places]
        return FinishedTimes(self.seconds[places], self.ended[places], read)


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual time among some executions: ``seconds``, and seconds ``per_byte`` of input (None: bytes not known)."""

    seconds: float
    per_byte: float | None = None

    def times_for(self, running: RunningTimes) -> Floats:
        """Seconds that each of these is expected to take: no less than is usual, and more for one that has more to read."""
        expected = np.full(len(running.rows), self.seconds)
        if self.per_byte is None or running.input_bytes is None:
            return expected
        return np.maximum(expected, self.per_byte * running.input_bytes)


def running_times(table: ExecutionTable, vertex: ExecutionJobVertex, at: float) -> RunningTimes:
    """At time ``at``, of an initialised vertex."""
    rows = table.round_of(vertex.newest) if vertex.has_several else vertex.newest
    rows = rows[_IS_RUNNING[table.state[rows]]]
    elapsed = at - table.times(S.DEPLOYING, rows)
    if vertex.longest_set_up:
        elapsed = np.maximum(elapsed - vertex.longest_set_up, 0.0)
    return RunningTimes(rows, elapsed, _bytes_of(table, vertex, rows))


def finished_times(table: ExecutionTable, vertices: Sequence[ExecutionJobVertex]) -> FinishedTimes:
    """Of these (at least one) initialised vertices together; of several, all of whose bytes are known or none are."""
    parts = [_finished(table, vertex) for vertex in vertices]
    if len(parts) == 1:
        return parts[0]
    read = [part.input_bytes for part in parts if part.input_bytes is not None]
    return FinishedTimes(
        np.concatenate([part.seconds for part in parts]),
        np.concatenate([part.ended for part in parts]),
        np.concatenate(read) if read else None,
    )


def usual(finished: FinishedTimes) -> Usual:
    """Medians (the element at count / 2) over some finished executions.

    Those that read nothing tell of no rate: they are left out unless nobody read anything.
    """
    if finished.input_bytes is None:
        return Usual(_median(finished.seconds))
    reading = finished.input_bytes > LEAST_BYTES
    if reading.any() and not reading.all():
        finished = finished.select(reading)
    assert finished.input_bytes is not None
    return Usual(_median(finished.seconds), _median(np.maximum(finished.seconds, LEAST_SECONDS) / finished.input_bytes))


def knows_bytes(vertex: ExecutionJobVertex) -> bool:
    """Returns whether it is known how much each subtask reads; a source whose splits are all of size 0 does not know theirs."""
    return vertex.input_bytes is not None and bool(vertex.input_bytes.any())


def _finished(table: ExecutionTable, vertex: ExecutionJobVertex) -> FinishedTimes:
    rows = vertex.winner[vertex.winner != NO_ROW]
    ended = table.times(S.FINISHED, rows)
    # The stamps of a report are an executor's times of day, which may have jumped in between.
    seconds = np.maximum(ended - table.times(S.DEPLOYING, rows) - vertex.set_up_seconds(rows), 0.0)
    times = FinishedTimes(seconds, ended, _bytes_of(table, vertex, rows))
    known = ~np.isnan(seconds)
    return times if known.all() else times.select(known)


def _bytes_of(table: ExecutionTable, vertex: ExecutionJobVertex, rows: Rows) -> Floats | None:
    if vertex.input_bytes is None or not knows_bytes(vertex):
        return None
    return np.maximum(vertex.input_bytes[table.index[rows]], LEAST_BYTES)


def _median(values: Floats) -> float:
    place = len(values) // 2
    return float(np.partition(values, place)[place])


@dataclass(frozen=True, slots=True, eq=False)
class SlowTasks:
    """Slow executions of one vertex, which one rule found. ``elapsed`` and ``baseline`` (seconds) run parallel to ``rows``."""

    vertex: int
    rows: Rows
    rule: str
    elapsed: Floats
    baseline: Floats
    reason: str
    """Half a sentence with numbers: what was usual, and from what it was taken."""

"""The table of executions: a row is one attempt of one subtask, a column is a growing numpy array.

Restarts and mirrors append rows; each row points at the subtask's row before it. A row that ``opens`` a round was
created by a restart, so everything before it is history; rows of the same round may be current at the same time
(FLIP-168). Of those that a ``mirror`` joined, the others are the original, or stand in for one that a node rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Floats, Ints, Names, Reaching, constant, grown, written
from firesteel.scheduler.kernel.states import IS_PENDING, IS_TERMINAL, LEGAL, RANK, ExecutionState

Rows = NDArray[np.signedinteger[Any]]
NO_ROW = -1
NO_TOKEN = -1
_LEGAL_PAIRS: list[list[bool]] = LEGAL.tolist()


_COLUMNS = {
    **dict.fromkeys(("vertex", "index", "attempt"), 0),
    "state": int(ExecutionState.CREATED),
    "prior": NO_ROW,
    "opens": True,
    "mirror": False,
}
"""Columns that reach as far as the table, and what new rows have there."""


class IllegalTransition(RuntimeError):
    """An execution was told to go where the transition table does not let it. The message holds its story."""


class ExecutionTable:
    def __init__(
        self, story: Callable[[int, int], list[str]] = lambda _vertex, _subtask: [], vertices: int = 1 << 31
    ) -> None:
        """``vertices``: of the job, at most."""
        self._story = story
        self.size = 0
        self.vertex: NDArray[np.unsignedinteger[Any]] = np.empty(0, np.min_scalar_type(vertices - 1))
        self.index = np.empty(0, np.int32)
        self.attempt: NDArray[np.int32] = constant(0, np.int32(0))
        self.state = np.empty(0, np.int8)
        self.node = Reaching(np.int32(0))
        self.token = Reaching(np.int64(NO_TOKEN))
        self.cause = Reaching(np.int32(0))
        self.prior: NDArray[np.int32] = constant(0, np.int32(NO_ROW))
        self.opens: NDArray[np.bool_] = constant(0, np.bool_(True))
        self.mirror: NDArray[np.bool_] = constant(0, np.bool_(False))
        stamps = [Reaching(np.float64(np.nan)) for _ in ExecutionState]
        self.stamps = [
            stamps[ExecutionState.FINISHED] if IS_TERMINAL[state] else stamps[state] for state in ExecutionState
        ]
        """Seconds on the job's clock, by state; nan: not entered. The ends share a column, for a row comes to one of them. Nobody asks when a
        row came to be CANCELING, and when it was created is kept in blocks (:meth:`times`)."""
        self._blocks: tuple[list[int], list[float]] = [], []
        """First row, and time, of all that were created at one time, block by block."""
        self.counts = np.zeros(len(ExecutionState), np.int64)
        """Rows per state."""
        self._nodes: list[str] = [""]
        self._node_ids: dict[str, int] = {"": 0}
        self._causes: list[str] = [""]

    @property
    def num_pending(self) -> int:
        """Executions about which Spark still owes us a word."""
        return int(self.counts[IS_PENDING].sum())

    def create(
        self,
        vertex: int,
        indexes: Ints,
        attempts: Ints,
        prior: Rows | int,
        *,
        at: float,
        opens: bool = True,
        mirror: bool | NDArray[np.bool_] = False,
    ) -> Rows:
        """Append rows in state CREATED; returns their numbers, int32: no memory holds more."""
        first, n = self.size, len(indexes)
        self._reserve(first + n)
        rows = slice(first, first + n)
        self.vertex[rows], self.index[rows] = vertex, indexes
        self.opens = written(self.opens, rows, opens)
        self.mirror = written(self.mirror, rows, mirror)
        self.attempt = written(self.attempt, rows, attempts)
        self.prior = written(self.prior, rows, prior)
        if n and (not self._blocks[1] or self._blocks[1][-1] != at):
            self._blocks[0].append(first)
            self._blocks[1].append(at)
        self.counts[ExecutionState.CREATED] += n
        self.size = first + n
        return np.arange(first, self.size, dtype=np.int32)

    def transition(self, rows: Rows, target: ExecutionState, at: float | NDArray[np.float64]) -> None:
        """Bring all rows (distinct) to ``target``. All or none: raises IllegalTransition and changes nothing."""
        if len(rows) <= 1:
            if len(rows):
                self._transition_one(int(rows[0]), target, at)
            return
        source = self.state[rows]
        legal = LEGAL[source, target]
        if not legal.all():
            self._refuse(int(rows[np.argmin(legal)]), target)
        self.counts -= np.bincount(source, minlength=len(ExecutionState))
        self.counts[target] += len(rows)
        self.state[rows] = target
        self.stamp(target, rows, at)

    def _transition_one(self, row: int, target: ExecutionState, at: float | NDArray[np.float64]) -> None:
        source = int(self.state[row])
        if not _LEGAL_PAIRS[source][target]:
            self._refuse(row, target)
        self.counts[source] -= 1
        self.counts[target] += 1
        self.state[row] = target
        if target != ExecutionState.CANCELING:
            self.stamps[target].put(row, at.item() if isinstance(at, np.ndarray) else at)

    def stamp(self, state: int, rows: Rows, at: float | NDArray[np.float64]) -> None:
        """They entered the state at this time."""
        if state != ExecutionState.CANCELING:
            self.stamps[state][rows] = at

    def times(self, state: int, rows: Rows) -> Floats:
        """Seconds on the job's clock at which each of these entered the state; nan: it never did. CANCELING is not kept;
        of the ends only the row's own is asked for."""
        if state == ExecutionState.CREATED:
            first, at = map(np.array, self._blocks)
            return at[np.searchsorted(first, rows, side="right") - 1]
        return self.stamps[state][rows]

    def set_nodes(self, rows: Rows, nodes: Names) -> None:
        """``nodes`` runs parallel to ``rows``; where a node is not known, what was known of it stays."""
        known = nodes.codes >= 0
        ids = np.fromiter(map(self._node_id, nodes.names), np.int32, len(nodes.names))
        self.node[rows[known]] = ids[nodes.codes[known]]

    def set_cause(self, rows: Rows, cause: str) -> None:
        self._causes.append(cause)
        self.cause[rows] = len(self._causes) - 1

    def node_name(self, row: int) -> str:
        return self._nodes[self.node.item(row)]

    def node_number(self, node: str) -> int:
        """-1: no execution was ever seen there."""
        return self._node_ids.get(node, -1)

    def node_named(self, number: int) -> str:
        """Empty for number 0: not known."""
        return self._nodes[number]

    def cause_text(self, row: int) -> str:
        return self._causes[self.cause.item(row)]

    def find(self, newest: Rows, attempts: Ints) -> Rows:
        """Rows with these attempt numbers, walking back from the subtasks' newest rows; NO_ROW where there is none.

        ``attempts`` runs parallel to ``newest``. Costs one vectorised step per attempt walked back.
        """
        rows = newest.copy()
        while True:
            later = (rows != NO_ROW) & (self.attempt[rows] > attempts)
            if not later.any():
                break
            rows[later] = self.prior[rows[later]]
        rows[(rows != NO_ROW) & (self.attempt[rows] != attempts)] = NO_ROW
        return rows

    def round_of(self, newest: Rows) -> Rows:
        """All rows of the rounds that these newest rows belong to."""
        found = [newest]
        rows = newest[~self.opens[newest]]
        while len(rows):
            rows = self.prior[rows]
            found.append(rows)
            rows = rows[~self.opens[rows]]
        return np.concatenate(found) if len(found) > 1 else newest

    def opening_of(self, rows: Rows) -> Rows:
        """The first row of the round that each of these belongs to."""
        while not self.opens[rows].all():
            rows = np.where(self.opens[rows], rows, self.prior[rows])
        return rows

    def current_rows(self, newest: int) -> list[int]:
        """Rows of the newest round that have neither failed nor been cancelled, oldest first; else the newest row."""
        rows = self.round_of(np.array([newest]))
        current = rows[~IS_TERMINAL[self.state[rows]] | (self.state[rows] == ExecutionState.FINISHED)]
        return np.sort(current).tolist() or [newest]

    def best_of(self, newest: Rows) -> Rows:
        """For each of these newest rows the one of its round that is nearest to FINISHED by the seed's state priority,
        the earliest created on a tie. Costs one vectorised step per attempt of a round.
        """
        places = np.flatnonzero(~self.opens[newest])
        if not len(places):
            return newest
        best, rows = newest.copy(), newest[places]
        while len(places):
            rows = self.prior[rows]
            better = RANK[self.state[rows]] <= RANK[self.state[best[places]]]
            best[places[better]] = rows[better]
            more = ~self.opens[rows]
            places, rows = places[more], rows[more]
        return best

    def _node_id(self, node: str) -> int:
        if node not in self._node_ids:
            self._node_ids[node] = len(self._nodes)
            self._nodes.append(node)
        return self._node_ids[node]

    def _reserve(self, size: int) -> None:
        capacity = len(self.vertex)
        if size <= capacity:
            return
        # A quarter more, not twice as much: most rows come in one block per vertex, restarts are few.
        capacity = max(size, capacity + capacity // 4)
        for name, value in _COLUMNS.items():
            setattr(self, name, grown(getattr(self, name), capacity, value))

    def _refuse(self, row: int, target: ExecutionState) -> None:
        vertex, index = int(self.vertex[row]), int(self.index[row])
        story = "\n".join(f"  {line}" for line in self._story(vertex, index))
        raise IllegalTransition(
            f"Attempt {self.attempt[row]} of subtask {index} of vertex {vertex} cannot go from "
            f"{ExecutionState(self.state[row]).name} to {target.name}. Its story:\n{story}"
        )


@dataclass(frozen=True, slots=True)
class Execution:
    """A light view of one row."""

    table: ExecutionTable
    row: int

    @property
    def vertex(self) -> int:
        return int(self.table.vertex[self.row])

    @property
    def index(self) -> int:
        return int(self.table.index[self.row])

    @property
    def attempt(self) -> int:
        return int(self.table.attempt[self.row])

    @property
    def state(self) -> ExecutionState:
        return ExecutionState(self.table.state[self.row])

    @property
    def token(self) -> int:
        return self.table.token.item(self.row)

    @property
    def is_mirror(self) -> bool:
        """Made beside another one that was slow."""
        return bool(self.table.mirror[self.row])

    @property
    def node(self) -> str:
        return self.table.node_name(self.row)

    @property
    def cause(self) -> str:
        return self.table.cause_text(self.row)

    def entered(self, state: ExecutionState) -> float | None:
        """Seconds on the job's clock at which it entered ``state`` (not CANCELING); None: it never did."""
        stamp = float(self.table.times(state, np.array([self.row]))[0])
        return None if np.isnan(stamp) or (IS_TERMINAL[state] and state is not self.state) else stamp


@dataclass(frozen=True, slots=True)
class ExecutionVertex:
    """A light view of one subtask. ``newest`` is the row created last for it."""

    table: ExecutionTable
    newest: int

    @property
    def current_executions(self) -> list[Execution]:
        return [Execution(self.table, row) for row in self.table.current_rows(self.newest)]

    @property
    def current_execution(self) -> Execution:
        """The one nearest to FINISHED by the seed's state priority, the earliest created on a tie."""
        return Execution(self.table, int(self.table.best_of(np.array([self.newest]))[0]))


def in_passes(table: ExecutionTable, rows: Rows) -> list[Rows]:
    """Rows of one vertex, cut so that the subtasks of each part are distinct and ascend; nearly always one part."""
    parts: list[Rows] = []
    left = rows[np.lexsort((rows, table.index[rows]))]
    while len(left):
        first = np.ones(len(left), np.bool_)
        first[1:] = np.diff(table.index[left]) != 0
        parts.append(left[first])
        left = left[~first]
    return parts

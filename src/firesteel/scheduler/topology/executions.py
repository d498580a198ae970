"""The table of executions: a row is one attempt of one subtask, a column is a growing numpy array.

Restarts and mirrors append rows; each row points at the subtask's row before it. A row that ``opens`` a round was
created by a restart, so everything before it is history; rows of the same round may be current at the same time
(FLIP-168). Of those that a ``mirror`` joined, the others are the original, or stand in for one that a node rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, Names
from firesteel.scheduler.kernel.states import IS_PENDING, IS_TERMINAL, LEGAL, RANK, ExecutionState

Rows = NDArray[np.int64]
NO_ROW = -1
NO_TOKEN = -1
_NEVER = np.float64(np.nan)
Number = TypeVar("Number", np.int32, np.int64, np.float64)
_LEGAL_PAIRS: list[list[bool]] = LEGAL.tolist()


class IllegalTransition(RuntimeError):
    """An execution was told to go where the transition table does not let it. The message holds its story."""


class ExecutionTable:
    def __init__(self, story: Callable[[int, int], list[str]] = lambda _vertex, _subtask: []) -> None:
        self._story = story
        self.size = 0
        self.vertex = np.empty(0, np.int32)
        self.index = np.empty(0, np.int32)
        self.attempt: NDArray[np.int32] = _unwritten(0, np.int32(0))
        self.state = np.empty(0, np.int8)
        self.node = np.empty(0, np.int32)
        self.token = np.empty(0, np.int64)
        self.cause: NDArray[np.int32] = _unwritten(0, np.int32(0))
        self.prior: Rows = _unwritten(0, np.int64(NO_ROW))
        self.opens = np.empty(0, np.bool_)
        self.mirror = np.empty(0, np.bool_)
        self.stamps: list[NDArray[np.float64]] = [_unwritten(0, _NEVER)] * len(ExecutionState)
        """``stamps[state][row]``: seconds on the job's clock at which the row entered the state; nan: never."""
        self.counts = np.zeros(len(ExecutionState), np.int64)
        """Rows per state."""
        self._nodes: list[str] = [""]
        self._node_ids: dict[str, int] = {"": 0}
        self._causes: list[str] = [""]

    _COLUMNS = ("vertex", "index", "state", "node", "token", "opens", "mirror")

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
        """Append rows in state CREATED; returns their numbers."""
        first, n = self.size, len(indexes)
        self._reserve(first + n)
        rows = slice(first, first + n)
        self.vertex[rows], self.index[rows] = vertex, indexes
        self.state[rows], self.node[rows], self.token[rows] = ExecutionState.CREATED, 0, NO_TOKEN
        self.opens[rows], self.mirror[rows] = opens, mirror
        self.attempt = _written(self.attempt, rows, attempts)
        self.prior = _written(self.prior, rows, prior)
        self.stamp(ExecutionState.CREATED, rows, at)
        self.counts[ExecutionState.CREATED] += n
        self.size = first + n
        return np.arange(first, self.size, dtype=np.int64)

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
        self.stamp(target, row, at.item() if isinstance(at, np.ndarray) else at)

    def stamp(self, state: int, rows: Rows | slice | int, at: float | NDArray[np.float64]) -> None:
        """They entered the state at this time. A state that nobody was in yet takes no memory."""
        column = self.stamps[state]
        if not column.strides[0]:
            column = self.stamps[state] = np.full(len(self.vertex), _NEVER)
        column[rows] = at

    def set_nodes(self, rows: Rows, nodes: Names) -> None:
        """``nodes`` runs parallel to ``rows``; where a node is not known, what was known of it stays."""
        known = nodes.codes >= 0
        ids = np.fromiter(map(self._node_id, nodes.names), np.int32, len(nodes.names))
        self.node[rows[known]] = ids[nodes.codes[known]]

    def set_cause(self, rows: Rows, cause: str) -> None:
        self._causes.append(cause)
        if not self.cause.strides[0]:
            self.cause = np.zeros(len(self.vertex), np.int32)
        self.cause[rows] = len(self._causes) - 1

    def node_name(self, row: int) -> str:
        return self._nodes[self.node[row]]

    def node_number(self, node: str) -> int:
        """-1: no execution was ever seen there."""
        return self._node_ids.get(node, -1)

    def node_named(self, number: int) -> str:
        """Empty for number 0: not known."""
        return self._nodes[number]

    def cause_text(self, row: int) -> str:
        return self._causes[self.cause[row]]

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
        grown = max(size, capacity + capacity // 4)
        for name in self._COLUMNS:
            old = getattr(self, name)
            new = np.empty(grown, old.dtype)
            new[:capacity] = old
            setattr(self, name, new)
        self.attempt = _grown(self.attempt, grown, np.int32(0))
        self.prior = _grown(self.prior, grown, np.int64(NO_ROW))
        self.cause = _grown(self.cause, grown, np.int32(0))
        for state, column in enumerate(self.stamps):
            self.stamps[state] = _grown(column, grown, _NEVER)

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
        return int(self.table.token[self.row])

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
        """Seconds on the job's clock at which it entered ``state``; None: it never did."""
        stamp = float(self.table.stamps[state][self.row])
        return None if np.isnan(stamp) else stamp


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


def _unwritten(size: int, value: Number) -> NDArray[Number]:
    """A column of equal values that takes no memory, and cannot be written."""
    return np.broadcast_to(value, size)


def _written(column: NDArray[Number], rows: slice, values: Ints | int) -> NDArray[Number]:
    """The column with these values in it: as one that can be written, unless it holds nothing else."""
    if not column.strides[0]:
        if (column[rows] == values).all():
            return column
        column = column.copy()
    column[rows] = values
    return column


def _grown(column: NDArray[Number], size: int, value: Number) -> NDArray[Number]:
    """New rows have this value."""
    if not column.strides[0]:
        return _unwritten(size, value)
    return np.concatenate((column, np.full(size - len(column), value)))

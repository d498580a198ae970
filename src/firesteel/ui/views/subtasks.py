"""Subtasks and attempts of a vertex, in pages: sorted and cut in columns, so that only what is shown is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.humanize import format_count, format_seconds
from firesteel.report.executions import MOST_SUBTASKS, Executions, Floats, Ints, sentences
from firesteel.report.executions import Attempt as AttemptLife
from firesteel.report.fold import JobFold
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.ui.views.ranges import range_bytes
from firesteel.ui.views.structs import MOST_ITEMS, Attempt, AttemptRow, NodeShare, Page, Subtask, page

MOST_STRAGGLERS = 20
MOST_NODES = 50
SLOW = 1.5
"""Times the median."""


class Subtasks:
    """All of a vertex, each with the execution that stands for it. One that has not begun yet stands for itself."""

    def __init__(self, fold: JobFold, vertex: int) -> None:
        self._fold = fold
        self._executions = fold.executions.get(vertex, Executions())
        history = fold.vertices.get(vertex)
        rows = self._executions.standing()
        known = self._executions.subtask[rows]
        total = max(
            (history.parallelism if history is not None else None) or 0, int(known.max()) + 1 if len(known) else 0
        )
        if total > MOST_SUBTASKS:
            raise UsageError(f"The journal tells of {format_count(total)} subtasks, which no vertex has.")
        self.rows: Ints = np.full(total, -1, np.int32)
        """By subtask; -1: nothing is known of it."""
        self.rows[known] = rows
        self.bytes: NDArray[np.int64] | None = None if history is None else range_bytes(history.decided)
        self._counts = np.bincount(self._executions.subtask, minlength=total)
        self._mirrored = np.zeros(total, np.bool_)
        self._mirrored[self._executions.subtask[self._executions.mirror]] = True
        self.seconds = self._of_rows(self._executions.seconds(fold.now))
        won = self._executions.won() & ~self._executions.void
        finished = self._executions.seconds()[won]
        finished = finished[~np.isnan(finished)]
        self.median = float(np.median(finished)) if len(finished) else None
        """Seconds of those that finished."""

    def _of_rows(self, column: Floats) -> Floats:
        found = np.full(len(self.rows), np.nan)
        known = self.rows >= 0
        found[known] = column[self.rows[known]]
        return found

    def page(self, *, state: str = "", sort: str = "index", offset: int = 0, limit: int = MOST_ITEMS) -> Page[Subtask]:
        """``state``: only those in it; empty: all. ``sort``: a field of Subtask, "-" before it: descending; what is not known comes
        last. Raises UsageError for a state or field that there is not."""
        order = sorted_by(self._key(sort.removeprefix("-")), descending=sort.startswith("-"))
        if state:
            order = order[self._states()[order] == _state(state)]
        return page(order.tolist(), self.subtask, offset, limit)

    def _states(self) -> NDArray[np.int8]:
        found = np.full(len(self.rows), ExecutionState.CREATED, np.int8)
        known = self.rows >= 0
        found[known] = self._executions.state[self.rows[known]]
        return found

    def _key(self, field: str) -> Floats:
        makers: dict[str, Callable[[], Floats]] = {
            "index": lambda: np.arange(len(self.rows), dtype=np.float64),
            "state": lambda: self._states().astype(np.float64),
            "node": lambda: self._of_rows(_node_order(self._executions)),
            "attempts": lambda: self._counts.astype(np.float64),
            "has_mirror": lambda: self._mirrored.astype(np.float64),
            "began": lambda: self._of_rows(self._executions.began),
            "ended": lambda: self._of_rows(self._executions.ended),
            "seconds": lambda: self.seconds,
            "slowness": lambda: self.seconds,
            "bytes": self._sizes,
            "peak_bytes": lambda: self._of_rows(np.where(self._executions.peak > 0, self._executions.peak, np.nan)),
        }
        if field not in makers:
            raise UsageError(f"Subtasks cannot be sorted by '{field}'.", hint=f"There are: {', '.join(makers)}.")
        return makers[field]()

    def _sizes(self) -> Floats:
        found = np.full(len(self.rows), np.nan)
        if self.bytes is not None:
            found[: len(self.bytes)] = self.bytes[: len(found)]
        return found

    def subtask(self, index: int) -> Subtask:
        """Of those there are."""
        row = int(self.rows[index])
        size = int(self.bytes[index]) if self.bytes is not None and index < len(self.bytes) else None
        if row < 0:
            return Subtask(index=index, state="CREATED", attempts=0, bytes=size)
        executions, seconds = self._executions, float(self.seconds[index])
        known = not np.isnan(seconds)
        return Subtask(
            index=index,
            state=ExecutionState(int(executions.state[row])).name,
            node=executions.node_name(row),
            attempts=int(self._counts[index]),
            has_mirror=bool(self._mirrored[index]),
            mirror_won=bool(executions.mirror[row] and executions.state[row] == ExecutionState.FINISHED),
            began=self._since(executions.began[row]),
            ended=self._since(executions.ended[row]),
            seconds=seconds if known else None,
            bytes=size,
            peak_bytes=int(executions.peak[row]) << 20 or None,
            slowness=seconds / self.median if known and self.median else None,
        )

    def _since(self, at: float) -> float | None:
        return None if np.isnan(at) else float(at) - self._fold.zero

    def durations(self) -> tuple[Floats, str, Ints]:
        """Of those that finished: seconds, a sentence on them (empty: nothing to say), and their subtasks."""
        executions = self._executions
        rows = np.flatnonzero(executions.won() & ~executions.void & ~np.isnan(executions.began))
        seconds = executions.seconds()[rows]
        text = ""
        if len(seconds) > 1 and self.median:
            top = float(seconds.max())
            text = f"The slowest took {format_seconds(top)}, {top / self.median:.1f} times the median."
        return seconds, text, executions.subtask[rows]

    def stragglers(self) -> list[Subtask]:
        """The slowest, and those that have mirrors."""
        slow = self.seconds > SLOW * self.median if self.median else np.zeros(len(self.rows), np.bool_)
        chosen = np.flatnonzero(slow | self._mirrored)
        order = np.argsort(-np.nan_to_num(self.seconds[chosen]), kind="stable")
        return [self.subtask(index) for index in chosen[order][:MOST_STRAGGLERS].tolist()]

    def nodes(self) -> list[NodeShare]:
        """Nodes that attempts ran on, the busiest first."""
        executions = self._executions
        seconds, won = executions.seconds(), executions.won()
        failed = executions.state == ExecutionState.FAILED
        shares: list[NodeShare] = []
        counts = np.bincount(executions.node[executions.node >= 0], minlength=len(executions.nodes))
        for number in np.argsort(-counts, kind="stable")[:MOST_NODES].tolist():
            here = executions.node == number
            took = seconds[here & won]
            took = took[~np.isnan(took)]
            shares.append(
                NodeShare(
                    node=executions.nodes[number],
                    attempts=int(counts[number]),
                    finished=int((here & won).sum()),
                    failed=int((here & failed).sum()),
                    median_seconds=float(np.median(took)) if len(took) else None,
                )
            )
        return shares


def sorted_by(key: Floats, *, descending: bool) -> Ints:
    """Places in the order of a column; NaN comes last, equal ones in their order."""
    unknown = np.isnan(key)
    return np.lexsort((np.where(unknown, 0.0, -key if descending else key), unknown)).astype(np.int32)


def _state(name: str) -> int:
    try:
        return ExecutionState[name.upper()]
    except KeyError:
        there = ", ".join(state.name for state in ExecutionState)
        raise UsageError(f"No subtask is in a state '{name}'.", hint=f"There are: {there}.") from None


def _node_order(executions: Executions) -> Floats:
    """Of each execution the place of its node by name; NaN: not known."""
    ranks = np.full(len(executions.nodes) + 1, np.nan)
    ranks[sorted(range(len(executions.nodes)), key=executions.nodes.__getitem__)] = np.arange(len(executions.nodes))
    return ranks[executions.node]  # -1 is the last one


def attempts_of(fold: JobFold, vertex: int, subtask: int) -> list[Attempt]:
    """All of a subtask, by number. Empty: there is none, or no such subtask."""
    executions = fold.executions.get(vertex, Executions())
    lives = [executions.as_attempt(row) for row in executions.rows_of(subtask)]
    told = sentences(lives, fold.now, is_over=fold.is_over)
    return [Attempt.of(life, label=label, **_common(life, fold.zero)) for life, label in zip(lives, told, strict=True)]


def _common(life: AttemptLife, zero: float) -> dict[str, Any]:
    """The fields of an attempt that views have in other units or under other names."""
    times = {"created": life.created, "began": life.deployed, "ended": life.ended}
    since = {name: None if at is None else at - zero for name, at in times.items()}
    return {**since, "peak_bytes": life.peak << 20 or None}


def attempts_page(fold: JobFold, vertices: Iterable[int], offset: int, limit: int) -> Page[AttemptRow]:
    """Every execution of these vertices, by vertex, subtask and attempt."""
    found: list[tuple[int, int]] = []
    for vertex in vertices:
        executions = fold.executions.get(vertex, Executions())
        order = np.lexsort((executions.attempt, executions.subtask))
        found += [(vertex, row) for row in order.tolist()]
    return page(found, lambda place: _attempt_row(fold, *place), offset, limit)


def _attempt_row(fold: JobFold, vertex: int, row: int) -> AttemptRow:
    executions = fold.executions[vertex]
    life = executions.as_attempt(row)
    return AttemptRow.of(
        life,
        vertex=vertex,
        name=fold.vertex(vertex).name,
        subtask=int(executions.subtask[row]),
        attempt=life.number,
        mirror=life.is_mirror,
        void=life.is_void,
        **_common(life, fold.zero),
    )

"""The executions of one vertex as columns: a million of them take tens of megabytes, and a page of them milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.humanize import format_bytes, format_seconds
from firesteel.scheduler.kernel.records import REJECTED, RETIRED, OutputGone, StateChange
from firesteel.scheduler.kernel.states import RANK, ExecutionState

_ENDED = {"FINISHED": "finished", "FAILED": "failed", "CANCELED": "was cancelled", "CANCELING": "is being cancelled"}


@dataclass(slots=True)
class Attempt:
    """One execution. Times as in the records; None: not known, or not yet."""

    number: int
    """From 0."""
    state: str = "CREATED"
    node: str = ""
    is_mirror: bool = False
    """A copy of a slow one."""
    opens: bool = True
    """It took the place of all before it; else it ran beside them, or instead of one that a node rejected."""
    created: float | None = None
    deployed: float | None = None
    ended: float | None = None
    cause: str = ""
    peak: int = 0
    """Most resident MiB of its worker; 0: not watched, or it did not finish."""
    is_void: bool = False
    """It had won, and what it wrote was lost, or thrown away, to be made anew."""

    @property
    def won(self) -> bool:
        return self.state == "FINISHED"

    @property
    def seconds(self) -> float | None:
        """From Spark's launching it to its end."""
        if self.deployed is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.deployed)


Lives = dict[tuple[int, int], list[Attempt]]
"""(vertex, subtask) to its attempts, by number."""


def sentences(attempts: Sequence[Attempt], now: float, *, is_over: bool) -> list[str]:
    """``attempt 2 (a mirror) on 10.0.0.3 finished after 1.2 s and won``, for all of a subtask.

    ``now``: as in the records. ``is_over``: the job has ended.
    """
    joined = [not attempt.opens for attempt in attempts]
    raced = [one or other for one, other in zip(joined, [*joined[1:], False], strict=True)]
    return [_sentence(attempt, race, now, is_over) for attempt, race in zip(attempts, raced, strict=True)]


def _sentence(attempt: Attempt, raced: bool, now: float, is_over: bool) -> str:
    kind = " (a mirror)" if attempt.is_mirror else ""
    where = f" on {attempt.node}" if attempt.node else ""
    return f"attempt {attempt.number + 1}{kind}{where} {_fate(attempt, raced, now, is_over)}"


def _fate(attempt: Attempt, raced: bool, now: float, is_over: bool) -> str:
    if attempt.state in _ENDED:
        return _end(attempt, raced, is_over)
    if attempt.deployed is not None:
        ran = format_seconds(max(0.0, now - attempt.deployed))
        return f"had run for {ran} when the job ended" if is_over else f"runs since {ran}"
    if is_over:
        return "never ran"
    return "waits for a slot" if attempt.state == "SCHEDULED" else "waits"


def _end(attempt: Attempt, raced: bool, is_over: bool) -> str:
    if attempt.cause in (REJECTED, RETIRED):
        return f"was {attempt.cause}"
    after = f" after {format_seconds(attempt.seconds)}" if attempt.seconds is not None else ""
    if attempt.won:
        peak = f", {format_bytes(attempt.peak << 20)} at its peak" if attempt.peak else ""
        void = "; what it wrote is made anew" if attempt.is_void else ""
        return f"finished{after}{peak}{' and won' if raced else ''}{void}"
    cause = attempt.cause.strip().split("\n", 1)[0].rstrip(".")
    verb = "was being cancelled" if attempt.state == "CANCELING" and is_over else _ENDED[attempt.state]
    return f"{verb}{after}{f': {cause}' if cause else ''}"


Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = Ints | slice
Spans = tuple[Floats, Floats]
"""Launches and ends of executions, as in the records; parallel columns."""

MOST_SUBTASKS = 1 << 24
"""Of a vertex; a journal that names others is none of a job."""
_STATES = {state.name: int(state) for state in ExecutionState} | {"INITIALIZING": int(ExecutionState.DEPLOYING)}
_NAMES = {int(state): state.name for state in ExecutionState}
_ENDS = frozenset({"FAILED", "CANCELED", "CANCELING"})
_OVER = (ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED)
_COLUMNS: dict[str, tuple[Any, Any]] = {
    "subtask": (np.int32, 0),
    "attempt": (np.int32, 0),
    "state": (np.int8, ExecutionState.CREATED),
    "node": (np.int32, -1),
    "peak": (np.int32, 0),
    "created": (np.float64, np.nan),
    "asked": (np.float64, np.nan),
    "began": (np.float64, np.nan),
    "ended": (np.float64, np.nan),
    "mirror": (np.bool_, False),
    "opens": (np.bool_, True),
    "void": (np.bool_, False),
}


class Executions:
    """``apply`` takes the records of one vertex in order. Each property is a column, one value per execution, in the order in
    which they were first heard of. Times as in the records; NaN: not known, or not yet. ``asked``: when it was queued with Spark. ``node``: a place
    in ``nodes``, or -1.

    The other columns are the fields of :class:`Attempt`.
    """

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.count = 0
        self._node_numbers: dict[str, int] = {}
        self._columns = {name: np.full(16, blank, kind) for name, (kind, blank) in _COLUMNS.items()}
        self._first: Ints = np.full(16, -1, np.int32)
        """Subtask to the row of its attempt 0."""
        self._later: dict[tuple[int, int], int] = {}
        """(subtask, attempt) to row, of later attempts."""
        self._causes: dict[int, str] = {}
        self._launches_told = True

    subtask = property(lambda self: self._column("subtask"))
    attempt = property(lambda self: self._column("attempt"))
    state = property(lambda self: self._column("state"))
    node = property(lambda self: self._column("node"))
    peak = property(lambda self: self._column("peak"))
    created = property(lambda self: self._column("created"))
    asked = property(lambda self: self._column("asked"))
    began = property(lambda self: self._column("began"))
    ended = property(lambda self: self._column("ended"))
    mirror = property(lambda self: self._column("mirror"))
    opens = property(lambda self: self._column("opens"))
    void = property(lambda self: self._column("void"))

    def _column(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.count]

    # --- taking records in ---

    def apply(self, record: StateChange) -> None:
        """Raises ValueError for a record whose columns differ in length."""
        if not record.subtasks:
            return
        rows = self._rows(record.subtasks, record.attempts)
        at: Any = np.asarray(record.times) if record.times else record.at
        self._put("state", rows, _STATES.get(record.state, int(ExecutionState.CREATED)))
        self._explain(rows, record)
        if record.nodes:
            known = self._numbers_of(record.hosts)[np.asarray(record.nodes)]
            self._put(
                "node", rows, known if known.min() >= 0 else np.where(known < 0, self._columns["node"][rows], known)
            )
        match record.state:
            case "CREATED":
                self._put("created", rows, at)
                self._put("opens", rows, not record.beside)
                self._put("mirror", rows, np.asarray(record.mirrors) if record.mirrors else False)
            case "SCHEDULED":
                self._put("asked", rows, at)
            case "DEPLOYING":
                self._put("began", rows, at)
            case "RUNNING":
                before = self._columns["began"][rows]
                self._put("began", rows, np.where(np.isnan(before), at, before))
            case "FINISHED":
                if record.deployed:
                    self._put("began", rows, np.asarray(record.deployed))
                else:  # what was told of as it ran may have been told late
                    self._launches_told = False
                self._put("ended", rows, at)
                self._put("peak", rows, np.asarray(record.peaks) if record.peaks else 0)
            case state if state in _ENDS:
                self._put("ended", rows, at)
            case _:
                pass

    def lost(self, record: OutputGone) -> None:
        """The outputs of these executions are thrown away, to be made anew."""
        for subtask, attempt in zip(record.subtasks, record.attempts, strict=False):
            row = self._row(subtask, attempt)
            if row >= 0 and self.state[row] == ExecutionState.FINISHED:
                self._columns["void"][row] = True

    def _put(self, name: str, rows: Rows, values: Any) -> None:
        self._columns[name][rows] = values

    def _explain(self, rows: Rows, record: StateChange) -> None:
        """A cancellation without a cause was asked for before, with the reason."""
        if record.state == "CANCELED" and not record.cause:
            return
        explained = record.cause and record.state != "CREATED"
        if not explained and not self._causes:
            return
        for row in range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist():
            if explained:
                self._causes[row] = record.cause
            else:
                self._causes.pop(row, None)

    def _numbers_of(self, hosts: Sequence[str]) -> Ints:
        """Of the hosts of a record; at the end -1, for those that say so."""
        for host in hosts:
            if host not in self._node_numbers:
                self._node_numbers[host] = len(self.nodes)
                self.nodes.append(host)
        return np.array([*(self._node_numbers[host] for host in hosts), -1], np.int32)

    def _row(self, subtask: int, attempt: int) -> int:
        """-1: not heard of."""
        if attempt:
            return self._later.get((subtask, attempt), -1)
        return int(self._first[subtask]) if 0 <= subtask < len(self._first) else -1

    def _rows(self, subtasks: Sequence[int], attempts: Sequence[int]) -> Rows:
        """Of these executions; those that were not heard of get new rows. Of one that was, as in most records, a slice: that is far quicker."""
        if len(subtasks) == 1 == len(attempts) and (row := self._row(subtasks[0], attempts[0])) >= 0:
            return slice(row, row + 1)
        wanted, tries = np.asarray(subtasks, np.int32), np.asarray(attempts, np.int32)
        if len(wanted) != len(tries) or wanted.min() < 0 or wanted.max() >= MOST_SUBTASKS:
            raise ValueError("subtasks and attempts of a record do not fit")
        if (top := int(wanted.max())) >= len(self._first):
            grown = np.full(max(top + 1, 2 * len(self._first)), -1, np.int32)
            grown[: len(self._first)] = self._first
            self._first = grown
        rows = np.where(tries == 0, self._first[wanted], -1).astype(np.int32)
        for place in np.flatnonzero(tries).tolist():
            rows[place] = self._later.get((int(wanted[place]), int(tries[place])), -1)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = self._added(wanted[new], tries[new])
        return rows

    def _added(self, subtasks: Ints, attempts: Ints) -> Ints:
        rows = np.arange(self.count, self.count + len(subtasks), dtype=np.int32)
        self.count += len(rows)
        for name, column in self._columns.items():
            if self.count > len(column):
                kind, blank = _COLUMNS[name]
                grown = np.full(max(self.count, 2 * len(column)), blank, kind)
                grown[: len(column)] = column
                self._columns[name] = grown
        self._put("subtask", rows, subtasks)
        self._put("attempt", rows, attempts)
        first = attempts == 0
        self._first[subtasks[first]] = rows[first]
        for place in np.flatnonzero(~first).tolist():
            self._later[int(subtasks[place]), int(attempts[place])] = int(rows[place])
        return rows

    # --- reading ---

    def cause(self, row: int) -> str:
        """The reason for which it failed or was cancelled; empty: neither, or not known."""
        return self._causes.get(row, "")

    def node_name(self, row: int) -> str:
        number = int(self.node[row])
        return self.nodes[number] if number >= 0 else ""

    def node_of(self, subtask: int, attempt: int) -> str:
        """Empty: not known."""
        row = self._row(subtask, attempt)
        return self.node_name(row) if row >= 0 else ""

    def seconds(self, now: float = np.nan) -> Floats:
        """Of each, from launch to end; of those that run until ``now``; NaN: neither."""
        ended = np.where(np.isnan(self.ended), now, self.ended)
        return np.maximum(ended - self.began, 0.0)

    def spans(self) -> Spans:
        """Of those that Spark launched and that are over; none where the journal does not tell when each was launched."""
        over = np.isin(self.state, _OVER) & ~np.isnan(self.began) & self._launches_told
        return self.began[over], np.maximum(self.began, self.ended)[over]

    def won(self) -> Flags:
        return self.state == ExecutionState.FINISHED

    def standing(self) -> Ints:
        """The row that stands for each subtask, by subtask: of those since it was last begun anew the one nearest to FINISHED, of
        several the latest."""
        if not self.count:
            return np.zeros(0, np.int32)
        opened = np.zeros(int(self.subtask.max()) + 1, np.int32)
        np.maximum.at(opened, self.subtask[self.opens], self.attempt[self.opens])
        current = np.flatnonzero(self.attempt >= opened[self.subtask])
        order = np.lexsort((-self.attempt[current], RANK[self.state[current]], self.subtask[current]))
        chosen = current[order]
        first = np.ones(len(chosen), np.bool_)
        first[1:] = self.subtask[chosen[1:]] != self.subtask[chosen[:-1]]
        return chosen[first].astype(np.int32)

    def raced(self) -> Flags:
        """Flags of the executions that ran beside others of their subtask, or had others beside them."""
        if not self.count:
            return np.zeros(0, np.bool_)
        beside = np.zeros(int(self.subtask.max()) + 1, np.bool_)
        beside[self.subtask[~self.opens]] = True
        return beside[self.subtask]

    def rows_of(self, subtask: int) -> list[int]:
        """Of one subtask, by attempt."""
        rows = np.flatnonzero(self.subtask == subtask)
        return rows[np.argsort(self.attempt[rows])].tolist()

    def lives(self, *, all_of_them: bool = False) -> dict[int, list[Attempt]]:
        """Returns the attempts of each subtask, by number. ``all_of_them``: also of subtasks that had one only."""
        order = np.lexsort((self.attempt, self.subtask))
        if not all_of_them:
            several = np.unique(self.subtask[self.attempt > 0])
            order = order[np.isin(self.subtask[order], several)]
        found: dict[int, list[Attempt]] = {}
        for subtask, attempt in zip(self.subtask[order].tolist(), self.as_attempts(order), strict=True):
            found.setdefault(subtask, []).append(attempt)
        return found

    def as_attempt(self, row: int) -> Attempt:
        """One execution as reports have it."""
        return next(self.as_attempts(np.array([row])))

    def as_attempts(self, rows: NDArray[Any]) -> Iterator[Attempt]:
        """The executions in these rows as reports have them."""

        def known(column: Floats) -> list[float | None]:
            return [None if math.isnan(value) else value for value in column[rows].tolist()]

        nodes = [*self.nodes, ""]  # -1 is the last one
        return map(
            Attempt,
            self.attempt[rows].tolist(),
            [_NAMES[state] for state in self.state[rows].tolist()],
            [nodes[node] for node in self.node[rows].tolist()],
            self.mirror[rows].tolist(),
            self.opens[rows].tolist(),
            known(self.created),
            known(self.began),
            known(self.ended),
            [self.cause(row) for row in rows.tolist()],
            self.peak[rows].tolist(),
            self.void[rows].tolist(),
        )


class BusySlots:
    """Slots that were busy over time, of some executions."""

    def __init__(self, spans: Iterable[Spans]) -> None:
        columns = [*spans]
        self._began, self._ended = (
            np.sort(np.concatenate([np.zeros(0), *(each[place] for each in columns)]), kind="stable")
            for place in (0, 1)
        )
        self._sums = [np.concatenate(([0.0], np.cumsum(each))) for each in (self._began, self._ended)]

    def between(self, begin: float, end: float) -> float:
        """Slot-seconds."""
        return self._until(end) - self._until(begin)

    def most(self, begin: float, end: float) -> int:
        """At the same time, of those launched from ``begin`` to ``end``."""
        at = self._began[np.searchsorted(self._began, begin) : np.searchsorted(self._began, end, "right")]
        running = np.searchsorted(self._began, at, "right") - np.searchsorted(self._ended, at, "right")
        return int(running.max(initial=0))

    def _until(self, time: float) -> float:
        begun, over = (int(np.searchsorted(each, time)) for each in (self._began, self._ended))
        return (begun * time - float(self._sums[0][begun])) - (over * time - float(self._sums[1][over]))

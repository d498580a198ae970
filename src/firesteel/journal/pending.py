"""Records on their way to the file: state changes of one second are put together, so that a subtask costs bytes, not lines.

A job's events may come one by one, and every record repeats vertex, state and time. Changes to the same state of the same
vertex become one record with a time for each subtask. Nothing is moved past another record of the same subtask.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from firesteel.scheduler.kernel.records import JournalRecord, OutputGone, StateChange

_GATHERED = frozenset({"SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED"})
_DIGITS = 4
"""Of a second, in columns of times."""
_COLUMNS = ("deployed", "running", "tokens", "peaks", "mirrors")
_TIMES = ("times", "deployed", "running")

Changes = list[StateChange | OutputGone]
Kind = tuple[Any, ...]


class Pending:
    """Records that were not written yet, in order."""

    def __init__(self) -> None:
        self._entries: list[Changes | JournalRecord] = []
        """Changes of one list go into one line."""
        self._latest: dict[Kind, int] = {}
        self._spoken: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Vertex and subtask to the place of the last entry that speaks of it."""
        self.count = 0
        """Records, and subtasks in them."""

    def add(self, record: JournalRecord) -> None:
        self.count += 1
        if isinstance(record, StateChange):
            self._gather(record, _kind_of_change(record))
        elif isinstance(record, OutputGone):
            self._gather(record, (record.vertex, "gone", record.dataset, record.reason))
        else:
            self._entries.append(record)

    def _gather(self, record: StateChange | OutputGone, kind: Kind | None) -> None:
        self.count += len(record.subtasks)
        place, spoken = self._latest.get(kind) if kind else None, self._spoken[record.vertex]
        entry = None if place is None else self._entries[place]
        if place is None or not isinstance(entry, list) or _are_past(spoken, record.subtasks, place):
            place, entry = len(self._entries), list[StateChange | OutputGone]()
            self._entries.append(entry)
            if kind:
                self._latest[kind] = place
        entry.append(record)
        for subtask in record.subtasks:
            spoken[subtask] = place

    def take(self) -> list[JournalRecord]:
        """All of it, put together; nothing is left."""
        taken = [_merged(entry) if isinstance(entry, list) else entry for entry in self._entries]
        self._entries, self._latest, self.count = [], {}, 0
        self._spoken.clear()
        return [_rounded(record) if isinstance(record, StateChange) else record for record in taken]


def _are_past(spoken: dict[int, int], subtasks: Sequence[int], place: int) -> bool:
    """Something from there on speaks of one of these subtasks."""
    for subtask in subtasks:  # noqa: SIM110 - most have one, and any() takes twice as long
        if spoken.get(subtask, -1) >= place:
            return True
    return False


def _kind_of_change(record: StateChange) -> Kind | None:
    """Records of one kind may be put together: they have the same columns. None: of no kind."""
    if record.cause or record.state not in _GATHERED:
        return None
    columns = (not record.deployed, not record.running, not record.tokens, not record.peaks, not record.mirrors)
    return (record.vertex, record.state, record.beside, not record.nodes, *columns)


def _merged(records: Changes) -> StateChange | OutputGone:
    first, last = records[0], records[-1]
    if len(records) == 1:
        return first
    joined: dict[str, Any] = {"subtasks": _joined(records, "subtasks"), "attempts": _joined(records, "attempts")}
    if isinstance(first, OutputGone):
        return msgspec.structs.replace(first, at=last.at, tokens=_joined(records, "tokens"), **joined)
    changes = [record for record in records if isinstance(record, StateChange)]
    joined |= {name: _joined(records, name) for name in _COLUMNS if getattr(first, name)}
    joined["times"] = [t for r in changes for t in (r.times or [r.at] * len(r.subtasks))]
    if first.nodes:
        places: dict[str, int] = {}
        joined["nodes"] = [
            -1 if node < 0 else places.setdefault(r.hosts[node], len(places)) for r in changes for node in r.nodes
        ]
        joined["hosts"] = list(places)
    return msgspec.structs.replace(first, at=max(r.at for r in changes), **joined)


def _joined(records: Changes, column: str) -> list[Any]:
    return [*chain.from_iterable(map(attrgetter(column), records))]


def _rounded(record: StateChange) -> StateChange:
    columns = {name: column for name in _TIMES if (column := getattr(record, name))}
    if not columns:
        return record
    return msgspec.structs.replace(
        record, **{name: np.round(column, _DIGITS).tolist() for name, column in columns.items()}
    )

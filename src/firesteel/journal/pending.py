"""Records on their way to the file: state changes of one second are put together, so that a subtask costs bytes, not lines.

A job's events may come one by one, and every record repeats vertex, state and time. Changes to the same state of the same
vertex become one record with a time for each subtask. Nothing is moved past another record of the same subtask.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from firesteel.scheduler.kernel.records import JournalRecord, OutputGone, StateChange

_GATHERED = frozenset({"SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED"})
_DIGITS = 4
"""Of a second, in columns of times."""
_LOOKED_AT = 64
"""Records that one may be put before: looking through more would cost more than it saves."""
_COLUMNS = ("deployed", "running", "tokens", "peaks", "mirrors")
_TIMES = ("times", "deployed", "running")


class _Gathered:
    """Records of one kind that go into one line."""

    def __init__(self, kind: tuple[Any, ...], record: StateChange | OutputGone) -> None:
        self.kind = kind
        self.records = [record]
        self.subtasks = set(record.subtasks)


class Pending:
    """Records that were not written yet, in order."""

    def __init__(self) -> None:
        self._entries: list[_Gathered | JournalRecord] = []
        self._latest: dict[tuple[Any, ...], int] = {}
        self.count = 0
        """Records, and subtasks in them."""

    def add(self, record: JournalRecord) -> None:
        self.count += 1
        kind = _kind(record)
        if kind is None or not isinstance(record, StateChange | OutputGone):
            self._entries.append(record)
            return
        self.count += len(record.subtasks)
        place = self._latest.get(kind)
        if place is not None and self._is_free(place, record):
            entry = self._entries[place]
            assert isinstance(entry, _Gathered)
            entry.records.append(record)
            entry.subtasks.update(record.subtasks)
            return
        self._latest[kind] = len(self._entries)
        self._entries.append(_Gathered(kind, record))

    def _is_free(self, place: int, record: StateChange | OutputGone) -> bool:
        """Does nothing from there on speak of one of these subtasks?"""
        if len(self._entries) - place > _LOOKED_AT:
            return False
        for entry in self._entries[place:]:
            if isinstance(entry, _Gathered):
                if entry.records[0].vertex == record.vertex and not entry.subtasks.isdisjoint(record.subtasks):
                    return False
            elif isinstance(entry, StateChange | OutputGone) and entry.vertex == record.vertex:
                return False
        return True

    def take(self) -> list[JournalRecord]:
        """All of it, put together; nothing is left."""
        taken = [_merged(entry.records) if isinstance(entry, _Gathered) else entry for entry in self._entries]
        self._entries, self._latest, self.count = [], {}, 0
        return [_rounded(record) if isinstance(record, StateChange) else record for record in taken]


def _kind(record: JournalRecord) -> tuple[Any, ...] | None:
    """Records of one kind may be put together; None: of no kind."""
    if isinstance(record, StateChange) and record.state in _GATHERED and not record.cause:
        present = tuple(bool(getattr(record, column)) for column in _COLUMNS)
        return (record.vertex, record.state, record.beside, bool(record.nodes), *present)
    if isinstance(record, OutputGone):
        return (record.vertex, "gone", record.dataset, record.reason)
    return None


def _merged(records: list[StateChange | OutputGone]) -> StateChange | OutputGone:
    first, last = records[0], records[-1]
    if len(records) == 1:
        return first
    joined: dict[str, Any] = {
        name: [value for record in records for value in getattr(record, name)] for name in ("subtasks", "attempts")
    }
    if isinstance(first, OutputGone):
        joined["tokens"] = [token for record in records for token in record.tokens]
        return msgspec.structs.replace(first, at=last.at, **joined)
    changes = [record for record in records if isinstance(record, StateChange)]
    joined |= {name: [value for record in changes for value in getattr(record, name)] for name in _COLUMNS}
    joined["times"] = [t for r in changes for t in (r.times or [r.at] * len(r.subtasks))]
    if first.nodes:
        places: dict[str, int] = {}
        joined["nodes"] = [
            -1 if node < 0 else places.setdefault(r.hosts[node], len(places)) for r in changes for node in r.nodes
        ]
        joined["hosts"] = list(places)
    return msgspec.structs.replace(first, at=max(r.at for r in changes), **joined)


def _rounded(record: StateChange) -> StateChange:
    columns = {name: column for name in _TIMES if (column := getattr(record, name))}
    if not columns:
        return record
    return msgspec.structs.replace(
        record, **{name: np.round(column, _DIGITS).tolist() for name, column in columns.items()}
    )

"""The packed rows of sizes of one result: a few in memory, the others in the driver's scratch files.

Rows wait in a small buffer; a full buffer goes out as one command. They are asked for again when a producer restarts
before its consumers are decided, or when consumers are cut over single cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Command, DropSizes, LoadSizes, StoreSizes
from firesteel.scheduler.kernel.events import SizesLoaded

BUFFER_BYTES = 1 << 20
"""Packed rows of one result that are kept in memory before they go to the driver's scratch files."""
_NOWHERE = -1
_UNREADABLE = -2
Name = tuple[int, int]
"""(partition, attempt)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows that came back. ``owed``: of executions that are void, to be taken from the sum; None: it could not be read."""

    owed: list[tuple[int, bytes | None]]
    """(plain bytes the execution wrote, its row)."""
    num_unreadable: int


class SizeRows:
    def __init__(
        self,
        dataset: int,
        num_partitions: int,
        is_whole: Callable[[bytes], bool],
        emit: Callable[[Command], None],
        buffer_bytes: int,
    ) -> None:
        """``is_whole``: whether a row is as it was when it was kept, as far as one can tell."""
        self._dataset = dataset
        self._is_whole = is_whole
        self._emit = emit
        self._buffer_bytes = buffer_bytes
        self._stored = np.broadcast_to(np.array(_NOWHERE, np.int32), num_partitions)
        """The attempt whose row was sent to the files; -1: none. No memory before there is a row, as the next one."""
        self._attempts = self._stored
        """The attempt whose row is kept, here or there; -1: none, -2: it could not be read back."""
        self._here: dict[int, bytes] = {}
        """Rows in memory by partition; those that are not stored yet and those that were loaded for the cells."""
        self._unsaved = 0
        """Bytes of the rows that are not stored yet."""
        self._owed: dict[Name, int] = {}
        """Rows on their way that are to be taken from the sum, and the plain bytes their executions wrote."""
        self._wanted: set[Name] = set()
        """Rows on their way that the cells need."""
        self._any_stored = False

    @property
    def bytes_in_memory(self) -> int:
        return sum(map(len, self._here.values()))

    @property
    def num_owed(self) -> int:
        return len(self._owed)

    @property
    def num_wanted(self) -> int:
        return len(self._wanted)

    def keep(self, partitions: Ints, attempts: Ints, rows: Sequence[bytes]) -> None:
        """Rows of (distinct) partitions that have none."""
        if not self._attempts.flags.writeable:
            self._stored, self._attempts = self._stored.copy(), self._stored.copy()
        self._attempts[partitions] = attempts
        size = sum(map(len, rows))
        if size > self._buffer_bytes:  # very many at once: they need not go through the buffer
            self._send(partitions, attempts, rows)
            return
        self._here.update(zip(partitions.tolist(), rows, strict=True))
        self._unsaved += size
        if self._unsaved > self._buffer_bytes:
            self._store()

    def give_up(self, partitions: Ints, written: Ints) -> tuple[list[bytes], list[int]]:
        """Forgets the rows of executions that are void. Returns those in memory, and asks for those in the files.

        ``written``: plain bytes of each; those of rows that cannot be read are returned too.
        """
        unreadable = written[self._attempts[partitions] == _UNREADABLE].tolist()
        kept = self._attempts[partitions] >= 0
        if not self._attempts.flags.writeable:
            return [], []
        self._attempts[partitions[~kept]] = _NOWHERE
        partitions, written = partitions[kept], written[kept]
        stored = self._stored[partitions] == self._attempts[partitions]
        rows: list[bytes] = []
        away: list[int] = []
        for place, partition in enumerate(partitions.tolist()):
            row = self._here.pop(partition, None)
            if row is None:
                away.append(place)
            else:
                rows.append(row)
                self._unsaved -= 0 if stored[place] else len(row)
        self._load(partitions[away], written[away])
        self._attempts[partitions] = _NOWHERE
        return rows, unreadable

    def forget(self, partitions: Ints) -> None:
        """Forgets the rows of executions that are void and in no sum: nothing is asked for."""
        if not self._attempts.flags.writeable:
            return
        for partition, attempt in zip(partitions.tolist(), self._attempts[partitions].tolist(), strict=True):
            row = self._here.pop(partition, None)
            if row is not None and self._stored[partition] != attempt:
                self._unsaved -= len(row)
            self._wanted.discard((partition, attempt))
        self._attempts[partitions] = _NOWHERE

    def unload(self) -> None:
        """Keep in memory only the rows that are nowhere else."""
        for partition in [p for p in self._here if self._stored[p] == self._attempts[p]]:
            del self._here[partition]

    def fetch(self) -> bool:
        """Returns whether all rows are in memory; those that are not are asked for, once."""
        if self._wanted:
            return False
        kept = np.flatnonzero(self._attempts >= 0).tolist()
        missing = np.array([partition for partition in kept if partition not in self._here], np.int64)
        self._load(missing, None)
        return not len(missing)

    def rows(self) -> tuple[Ints, list[bytes]]:
        """Partitions and their rows, after :meth:`fetch`."""
        return np.fromiter(self._here, np.int64, len(self._here)), list(self._here.values())

    def loaded(self, event: SizesLoaded) -> Answer:
        """Rows that came. One that nobody waits for (any more) changes nothing."""
        owed: list[tuple[int, bytes | None]] = []
        num_unreadable = 0
        names = zip(event.partitions.tolist(), event.attempts.tolist(), strict=True)
        for name, row in zip(names, event.rows, strict=True):
            found = row if row is not None and self._is_whole(row) else None
            if name in self._owed:
                owed.append((self._owed.pop(name), found))
            elif name in self._wanted:
                self._wanted.discard(name)
                if found is None:
                    self._attempts[name[0]] = _UNREADABLE
                else:
                    self._here[name[0]] = found
            else:
                continue
            num_unreadable += found is None
        return Answer(owed, num_unreadable)

    def forget_all(self) -> None:
        """Every row is void: nothing is owed any more."""
        self._here.clear()
        self._owed.clear()
        self._wanted.clear()
        self._unsaved = 0
        if self._attempts.flags.writeable:
            self._attempts[:] = _NOWHERE

    def drop(self) -> None:
        """Nobody will ask for a row again."""
        self.forget_all()
        if self._any_stored:
            self._any_stored = False
            self._emit(DropSizes(self._dataset))

    def _store(self) -> None:
        """All rows in memory that are not in the files yet, as one command."""
        partitions = np.fromiter(self._here, np.int64, len(self._here))
        unsaved = partitions[self._stored[partitions] != self._attempts[partitions]]
        rows = [self._here.pop(partition) for partition in unsaved.tolist()]
        self._unsaved = 0
        self._send(unsaved, self._attempts[unsaved].astype(np.int64), rows)

    def _send(self, partitions: Ints, attempts: Ints, rows: Sequence[bytes]) -> None:
        self._stored[partitions] = attempts
        self._any_stored = True
        self._emit(StoreSizes(self._dataset, partitions, attempts, rows))

    def _load(self, partitions: Ints, written: Ints | None) -> None:
        """Ask for the rows of these; ``written``: they are owed, else the cells need them."""
        if not len(partitions):
            return
        attempts = self._attempts[partitions].astype(np.int64)
        names = list(zip(partitions.tolist(), attempts.tolist(), strict=True))
        ask = [k for k, name in enumerate(names) if name not in self._wanted]
        if written is None:
            self._wanted.update(names)
        else:
            self._wanted.difference_update(names)
            self._owed.update(zip(names, written.tolist(), strict=True))
        if ask:
            self._emit(LoadSizes(self._dataset, partitions[ask], attempts[ask]))

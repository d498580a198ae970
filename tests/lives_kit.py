"""The life of every attempt, read from the records one subtask after the other: what the columns of a fold must say, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firesteel.report.executions import Attempt, Lives
from firesteel.scheduler.kernel.records import JournalRecord, OutputGone, StateChange


def lives(records: Sequence[JournalRecord], vertex: int | None = None, *, all_of_them: bool = False) -> Lives:
    """Of the subtasks (of one vertex, or of the job) that had several attempts; ``all_of_them``: of those with one too."""
    changes = [r for r in records if isinstance(r, StateChange) and vertex in (None, r.vertex)]
    wanted: set[tuple[int, int]] = set()
    for record in changes:
        if all_of_them or any(record.attempts):
            pairs = zip(record.subtasks, record.attempts, strict=True)
            wanted.update((record.vertex, subtask) for subtask, attempt in pairs if all_of_them or attempt)
    found: dict[tuple[int, int], dict[int, Attempt]] = {key: {} for key in sorted(wanted)}
    touched = {key[0] for key in wanted}
    for record in records:
        if isinstance(record, StateChange) and record.vertex in touched:
            for place, key in _of(record, found):
                number = record.attempts[place]
                _apply(found[key].setdefault(number, Attempt(number)), record, place)
        elif isinstance(record, OutputGone) and record.reason.startswith("discarded") and record.vertex in touched:
            for place, key in _of(record, found):
                attempt = found[key].get(record.attempts[place])
                if attempt is not None and attempt.won:
                    attempt.is_void = True
    return {key: [attempts[number] for number in sorted(attempts)] for key, attempts in found.items()}


def _of(
    record: StateChange | OutputGone, found: dict[tuple[int, int], dict[int, Attempt]]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields (index in the record, (vertex, subtask)) for each subtask that is looked for."""
    for place, subtask in enumerate(record.subtasks):
        if (record.vertex, subtask) in found:
            yield place, (record.vertex, subtask)


def _apply(attempt: Attempt, record: StateChange, place: int) -> None:
    attempt.state = record.state
    if record.cause or record.state != "CANCELED":  # that was asked for before, with the reason
        attempt.cause = "" if record.state == "CREATED" else record.cause
    if record.nodes and record.nodes[place] >= 0:
        attempt.node = record.hosts[record.nodes[place]]
    at = record.times[place] if record.times else record.at
    match record.state:
        case "CREATED":
            attempt.created, attempt.opens = at, not record.beside
            attempt.is_mirror = bool(record.mirrors and record.mirrors[place])
        case "DEPLOYING":
            attempt.deployed = at
        case "RUNNING" if attempt.deployed is None:
            attempt.deployed = at
        case "FINISHED":
            attempt.deployed, attempt.ended = (record.deployed[place] if record.deployed else attempt.deployed), at
            attempt.peak = record.peaks[place] if record.peaks else 0
        case "FAILED" | "CANCELED" | "CANCELING":
            attempt.ended = at
        case _:
            pass

"""The life of every attempt, of subtasks that had several of them (or of all): where, how long, how it ended, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firesteel.humanize import format_bytes, format_seconds
from firesteel.scheduler.kernel.records import REJECTED, RETIRED, JournalRecord, OutputGone, StateChange

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

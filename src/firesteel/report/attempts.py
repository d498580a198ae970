"""The life of every attempt, of subtasks that had several of them (or of all): where, how long, how it ended, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.humanize import format_bytes, format_seconds
from firesteel.scheduler.kernel.records import REJECTED, RETIRED

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

"""Attempts of one vertex as spans: the first that finish, and such as failed, were cancelled or are mirrors; the rest are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from firesteel.monitoring.opentelemetry.spans import Clock, Spans
from firesteel.scheduler.kernel.records import StateChange

MOST_FINISHED = 100
"""Spans of plain attempts that finished, of one vertex."""
MOST_ODD = 100
"""Spans of attempts that did not, and of mirrors, of one vertex."""
MOST_BEGUN = 4_096
"""Attempts of one vertex whose beginnings are kept until they end; the span of a further one begins when it ends, unless its end tells."""
_ENDS = ("FINISHED", "FAILED", "CANCELED")


class Attempts:
    def __init__(self, spans: Spans, vertex: Any) -> None:
        """``vertex``: its span."""
        self._spans = spans
        self._vertex = vertex
        self._finished, self._odd = MOST_FINISHED, MOST_ODD
        self._begun: dict[tuple[int, int], tuple[float, str | None]] = {}
        """When, and on which node, where that is known."""
        self._mirrors: set[tuple[int, int]] = set()
        self._ended: Counter[str] = Counter()
        self._left_out = 0

    def apply(self, record: StateChange, clock: Clock) -> None:
        if record.state in _ENDS:
            self._ended[record.state] += len(record.subtasks)
            self._end(record, clock)
        elif record.state == "CREATED":
            self._mirrors.update(
                key for place, key in enumerate(_keys(record)) if record.mirrors and record.mirrors[place]
            )
        elif record.state in ("DEPLOYING", "RUNNING"):
            self._begin(record)

    def attributes(self) -> dict[str, int]:
        """Of the vertex: attempts by their end, and how many have no span of their own."""
        ended = {f"firesteel.attempts.{state.lower()}": count for state, count in self._ended.items()}
        return {**ended, "firesteel.attempts.without_span": self._left_out}

    def _begin(self, record: StateChange) -> None:
        for place, key in enumerate(_keys(record)):
            at, node = self._begun.get(key, (None, None))
            if at is None and len(self._begun) >= MOST_BEGUN:
                continue
            if record.nodes and record.nodes[place] >= 0:
                node = record.hosts[record.nodes[place]]
            self._begun[key] = (_time(record, place) if at is None else at, node)

    def _end(self, record: StateChange, clock: Clock) -> None:
        odd = record.state != "FINISHED"
        for place, key in enumerate(_keys(record)):
            begun, node = self._begun.pop(key, (None, None))
            mirror = key in self._mirrors
            self._mirrors.discard(key)
            if not self._takes(odd or mirror):
                self._left_out += 1
                continue
            ended = _time(record, place)
            began = record.deployed[place] if record.deployed else begun if begun is not None else ended
            self._write(record, key, (clock.epoch(began), clock.epoch(ended)), node, mirror)

    def _takes(self, odd: bool) -> bool:
        """Takes one from what is left, if there is any."""
        left = self._odd if odd else self._finished
        if not left or not self._spans.attempts_left:
            return False
        self._spans.attempts_left -= 1
        if odd:
            self._odd -= 1
        else:
            self._finished -= 1
        return True

    def _write(
        self, record: StateChange, key: tuple[int, int], times: tuple[float, float], node: str | None, mirror: bool
    ) -> None:
        told = {
            "firesteel.subtask": key[0],
            "firesteel.attempt": key[1],
            "firesteel.attempt.state": record.state,
            "firesteel.node": node,
            **({"firesteel.attempt.mirror": True} if mirror else {}),
            **({"firesteel.cause": record.cause} if record.cause else {}),
        }
        span = self._spans.begin("attempt", times[0], self._vertex, told)
        self._spans.end(span, times[1], failed=record.cause or "failed" if record.state == "FAILED" else None)


def _keys(record: StateChange) -> Iterator[tuple[int, int]]:
    """Subtask and attempt of each execution."""
    return zip(record.subtasks, record.attempts, strict=True)


def _time(record: StateChange, place: int) -> float:
    return record.times[place] if record.times else record.at

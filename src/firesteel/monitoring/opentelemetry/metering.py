"""Metrics of jobs and streams as OpenTelemetry's observable instruments: read from a board when they are collected."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

from firesteel.monitoring.families import COUNTER, FAMILIES, Family, samples
from firesteel.monitoring.numbers import Board, Number, NumbersExporter
from firesteel.monitoring.opentelemetry.providers import api, meter

PREFIX = "firesteel."
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
FRESH_SECONDS = 0.5
"""A reading is as good as new for so long."""


def exporter() -> NumbersExporter:
    """Of one job or stream. Raises UsageError without the library."""
    return NumbersExporter(_board())


@cache
def _board() -> Board:
    """Of all jobs of the process, registered with the meter."""
    board = Board()
    observe(meter(), board)
    return board


def observe(meter: Any, board: Board, fresh: float = FRESH_SECONDS) -> None:
    """Makes an instrument for each family, of which a reading is good for ``fresh`` seconds."""
    observation = api("opentelemetry.metrics").Observation
    readings = _Readings(board, fresh)
    for family in FAMILIES:

        def read(_options: Any, family: Family = family) -> Iterable[Any]:
            return [
                observation(value, dict(zip(family.labels, labels, strict=True)))
                for labels, value in readings.of(family)
            ]

        make = meter.create_observable_counter if family.kind == COUNTER else meter.create_observable_gauge
        make(instrument_name(family), callbacks=[read], description=family.help)


def instrument_name(family: Family) -> str:
    """``firesteel.job.num_restarts``: names are the same in any case there, and words are parted by underscores."""
    scope, _, name = family.name.partition("_")
    return f"{PREFIX}{scope}.{_HUMP.sub('_', name).lower()}"


class _Readings:
    """One reading of the board serves all instruments of a collection: each asks for its part in turn."""

    def __init__(self, board: Board, fresh: float) -> None:
        self._board = board
        self._fresh = fresh
        self._read_at = -math.inf
        self._found: dict[str, list[tuple[tuple[str, ...], Number]]] = {}

    def of(self, family: Family) -> list[tuple[tuple[str, ...], Number]]:
        if time.monotonic() - self._read_at > self._fresh:
            found: dict[str, list[tuple[tuple[str, ...], Number]]] = {}
            for read, labels, value in samples(self._board):
                found.setdefault(read.name, []).append((labels, value))
            self._found, self._read_at = found, time.monotonic()
        return self._found.get(family.name, [])

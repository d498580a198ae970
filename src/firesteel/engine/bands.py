"""Joins of points with intervals: by bands of values, equal ones of which the engine hashes.

Alone it compares each point with every interval of its key. Here an interval has a row for each band that it touches, and a point meets the
intervals of its own band. A band is as wide as intervals are on average, but none is counted as longer than from the first start to the last, and
no band lies beyond these. So there are at most three rows for an interval, and few other intervals in its bands, also where some never end.
An interval without a start or an end, or whose end lies before its start, has no row: no point lies in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LEFT, RIGHT = 0, 1
_MOST = (1 << 62) - 1


KINDS = {LEFT: ("inner", "right"), RIGHT: ("inner", "left", "semi", "anti")}
"""By side, the kinds of joins that give none of its rows without a match: such a row may stand several times."""


@dataclass(frozen=True, slots=True)
class Band:
    """A point between ``low`` and ``high`` of the other side. All are texts that give BIGINT, and order as the values do."""

    point: str
    low: str
    high: str
    intervals: int
    """The side that has the intervals."""


def banded(
    sides: tuple[str, str], aliases: tuple[str, str], band: Band, name: Callable[[str], str]
) -> tuple[str, list[str], str]:
    """Both sides with one more column, and that these are equal.

    ``sides``: rows as FROM takes them; ``aliases``: their names in the texts of ``band``. Returns the WITH clause, the sides in FROM, and the condition.
    """
    held, bounds, column = name("held"), name("bounds"), name("band")
    mine, theirs = aliases[1 - band.intervals], aliases[band.intervals]
    low, high = band.low, band.high
    length = f"least({high}::HUGEINT - {low}, last::HUGEINT - first)"
    wide = f"CAST(greatest(least(coalesce(avg({length}), 1), {_MOST}), 1) AS BIGINT)"
    ends = f"(SELECT min({low}) AS first, max({low}) AS last FROM {held} {theirs})"
    clauses = (
        f"WITH {held} AS MATERIALIZED (SELECT * FROM {sides[band.intervals]} WHERE {low} <= {high}), "
        f"{bounds} AS MATERIALIZED (SELECT any_value(first) AS first, any_value(last) AS last, {wide} AS wide FROM {held} {theirs}, {ends})"
    )

    def number(text: str) -> str:
        return f"greatest({bounds}.first, least({text}, {bounds}.last)) // {bounds}.wide"

    touched = f"unnest(generate_series({number(low)}, {number(high)}))"
    points = f"(SELECT {mine}.*, {number(band.point)} AS {column} FROM {sides[1 - band.intervals]}, {bounds}) {mine}"
    parts = f"(SELECT {theirs}.*, {touched} AS {column} FROM {held} {theirs}, {bounds}) {theirs}"
    found = [points, parts] if band.intervals == RIGHT else [parts, points]
    return clauses, found, f"{mine}.{column} = {theirs}.{column}"

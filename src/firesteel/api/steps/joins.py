"""Joins of plain streams: by equal columns, by conditions that are no equality, by the nearest time, and of all with all."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa

from firesteel.api.steps.common import step_at
from firesteel.api.steps.keyed import Keyed
from firesteel.api.steps.pipeline import Pipeline, pipeline_of
from firesteel.compile import nodes
from firesteel.compile.stream_graph import ChainedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.task.operators.join import (
    DIRECTIONS,
    HOWS,
    OPERATORS,
    RIGHT,
    BroadcastJoin,
    Comparison,
    HashJoin,
    Nearest,
    build_sides,
    check_comparison,
    check_times,
    join_kind,
    join_schema,
)
from firesteel.task.operators.relational import check_columns

_SIDE = "the right side"
_HOW_TO = (
    'Write "k", ["k", "l"], [("id", "user_id")] for different names, or [("time", ">=", "start")] for a condition.'
)


def join(  # noqa: PLR0917
    left: Pipeline, other: object, on: Any, how: str, left_on: Any, right_on: Any, suffix: str, broadcast: str | None
) -> Pipeline:
    with step_at("join") as place:
        right = _other(left, other, "join")
        pairs, conditions = _compared(on, left_on, right_on)
        sides = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        for schema, names, side in zip((left.schema, right.schema), sides, ("left", "right"), strict=True):
            check_columns(schema, names, f"the {side} side of the join")
            if len(set(names)) != len(names):
                raise UsageError(f"join names a column of the {side} side twice: {', '.join(names)}.")
        for one in conditions:
            check_comparison(left.schema, right.schema, one)
        if pairs:
            edges = Keyed(left, sides[0]).edge(), Keyed(right, sides[1]).edge()
            return left.at(nodes.join(*edges, how, suffix, broadcast, place, conditions))
        if broadcast is not None:
            raise UsageError(
                f"broadcast={broadcast!r} is for joins by equal columns.",
                hint="Without any, the right side is given whole to every task in any case.",
            )
        return _against_all(left, right, conditions, join_kind(how), suffix, place)


def cross_join(left: Pipeline, other: object, suffix: str) -> Pipeline:
    with step_at("cross_join") as place:
        right = _other(left, other, "cross_join")
        return _against_all(left, right, (), "inner", suffix, place)


def join_asof(  # noqa: PLR0917
    left: Pipeline,
    other: object,
    on: Any,
    by: Any,
    direction: str,
    tolerance: Any,
    exact: bool,
    how: str,
    suffix: str,
) -> Pipeline:
    with step_at("join_asof") as place:
        right = _other(left, other, "join_asof")
        times = _pair(on)
        if times is None:
            raise UsageError(
                f"on={on!r} does not name the column of the time.", hint='Write on="time" or on=("time", "at").'
            )
        pairs, conditions = _compared(by, None, None) if by is not None else ([], ())
        if conditions:
            raise UsageError("by= takes equal columns only.", hint='Write by="k" or by=[("id", "user_id")].')
        if direction not in DIRECTIONS:
            raise UsageError(f"direction={direction!r} is not known.", hint=f"There are {', '.join(DIRECTIONS)}.")
        kind = join_kind(how)
        if kind not in ("left", "inner"):
            raise UsageError(f"There is no as-of join of kind '{how}'.", hint="There are left and inner.")
        distance = _distance(tolerance, check_times(left.schema, right.schema, times), times)
        left_by, right_by = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        once = (times[1],) if times[0] == times[1] else ()
        # the time of a common name comes once, from the left: as if it were a key
        alike = (*left_by, *once), (*right_by, *once)
        schema = join_schema(left.schema, right.schema, *alike, kind, suffix)
        nearest = Nearest(times, direction, distance, exact)
        name = f"as-of join ({direction})"
        joined = HashJoin(name, kind, left_by, right_by, left.schema, right.schema, schema, nearest=nearest)
        if not left_by:
            return _whole(left, right, joined, place)
        return left.at(nodes.keyed_join(Keyed(left, left_by).edge(), Keyed(right, right_by).edge(), joined, place))


def _against_all(  # noqa: PLR0917
    left: Pipeline, right: Pipeline, conditions: tuple[Comparison, ...], kind: str, suffix: str, place: str
) -> Pipeline:
    if RIGHT not in build_sides(kind):
        raise UsageError(
            f"A {kind} join wants equal columns beside its conditions: without, every task has the whole right side, and would "
            "give its rows without a match.",
            hint=f"Add equal columns to on=, or use one of {', '.join(one for one in HOWS if RIGHT in build_sides(one))}.",
        )
    schema = join_schema(left.schema, right.schema, (), (), kind, suffix)
    name = nodes.join_name(kind, conditions) if conditions else "cross join"
    joined = HashJoin(name, kind, (), (), left.schema, right.schema, schema, conditions)
    return _whole(left, right, joined, place)


def _whole(left: Pipeline, right: Pipeline, join: HashJoin, place: str) -> Pipeline:
    """The left rows, with the right side whole in every task."""
    side = (_SIDE, StreamEdge(right.node, ShipStrategy.BROADCAST))
    work = ChainedStep(BroadcastJoin(join, RIGHT, _SIDE))
    return left.at(StreamNode(join.name, work, join.schema, (left.edge(),), (side,), place))


# --- what a user wrote ----------------------------------------------------------------------------------------------


def _other(left: Pipeline, other: object, step: str) -> Pipeline:
    right = pipeline_of(other)
    if right is None:
        keyed = getattr(other, "_keyed", None) is not None
        hint = f'Write {step}(other, "k") of two streams, or a.key_by("k").join(b.key_by("k")).' if keyed else None
        raise UsageError(f"{step} wants a stream, not {type(other).__name__}.", hint=hint)
    left.check_same_environment(right)
    left.refuse_sides(step)
    right.refuse_sides(step)
    return right


def _compared(on: Any, left_on: Any, right_on: Any) -> tuple[list[tuple[str, str]], tuple[Comparison, ...]]:
    """Pairs of equal columns, and the conditions."""
    if (left_on is None) != (right_on is None) or (on is None) == (left_on is None):
        raise UsageError(
            "A join wants on=, or both left_on= and right_on=.", hint=f"{_HOW_TO} Of all with all: cross_join(other)."
        )
    if on is None:
        names = [_names(value) for value in (left_on, right_on)]
        if len(names[0]) != len(names[1]):
            raise UsageError(f"left_on names {len(names[0])} columns, right_on {len(names[1])}.")
        on = list(zip(*names, strict=True))
    items = cast(list[Any], on) if isinstance(on, list) else [on]
    if not items or (isinstance(on, tuple) and len(cast(tuple[Any, ...], on)) < 3):
        raise UsageError(f"on={on!r} is not clear.", hint=_HOW_TO)
    pairs: list[tuple[str, str]] = []
    conditions: list[Comparison] = []
    for item in items:
        pair = _pair(item)
        if pair is not None:
            pairs.append(pair)
        elif isinstance(item, tuple) and len(item) == 3 and all(isinstance(part, str) for part in item):
            first, operator, second = cast(tuple[str, str, str], item)
            if operator in ("=", "=="):
                pairs.append((first, second))
            elif operator in OPERATORS:
                conditions.append(Comparison(first, operator, second))
            else:
                raise UsageError(
                    f"{item!r}: there is no condition '{operator}'.", hint=f"There are =, {', '.join(OPERATORS)}."
                )
        else:
            raise UsageError(f"A join compares columns by their names, not {item!r}.", hint=_HOW_TO)
    return pairs, tuple(conditions)


def _pair(item: Any) -> tuple[str, str] | None:
    if isinstance(item, str):
        return item, item
    if isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return cast(tuple[str, str], item)
    return None


def _names(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else list(cast(Sequence[Any], value))
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"left_on= and right_on= want names of columns, not {value!r}.")
    return names


def _distance(tolerance: Any, type_: Any, times: tuple[str, str]) -> Any:
    """The tolerance in units of the type in which ``times`` are compared."""
    if tolerance is None:
        return None
    timed = pa.types.is_temporal(type_)
    wanted = isinstance(tolerance, timedelta) if timed else isinstance(tolerance, int | float)
    whole = pa.types.is_floating(type_) or timed or isinstance(tolerance, int)
    if not wanted or isinstance(tolerance, bool) or not whole:
        kind = "a timedelta" if timed else "a number" if pa.types.is_floating(type_) else "a whole number"
        between = f"'{times[0]}' is" if times[0] == times[1] else f"'{times[0]}' and '{times[1]}' are"
        raise UsageError(
            f"tolerance={tolerance!r} must be {kind}: {between} compared as {type_}.",
            hint="Write tolerance=timedelta(minutes=5), after from datetime import timedelta."
            if timed
            else "Write tolerance=5.",
        )
    if not tolerance >= type(tolerance)(0):
        raise UsageError(
            f"tolerance={tolerance!r} is negative.", hint="It is a distance; direction= says on which side."
        )
    if not isinstance(tolerance, timedelta):
        if not pa.types.is_floating(type_):
            return min(tolerance, 1 << 64)
        return float(tolerance) if tolerance <= sys.float_info.max else math.inf
    if pa.types.is_date(type_):
        return tolerance.days
    return (tolerance // timedelta(microseconds=1)) * (1000 if type_.unit == "ns" else 1)

"""Aggregates of which only Spark can work out some: those by Spark, the others as ever, and both side by side by their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from firesteel.api.connectors.spark_columns import by_spark, fresh_names, quoted, quoted_text
from firesteel.api.steps import keyed
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.aggregates.grouping_sets import GroupingSets
from firesteel.api.steps.aggregates.pivot import Pivot, said
from firesteel.api.steps.aggregates.written import calls, prepared
from firesteel.api.steps.common import NotTranslated, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.projection import project
from firesteel.api.steps.spark_columns import is_spark_column
from firesteel.compile.relations.groups import side_by_side
from firesteel.errors import UsageError
from firesteel.task.expressions import column

Written = Sequence[tuple[str, AggregateCall]]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of a pipeline's rows, and what aggregates them: ``ours`` by steps, ``theirs`` a DataFrame of the rows with Columns of Spark. Both
    give ``keys``, one row for each, then all aggregates for each of ``labels``, with which their names begin."""

    pipeline: Pipeline
    keys: tuple[str, ...]
    ours: Callable[[Written, str], Pipeline]
    theirs: Callable[[Any, Sequence[Any]], Any]
    labels: tuple[str, ...] = ("",)
    unwanted: str | None = None
    """A key that only tells rows apart."""

    def wanted(self) -> list[str]:
        return [key for key in self.keys if key != self.unwanted]


def aggregate(pipeline: Pipeline, keys: tuple[str, ...], given: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
    """Without keys: of all rows."""
    pipeline, given, named = _with_conditions(pipeline, given, named)
    try:
        return keyed.aggregate(pipeline, keys, given, named)
    except NotTranslated:
        with step_at("aggregate") as place:
            return _aggregated(_by_keys(pipeline, keys), given, named, place)


def aggregate_groups(groups: GroupingSets | Pivot, given: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
    pipeline, given, named = _with_conditions(groups.pipeline, given, named)
    groups = groups.over(pipeline)
    try:
        return groups.aggregate(given, named)
    except NotTranslated:
        found = _by_sets(groups) if isinstance(groups, GroupingSets) else _by_values(groups)
        step = groups.step if isinstance(groups, GroupingSets) else "pivot"
        with step_at(f"{step}.aggregate") as place:
            return _aggregated(found, given, named, place)


# --- conditions in SQL ----------------------------------------------------------------------------------------------


def _with_conditions(
    pipeline: Pipeline, given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Pipeline, Sequence[Any], Mapping[str, Any]]:
    """The rows with one column more for each condition in SQL that aggregates have, and the aggregates with its name in the text's place.
    As in ``select``, a text is SQL where it is neither a column's name nor could be a mistaken one."""
    calls_given = [one for _, one in _items(given, named) if isinstance(one, AggregateCall)]
    wanted = [one.condition for one in calls_given if isinstance(one.condition, str)]
    texts = [text for text in dict.fromkeys(wanted) if text not in pipeline.names and not text.isidentifier()]
    if not texts:
        return pipeline, given, named
    columns = dict(zip(texts, fresh_names("__condition", len(texts), pipeline.names), strict=True))
    with step_at("aggregate") as place:
        made = by_spark(pipeline, "aggregate", lambda frame: _beside(frame, columns), place)
        for text, name in columns.items():
            type_ = made.schema.field(name).type
            if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
                raise UsageError(
                    f"A filter must be true or false, but '{text}' is {type_}.", hint="Compare it with something."
                )

    def settled(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {output: settled(call) for output, call in cast(Mapping[str, Any], one).items()}
        if not isinstance(one, AggregateCall) or not isinstance(one.condition, str):
            return one
        return replace(one, condition=columns.get(one.condition, one.condition))

    return made, [settled(one) for one in given], settled(named)


def _beside(frame: Any, columns: Mapping[str, str]) -> Any:
    """``columns``: from SQL to the name of its column."""
    from pyspark.sql import functions

    return frame.select("*", *(functions.expr(text).alias(name) for text, name in columns.items()))


# --- ways to group --------------------------------------------------------------------------------------------------


def _by_keys(pipeline: Pipeline, keys: tuple[str, ...]) -> _Groups:
    def ours(written: Written, place: str) -> Pipeline:
        return keyed.aggregated(pipeline, keys, prepared(written, pipeline.schema, "aggregate"), place)

    return _Groups(pipeline, keys, ours, lambda frame, columns: frame.groupBy(*map(quoted, keys)).agg(*columns))


def _by_sets(groups: GroupingSets) -> _Groups:
    (unwanted,) = fresh_names("__grouping_id", 1, groups.pipeline.names)
    number = groups.number or unwanted

    def theirs(frame: Any, columns: Sequence[Any]) -> Any:
        from pyspark.sql import functions

        sets = [[quoted(key) for key in one] for one in groups.sets]
        by_set = frame.groupingSets(sets, *map(quoted, groups.keys))
        return by_set.agg(functions.grouping_id().alias(number), *columns)

    ours = replace(groups, number=number).aggregated
    return _Groups(groups.pipeline, (*groups.keys, number), ours, theirs, unwanted=None if groups.number else unwanted)


def _by_values(groups: Pivot) -> _Groups:
    def theirs(frame: Any, columns: Sequence[Any]) -> Any:
        by_value = frame.groupBy(*map(quoted, groups.keyed.keys)).pivot(quoted_text(groups.column), list(groups.values))
        return by_value.agg(*columns)

    labels = tuple(f"{said(value)}_" for value in groups.values)
    return _Groups(groups.pipeline, groups.keyed.keys, groups.aggregated, theirs, labels)


# --- both kinds -----------------------------------------------------------------------------------------------------


def _aggregated(groups: _Groups, given: Sequence[Any], named: Mapping[str, Any], place: str) -> Pipeline:
    items = list(_items(given, named))
    columns = [one if name is None else one.alias(name) for name, one in items if is_spark_column(one)]
    if len(columns) < len(items):
        return _side_by_side(groups, items, columns, place)
    out = by_spark(groups.pipeline, "aggregate", lambda frame: groups.theirs(frame, columns), place)
    if groups.unwanted is None:
        return out
    return project(out, "aggregate", [(n, column(n)) for n in out.names if n != groups.unwanted], place)


def _items(given: Sequence[Any], named: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
    for one in (*given, named):
        if isinstance(one, Mapping):
            yield from cast(Mapping[str, Any], one).items()
        else:
            yield None, one


def _side_by_side(
    groups: _Groups, items: Sequence[tuple[str | None, Any]], columns: Sequence[Any], place: str
) -> Pipeline:
    """The rows are read twice, and grouped by Spark's aggregates and by ours; then rows of the same keys are put together."""
    schema, many = groups.pipeline.schema, len(groups.labels)
    written: list[tuple[str, AggregateCall]] = []
    order: list[tuple[bool, int]] = []
    """Of each aggregate whether it is Spark's, and which."""
    for name, one in items:
        if is_spark_column(one):
            order.append((True, sum(is_theirs for is_theirs, _ in order)))
            continue
        for call in (
            calls((one,), {}, "aggregate", schema) if name is None else calls((), {name: one}, "aggregate", schema)
        ):
            order.append((False, len(written)))
            written.append(call)
    ours_as = fresh_names("__ours", many * len(written), groups.keys)
    theirs_as = fresh_names("__spark", many * len(columns), groups.keys)
    spoken: list[str] = []

    def made(frame: Any) -> Any:
        out = groups.theirs(frame, columns)
        named = out if groups.labels == ("",) else frame.agg(*columns)
        spoken[:] = named.columns[-len(columns) :]
        return out.toDF(*groups.keys, *theirs_as)

    theirs = by_spark(groups.pipeline, "aggregate", made, place)
    ours = groups.ours(written, place)
    pairs = zip([*groups.keys, *ours_as], ours.names, strict=True)
    ours = project(ours, "aggregate", [(name, column(own)) for name, own in pairs], place)
    both = ours.at(side_by_side(ours.node, theirs.node, groups.keys, place))
    chosen = [(key, column(key)) for key in groups.wanted()]
    for number, label in enumerate(groups.labels):
        for is_theirs, which in order:
            name, hidden, each = (
                (spoken[which], theirs_as, len(columns)) if is_theirs else (written[which][0], ours_as, len(written))
            )
            chosen.append((f"{label}{name}", column(hidden[number * each + which])))
    return project(both, "aggregate", chosen, place)

"""Steps with Columns of PySpark: translated where that is cheap and means the same, else analysed and optimised by Spark.

What ``steps.spark_columns`` translates needs neither Spark nor an engine while the job runs. Any other Column goes the way of SQL text
(``dataframes``): Spark's plan of it, over a stand-in of the stream, is computed by our own tasks as far as they give Spark's answers, and by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.connectors.dataframes import of_streams
from firesteel.api.steps import functions, keyed, projection
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.common import NotTranslated, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import is_spark_column
from firesteel.connectors.files.paths import first_line
from firesteel.errors import UsageError
from firesteel.task.expressions import plain_column

_ROWS = "rows"


def select(pipeline: Pipeline, columns: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
    """A text that is neither a column's name nor could be a mistaken one is an expression in SQL."""
    flat = [
        one for given in columns for one in (cast(Sequence[Any], given) if isinstance(given, list | tuple) else [given])
    ]
    known = set(pipeline.names)
    texts = [isinstance(one, str) and one != "*" and one not in known and not one.isidentifier() for one in flat]
    if not any(texts):
        try:
            return projection.select(pipeline, columns, named)
        except NotTranslated:
            pass
    with step_at("select") as place:
        chosen = [_chosen(pipeline, one, is_text) for one, is_text in zip(flat, texts, strict=True)]
        chosen += [_chosen(pipeline, one, False, name) for name, one in named.items()]
        if any(one is None for one in chosen):
            raise _mixed("Write two steps, with_column() for the one kind and select() for the other.")
        return _by_spark(pipeline, "select", lambda frame: frame.select(*chosen), place)


def with_columns(pipeline: Pipeline, new: Any, named: Mapping[str, Any]) -> Pipeline:
    try:
        return projection.with_columns(pipeline, new, named)
    except NotTranslated:
        return _with(pipeline, "with_columns", {**(new or {}), **named})


def with_column(pipeline: Pipeline, name: str, expression: Any) -> Pipeline:
    try:
        return projection.with_column(pipeline, name, expression)
    except NotTranslated:
        return _with(pipeline, "with_column", {name: expression})


def _with(pipeline: Pipeline, step: str, new: Mapping[str, Any]) -> Pipeline:
    with step_at(step) as place:
        if not all(map(is_spark_column, new.values())):
            raise _mixed("Write a with_column() for each kind.")
        names = dict.fromkeys([*pipeline.names, *new])
        made = [new[name].alias(name) if name in new else _quoted(name) for name in names]
        return _by_spark(pipeline, step, lambda frame: frame.select(*made), place)


def _mixed(hint: str) -> UsageError:
    return UsageError(
        "A Column that only Spark can work out stands beside expressions of Firesteel or Arrow in one step.", hint=hint
    )


def filter_rows(pipeline: Pipeline, condition: Any, errors: functions.OnErrorWords) -> Pipeline:
    try:
        return functions.filter_rows(pipeline, condition, errors)
    except NotTranslated:
        with step_at("filter") as place:
            return _by_spark(pipeline, "filter", lambda frame: frame.filter(condition), place)


def aggregate(pipeline: Pipeline, keys: tuple[str, ...], given: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
    pipeline, given, named = with_conditions(pipeline, given, named)
    try:
        return keyed.aggregate(pipeline, keys, given, named)
    except NotTranslated:
        with step_at("aggregate") as place:
            return _aggregated(pipeline, keys, given, named, place)


def _aggregated(
    pipeline: Pipeline, keys: tuple[str, ...], given: Sequence[Any], named: Mapping[str, Any], place: str
) -> Pipeline:
    columns: list[Any] = []
    for one in (*given, named):
        if isinstance(one, Mapping):
            columns += [c.alias(name) if is_spark_column(c) else c for name, c in one.items()]
        else:
            columns.append(one)
    if not all(map(is_spark_column, columns)):
        raise _mixed("Write all aggregates with pyspark.sql.functions.")
    by = [_quoted(key) for key in keys]
    return _by_spark(pipeline, "aggregate", lambda frame: frame.groupBy(*by).agg(*columns), place)


def with_conditions(
    pipeline: Pipeline, given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Pipeline, Sequence[Any], Mapping[str, Any]]:
    """The rows with one column more for each condition in SQL that aggregates have, and the aggregates with its name in the text's place.
    As in ``select``, a text is SQL where it is neither a column's name nor could be a mistaken one."""
    texts: dict[str, str] = {}

    def settled(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {output: settled(call) for output, call in cast(Mapping[str, Any], one).items()}
        text = one.condition if isinstance(one, AggregateCall) else None
        if not isinstance(text, str) or text in pipeline.names or text.isidentifier():
            return one
        return replace(one, condition=texts.setdefault(text, _free_name(pipeline, len(texts))))

    given, named = [settled(one) for one in given], settled(named)
    if not texts:
        return pipeline, given, named
    with step_at("aggregate") as place:
        from pyspark.sql import functions

        made = _by_spark(
            pipeline,
            "aggregate",
            lambda frame: frame.select("*", *(functions.expr(text).alias(name) for text, name in texts.items())),
            place,
        )
        for text, name in texts.items():
            type_ = made.schema.field(name).type
            if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
                raise UsageError(
                    f"A filter must be true or false, but '{text}' is {type_}.", hint="Compare it with something."
                )
    return made, given, named


def _free_name(pipeline: Pipeline, number: int) -> str:
    name = f"__condition{number}"
    while name in pipeline.names:
        name = f"_{name}"
    return name


def _by_spark(pipeline: Pipeline, step: str, make: Callable[[Any], Any], place: str) -> Pipeline:
    def made(frames: Mapping[str, Any]) -> Any:
        try:
            return make(frames[_ROWS])
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"Spark does not take this: {first_line(error)}") from error

    return of_streams(pipeline.env, step, {_ROWS: pipeline}, made, place)


def _chosen(pipeline: Pipeline, given: Any, is_text: bool, name: str | None = None) -> Any:
    """The Spark Column of what a user selects; None for an expression of Arrow or of Firesteel."""
    if isinstance(given, pc.Expression):
        given = plain_column(given, pipeline.schema)
    if isinstance(given, str):
        from pyspark.sql import functions

        known = given == "*" or is_text or given in pipeline.names
        if not known:
            projection.select(pipeline, [given], {})  # says which name was meant
        given = functions.expr(given) if is_text else "*" if given == "*" else _quoted(given)
    elif given is not None and not is_spark_column(given):
        return None
    return given if name is None or given is None else given.alias(name)


def _quoted(name: str) -> Any:
    """A Column of just this name, whatever is in it."""
    from pyspark.sql import functions

    return functions.col(f"`{name.replace('`', '``')}`")

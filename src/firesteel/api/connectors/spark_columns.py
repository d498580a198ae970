"""Steps with Columns of PySpark: translated where that is cheap and means the same, else analysed and optimised by Spark.

What ``steps.spark_columns`` translates needs neither Spark nor an engine while the job runs. Any other Column goes the way of SQL text
(``dataframes``): Spark's plan of it, over a stand-in of the stream, is computed by our own tasks as far as they give Spark's answers, and by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.connectors.dataframes import carried, of_streams
from firesteel.api.steps import functions, projection
from firesteel.api.steps.common import NotTranslated, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import is_spark_column
from firesteel.connectors.files.paths import first_line
from firesteel.errors import UsageError
from firesteel.task.expressions import column, plain_column

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
        items = [item for one, is_text in zip(flat, texts, strict=True) for item in _selected(pipeline, one, is_text)]
        items += named.items()
        return _computed(pipeline, "select", items, place)


def with_columns(pipeline: Pipeline, new: Any, named: Mapping[str, Any], *, step: str = "with_columns") -> Pipeline:
    try:
        return projection.with_columns(pipeline, new, named, step=step)
    except NotTranslated:
        given = {**(new or {}), **named}
        with step_at(step) as place:
            names = dict.fromkeys([*pipeline.names, *given])
            return _computed(pipeline, step, [(name, given.get(name, column(name))) for name in names], place)


def with_column(pipeline: Pipeline, name: str, expression: Any) -> Pipeline:
    with step_at("with_column"):
        projection.check_name(name)
    return with_columns(pipeline, {name: expression}, {}, step="with_column")


def _selected(pipeline: Pipeline, given: Any, is_text: bool) -> list[tuple[str | None, Any]]:
    """Returns names (None: its own) and Columns or expressions for one thing that a user selects."""
    if is_text:
        from pyspark.sql import functions

        return [(None, functions.expr(given))]
    if not isinstance(given, str):
        return [(None, given)]
    if given != "*" and given not in pipeline.names:
        projection.select(pipeline, [given], {})  # says which name was meant
    return [(name, column(name)) for name in (pipeline.names if given == "*" else [given])]


def _computed(pipeline: Pipeline, step: str, items: Sequence[tuple[str | None, Any]], place: str) -> Pipeline:
    """Columns of which only Spark can work out some: Spark's over all rows first, beside the columns that ours read, then ours."""
    schema = pipeline.schema
    theirs = [one if name is None else one.alias(name) for name, one in items if is_spark_column(one)]
    ours = [projection.named_expression_of(schema, name, one, step) for name, one in items if not is_spark_column(one)]
    if all(isinstance(one, pc.Expression) and plain_column(one, schema) for _, one in ours):
        chosen = [_as_sparks(schema, name, one) for name, one in items]
        return by_spark(pipeline, step, lambda frame: frame.select(*chosen), place)
    projection.projected(schema, ours)  # says what is wrong before Spark is asked
    reads = projection.read_by(schema, [one for _, one in ours])
    kept = [name for name in schema.names if name in reads]
    spoken: list[list[str]] = []
    hidden: list[str] = []

    def made(frame: Any) -> Any:
        spoken[:] = [frame.select(one).columns for one in theirs]  # a generator makes several
        hidden[:] = fresh_names("__spark", sum(map(len, spoken)), kept)
        return frame.select(*map(quoted, kept), *theirs).toDF(*kept, *hidden)

    out = by_spark(pipeline, step, made, place)
    named, places = iter(spoken), iter(hidden)
    pairs: list[tuple[str, projection.Computed]] = []
    for name, one in items:
        if is_spark_column(one):
            pairs += [(output, column(next(places))) for output in next(named)]
        else:
            pairs.append(projection.named_expression_of(out.schema, name, one, step))
    return projection.project(out, step, pairs, place)


def _as_sparks(schema: pa.Schema, name: str | None, one: Any) -> Any:
    if not is_spark_column(one):
        output, expression = projection.named_expression_of(schema, name, one, "select")
        plain = str(plain_column(cast(pc.Expression, expression), schema))
        return quoted(plain) if plain == output else quoted(plain).alias(output)
    return one if name is None else one.alias(name)


def filter_rows(pipeline: Pipeline, condition: Any, errors: functions.OnErrorWords) -> Pipeline:
    try:
        return functions.filter_rows(pipeline, condition, errors)
    except NotTranslated:
        with step_at("filter") as place:

            def make(frame: Any) -> Any:
                return frame.filter(condition)

            return carried(pipeline, str(condition), make, lambda given: by_spark(given, "filter", make, place), place)


def by_spark(pipeline: Pipeline, step: str, make: Callable[[Any], Any], place: str) -> Pipeline:
    """The step by ``make``, which gets a DataFrame of the rows and returns another one. Raises UsageError in Spark's words."""

    def made(frames: Mapping[str, Any]) -> Any:
        try:
            return make(frames[_ROWS])
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"Spark does not take this: {first_line(error)}") from error

    return of_streams(pipeline.env, step, {_ROWS: pipeline}, made, place)


def quoted(name: str) -> Any:
    """A Column of just this name, whatever is in it."""
    from pyspark.sql import functions

    return functions.col(quoted_text(name))


def quoted_text(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def fresh_names(prefix: str, count: int, taken: Sequence[str]) -> list[str]:
    """So many names that no column has yet, nor one that differs in capitals only, as Spark takes them for the same."""
    known = {name.lower() for name in taken}
    while any(f"{prefix}{number}" in known for number in range(count)):
        prefix = f"_{prefix}"
    return [f"{prefix}{number}" for number in range(count)]

"""Parts that all steps share: the place of a step in its errors, side inputs, aggregations as users write them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa

from firesteel.api.caller import caller_place, function_name
from firesteel.api.steps.spark_columns import aggregation, is_spark_column
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.task.operators.aggregation.aggregate import Aggregation


@contextmanager
def step_at(kind: str) -> Generator[str]:
    """Gives the user's ``file:line``; a UsageError inside gets the step and that place into its message."""
    place = caller_place()
    try:
        yield place
    except UsageError as error:
        at = f" at {place}" if place else ""
        raise UsageError(f"In step '{kind}'{at}: {error.message}", hint=error.hint) from None


def require_function(function: Any, kind: str) -> str:
    """The function's name for messages. Raises UsageError when it cannot be called."""
    if not callable(function):
        raise UsageError(f"{kind} wants a function, not {function!r}.")
    return function_name(function)


def require_count(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return value


def aggregations(
    given: Sequence[Any], named: Mapping[str, Any], kind: str, schema: pa.Schema
) -> tuple[Aggregation, ...]:
    """``{"n": "sum"}`` (n becomes the sum of n), ``{"total": ("n", "sum")}``, ``{"n": ["min", "max"]}`` (n_min, n_max), or
    aggregates of PySpark that can be translated. ``schema``: of the rows."""
    found: list[Aggregation] = []
    for one in (*given, named):
        if is_spark_column(one):
            found.append(aggregation(one, kind, schema))
        elif isinstance(one, Mapping):
            for output, what in cast(Mapping[str, Any], one).items():
                found += (
                    [aggregation(what, kind, schema, output)] if is_spark_column(what) else _aggregation(output, what)
                )
        else:
            raise UsageError(
                f"{kind} wants a mapping of output columns to functions, not {one!r}.",
                hint='Write {"n": "sum"} or {"total": ("n", "sum")}.',
            )
    if not found:
        raise UsageError(
            f"{kind} has nothing to aggregate.", hint='Write {"n": "sum"}, or distinct() for the keys alone.'
        )
    twice = named_twice(aggregation.output for aggregation in found)
    if twice is not None:
        raise UsageError(f"{kind} makes the column '{twice}' twice.", hint="Give one of them another name.")
    return tuple(found)


def _aggregation(output: str, what: Any) -> list[Aggregation]:
    if isinstance(what, str):
        return [Aggregation(output, what, output)]
    if isinstance(what, list) and all(isinstance(function, str) for function in what):
        return [Aggregation(output, function, f"{output}_{function}") for function in what]
    if isinstance(what, tuple) and len(what) == 2 and all(isinstance(part, str) for part in what):
        return [Aggregation(what[0], what[1], output)]
    raise UsageError(
        f"The aggregation {output!r}: {what!r} cannot be understood.",
        hint='Write {"n": "sum"}, {"total": ("n", "sum")} or {"n": ["min", "max"]}.',
    )


def same_columns(first: pa.Schema, others: Sequence[pa.Schema], kind: str) -> pa.Schema:
    """The schema of a union: names and types must agree, a column is nullable if it is in any. Raises UsageError."""
    fields: list[Any] = list(first)
    for number, other in enumerate(others, 2):
        if other.names != first.names:
            raise UsageError(
                f"{kind}: stream 1 has the columns {', '.join(first.names)}; stream {number} has {', '.join(other.names)}.",
                hint="Bring them in line with select().",
            )
        for i, field in enumerate(other):
            if field.type != fields[i].type:
                raise UsageError(
                    f"{kind}: column '{field.name}' is {fields[i].type} in stream 1 and {field.type} in stream {number}.",
                    hint=f'Cast one of them: with_column("{field.name}", col("{field.name}").cast(...)).',
                )
            fields[i] = fields[i].with_nullable(fields[i].nullable or field.nullable)
    return pa.schema(fields)

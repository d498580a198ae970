"""Steps that call a function of the user: on batches, on frames, or row by row, which costs about a hundred times as much."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import index
from typing import Any

import pyarrow.compute as pc

from firesteel.api.column import Column
from firesteel.api.ddl import to_schema
from firesteel.api.steps.common import (
    OnErrorWords,
    on_error,
    on_group_error,
    plain_function,
    require_count,
    settable_function,
    step_at,
)
from firesteel.api.steps.pipeline import Pipeline, pipeline_of
from firesteel.api.steps.projection import expression_of, where
from firesteel.api.steps.spark_columns import is_spark_column
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.options.registry import parse_seconds, parse_size
from firesteel.task.batches import DEFAULT_SIZE, BatchSize, nullable
from firesteel.task.functions.batch_functions import MapInArrow, MapInPandas
from firesteel.task.functions.row_errors import NULL, OnError
from firesteel.task.functions.row_functions import FilterRows, FlatMapRows, MapRows
from firesteel.task.functions.rows import check_row_schema
from firesteel.task.operators.aggregation.reduce import Reduce, ReduceCombiner, ReduceGroups
from firesteel.task.operators.relational import Filter, as_expression, check_filter
from firesteel.task.program import Operator
from firesteel.task.services.calls import CallPolicy
from firesteel.task.services.map_async import MapAsync


@dataclass(frozen=True, slots=True)
class Reading:
    """The way in which a function gets its batches. ``batch_size``: rows, or bytes as text ("8 MiB"); None: as is best for most.
    ``prefetch``: batches read while it computes."""

    batch_size: Any = None
    prefetch: Any = 0

    def checked(self) -> dict[str, Any]:
        """As operators take it. Raises UsageError."""
        return {"size": batch_size(self.batch_size), "prefetch": require_count(self.prefetch, "prefetch", 0)}


def batch_size(given: Any) -> BatchSize:
    """Raises UsageError for one that is no size."""
    try:
        match given:
            case None:
                return DEFAULT_SIZE
            case str():
                size = BatchSize(nbytes=parse_size(given))
            case bool() | float():
                raise ValueError
            case _:
                size = BatchSize(rows=index(given))
        if (size.rows or size.nbytes or 0) < 1:
            raise ValueError
        return size
    except (TypeError, ValueError):
        raise UsageError(
            f"batch_size={given!r} is no size of a batch.", hint='Give rows, 1000, or bytes as text, "8 MiB".'
        ) from None


def map_in_arrow(  # noqa: PLR0917
    pipeline: Pipeline, func: Any, schema: Any, by_position: bool, errors: OnErrorWords, reading: Reading
) -> Pipeline:
    made = partial(MapInArrow, by_position=by_position)
    return _mapped(pipeline, "map_in_arrow", made, func, schema, errors, reading)


def map_in_pandas(pipeline: Pipeline, func: Any, schema: Any, errors: OnErrorWords, reading: Reading) -> Pipeline:
    return _mapped(pipeline, "map_in_pandas", MapInPandas, func, schema, errors, reading)


def map_rows(pipeline: Pipeline, func: Any, schema: Any, errors: OnErrorWords) -> Pipeline:
    return _mapped(pipeline, "map", MapRows, func, schema, errors)


def flat_map_rows(pipeline: Pipeline, func: Any, schema: Any, errors: OnErrorWords) -> Pipeline:
    return _mapped(pipeline, "flat_map", FlatMapRows, func, schema, errors)


def map_async(pipeline: Pipeline, func: Any, schema: Any, errors: OnErrorWords, **settings: Any) -> Pipeline:
    """``settings``: as of :func:`call_settings`."""
    with step_at("map_async"):
        made = partial(MapAsync, **call_settings(func, **settings))
    return _mapped(pipeline, "map_async", made, func, schema, errors)


def _mapped(  # noqa: PLR0917
    pipeline: Pipeline,
    step: str,
    made: Callable[..., Operator],
    func: Any,
    schema: Any,
    errors: OnErrorWords,
    reading: Reading | None = None,
) -> Pipeline:
    """``reading``: None: ``func`` is called row by row."""
    with step_at(step) as place:
        name, func = settable_function(func, step)
        kind = f"{step}({name})"
        out = to_schema(schema)
        policy = on_error(step, errors, pipeline.schema, out)
        if reading is None or policy.action == NULL:
            check_row_schema(out)
        batches = {} if reading is None else reading.checked()
        work = ChainedStep(made(kind, func, out, pipeline.side_names, on_error=policy, **batches))
        return pipeline.then(kind, work, out, place, with_sides=True)


def filter_rows(pipeline: Pipeline, condition: Any, errors: OnErrorWords) -> Pipeline:
    """By an expression, of Arrow or PySpark, or by a function of a row."""
    with step_at("filter") as place:
        if isinstance(condition, Column) or is_spark_column(condition):
            condition = expression_of(pipeline.schema, condition, "filter")
        policy = on_error("filter", errors, pipeline.schema, None)
        if callable(condition) and not isinstance(condition, pc.Expression | Column):
            return _filter_by_function(pipeline, condition, place, policy)
        if not policy.fails:
            raise UsageError(
                f"on_error={policy.action!r} is for functions of a row; this condition is an expression.",
                hint="Write the filter as a function: filter(lambda row: ..., on_error=...).",
            )
        if isinstance(condition, Column):
            return where(pipeline, condition, place)
        pipeline.refuse_sides("filter")
        expression = as_expression(condition)
        check_filter(pipeline.schema, expression)
        work = ChainedStep(Filter("filter", expression), pipeline.unchanged, None, expression)
        return pipeline.then("filter", work, pipeline.schema, place)


def _filter_by_function(pipeline: Pipeline, func: Callable[..., Any], place: str, policy: OnError) -> Pipeline:
    name, func = settable_function(func, "filter")
    kind = f"filter({name})"
    operator = FilterRows(kind, func, pipeline.schema, pipeline.side_names, on_error=policy)
    return pipeline.then(kind, ChainedStep(operator, pipeline.unchanged), pipeline.schema, place, with_sides=True)


def reduce(pipeline: Pipeline, keys: tuple[str, ...], func: Any, errors: OnErrorWords = ("fail", None)) -> Pipeline:
    """The rows of a key reduced in each task, then among all of them. Without keys: to one row. Where an error is no end, only when all rows
    of a key are together."""
    with step_at("reduce") as place:
        kind = f"reduce({plain_function(func, 'reduce')})"
        schema = pipeline.schema
        pipeline.refuse_sides(kind)
        check_row_schema(schema)
        policy = on_group_error("reduce", errors, schema)
        if not policy.fails:
            grouped = ReduceGroups(kind, func, keys, schema, policy)
            edge = StreamEdge(pipeline.node, ShipStrategy.HASH, keys)
            return pipeline.at(
                StreamNode(kind, KeyedStep(grouped, grouped, (keys,), keys), schema, (edge,), place=place)
            )
        ship = ShipStrategy.HASH if keys else ShipStrategy.GLOBAL
        edge = StreamEdge(pipeline.node, ship, keys, ReduceCombiner(kind, func, keys, schema), nullable(schema))
        operator = Reduce(kind, func, keys, schema)
        work = KeyedStep(operator, operator, (keys,), keys or None)
        return pipeline.at(StreamNode(kind, work, schema, (edge,), place=place))


def with_broadcast(pipeline: Pipeline, streams: Mapping[str, Any]) -> Pipeline:
    """The same rows, with these streams as side inputs of the next step."""
    with step_at("with_broadcast"):
        if not streams:
            raise UsageError("with_broadcast wants at least one name=stream.")
        edges: list[tuple[str, StreamEdge]] = []
        for name, stream in streams.items():
            other = pipeline_of(stream)
            if other is None:
                raise UsageError(f"with_broadcast({name}=...) wants a stream, not {type(stream).__name__}.")
            if name in pipeline.side_names:
                raise UsageError(f"There is a side input '{name}' already.")
            pipeline.check_same_environment(other)
            other.refuse_sides("with_broadcast")
            edges.append((name, StreamEdge(other.node, ShipStrategy.BROADCAST)))
        return Pipeline(pipeline.env, pipeline.node, pipeline.ship, (*pipeline.sides, *edges))


_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*/\s*(s|sec|second|min|minute|h|hour)\s*$")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
MOST_CONCURRENT = 10_000
_NO_SET_UP = "Give an async function, or an object whose async __call__ opens the client in its first call, on the event loop it belongs to."


def call_settings(
    func: Any, *, concurrency: Any, ordered: bool, rate: Any, retries: Any, timeout: Any
) -> dict[str, Any]:
    """The fields of ``MapAsync`` for them. Raises UsageError."""
    name = plain_function(func, "map_async", _NO_SET_UP)
    if not is_async(func):
        raise UsageError(
            f"map_async wants an async function, and {name} is none.",
            hint="Write 'async def', or use map(f, schema) for a plain function.",
        )
    if require_count(concurrency, "concurrency of map_async", 1) > MOST_CONCURRENT:
        raise UsageError(f"concurrency of map_async must be at most {MOST_CONCURRENT:,}, not {concurrency:,}.")
    require_count(retries, "retries of map_async", 0)
    return {
        "calls": CallPolicy(concurrency, retries, None if timeout is None else _seconds(timeout)),
        "ordered": bool(ordered),
        "rate": None if rate is None else per_second(rate),
    }


def is_async(func: Callable[..., Any]) -> bool:
    """True of coroutine functions, of objects that are called as one, and of either with some arguments bound."""
    while isinstance(func, partial):
        func = func.func  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def per_second(rate: Any) -> float:
    """Calls a second of ``"100/s"``, ``"5000/min"`` or a number, which is by the second. Raises UsageError."""
    found = None
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        found = float(rate)
    elif isinstance(rate, str) and (match := _RATE.match(rate)):
        found = float(match[1]) / _SECONDS[match[2][0]]
    if found is None:
        raise UsageError(
            f'rate of map_async is a number of calls a second, "100/s", "5000/min" or "1000/h", not {rate!r}.'
        )
    if not 0 < found < math.inf:
        raise UsageError(
            f"The rate of map_async must be above 0 calls a second and finite; {rate!r} is not.",
            hint="Leave rate out to call without a limit.",
        )
    return found


def _seconds(timeout: Any) -> float:
    found = None
    if isinstance(timeout, timedelta):
        found = timeout.total_seconds()
    elif isinstance(timeout, int | float) and not isinstance(timeout, bool):
        found = float(timeout)
    elif isinstance(timeout, str):
        try:
            found = parse_seconds(timeout)
        except ValueError:
            found = None
    if found is None or not (0 < found < math.inf):
        raise UsageError(f'timeout of map_async is a number of seconds, or "500 ms" or "2 s", not {timeout!r}.')
    return found

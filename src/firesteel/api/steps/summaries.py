"""Samples and summaries of a whole stream."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.common import step_at
from firesteel.api.steps.keyed import aggregate_of
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import plain_names
from firesteel.compile.stream_graph import ChainedStep
from firesteel.errors import UsageError
from firesteel.task.operators.aggregation.aggregate import is_number
from firesteel.task.operators.relational import STATISTICS, Describe, Sample, check_columns, order_type, output_schema


def sample(pipeline: Pipeline, fraction: Any, seed: Any, with_replacement: Any) -> Pipeline:
    with step_at("sample") as place:
        pipeline.refuse_sides("sample")
        chance, drawn = _fraction(fraction, with_replacement), _seed(seed)
        draw = Sample(f"sample({fraction})", chance, drawn, bool(with_replacement))
        return pipeline.then(draw.name, ChainedStep(draw, pipeline.unchanged), pipeline.schema, place)


def describe(pipeline: Pipeline, columns: Sequence[Any]) -> Pipeline:
    with step_at("describe") as place:
        return _described(pipeline, "describe", plain_names(columns, "describe"), STATISTICS, place)


def summary(pipeline: Pipeline, statistics: tuple[str, ...]) -> Pipeline:
    with step_at("summary") as place:
        unknown = next((name for name in statistics if name not in STATISTICS), None)
        if unknown is not None:
            raise UsageError(
                f"summary has no '{unknown}'.",
                hint=f"There are {', '.join(STATISTICS)}. For percentiles write aggregate(p=agg.percentile(...)).",
            )
        return _described(pipeline, "summary", (), statistics or STATISTICS, place)


def _described(
    pipeline: Pipeline, kind: str, columns: Sequence[str], statistics: tuple[str, ...], place: str
) -> Pipeline:
    pipeline.refuse_sides(kind)
    rows = pipeline.schema
    names = tuple(columns) or tuple(name for name in rows.names if _by_default(rows, name))
    check_columns(rows, names, kind)
    if not names:
        raise UsageError("There is no column of numbers or strings to describe.", hint='Name others: describe("day").')
    if "summary" in names:
        raise UsageError(f"{kind} names its first column 'summary', as one of yours is.", hint="Rename yours.")
    types = tuple(order_type(rows.field(name).type) for name in names)
    wrong = next((name for name, type_ in zip(names, types, strict=True) if type_ is None), None)
    if wrong is not None:
        raise UsageError(f"Column '{wrong}' is {rows.field(wrong).type}, whose values have no order.")
    aggs = [
        Aggregation(function, (name,), f"{place}_{what}")
        for place, (name, type_) in enumerate(zip(names, types, strict=True))
        for what, function in _FUNCTIONS.items()
        if what in statistics and (is_number(type_) or what not in ("mean", "stddev"))  # type: ignore[arg-type]
    ]
    found = aggregate_of(pipeline, (), tuple(aggs), place)
    whole = Describe(kind, names, tuple(statistics))
    return found.then(kind, ChainedStep(whole), output_schema(names), place)


_FUNCTIONS = {"count": "count", "mean": "mean", "stddev": "stddev_samp", "min": "min", "max": "max"}


def _by_default(schema: pa.Schema, name: str) -> bool:
    type_ = order_type(schema.field(name).type)
    return type_ is not None and (is_number(type_) or str(type_) in ("string", "large_string"))


def _fraction(fraction: Any, replacement: bool) -> float:
    is_one = isinstance(fraction, int | float) and not isinstance(fraction, bool) and math.isfinite(fraction)
    if not is_one or fraction < 0 or (fraction > 1 and not replacement):
        most = "" if replacement else " and at most 1"
        raise UsageError(
            f"The fraction of a sample is a number of at least 0{most}, not {fraction!r}.",
            hint="Write sample(0.1, seed=1).",
        )
    return float(fraction)


def _seed(seed: Any) -> int:
    if seed is None:
        return random.getrandbits(63)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UsageError(f"The seed of a sample is a whole number, not {seed!r}.")
    return seed % (1 << 64)

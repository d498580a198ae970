"""Several streams as one: unions, and the rows that two of them have in common or not."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline, pipeline_of
from firesteel.api.steps.projection import project
from firesteel.compile import nodes
from firesteel.compile.relations import groups
from firesteel.errors import UsageError
from firesteel.results.keys import normal_type
from firesteel.task.expressions import column


def union(pipeline: Pipeline, others: Sequence[object]) -> Pipeline:
    if not others:
        return pipeline
    with step_at("union") as place:
        return _union([pipeline, *_pipelines("union", others)], place)


def union_by_name(pipeline: Pipeline, other: object, allow_missing_columns: bool) -> Pipeline:
    with step_at("union_by_name") as place:
        right = pipeline_of(other)
        if right is None:
            raise UsageError(f"union_by_name wants a stream, not {other!r}.")
        names, others = dict.fromkeys(pipeline.names), dict.fromkeys(right.names)
        extra = [name for name in others if name not in names]
        missing = [name for name in names if name not in others]
        if (extra or missing) and not allow_missing_columns:
            side, name = ("first", extra[0]) if extra else ("second", missing[0])
            raise UsageError(
                f"The {side} stream has no column '{name}'.",
                hint="Write allow_missing_columns=True for nulls there.",
            )
        wanted = {n: (pipeline if n in names else right).schema.field(n).type for n in [*names, *extra]}
        aligned = [_aligned(one, wanted, place) for one in (pipeline, right)]
    with step_at("union") as place:
        return _union(aligned, place)


def union_of(pipelines: list[Pipeline]) -> Pipeline:
    """The rows of all of these, whose columns agree."""
    return _union(pipelines, "")


def _union(pipelines: list[Pipeline], place: str) -> Pipeline:
    _check("union", pipelines)
    return pipelines[0].at(nodes.union([one.edge() for one in pipelines], place))


def set_operation(pipeline: Pipeline, kind: str, other: object) -> Pipeline:
    """``kind``: subtract, except_all, intersect or intersect_all."""
    with step_at(kind) as place:
        sides = [pipeline, *_pipelines(kind, [other])]
        _check(kind, sides)
        schema = nodes.same_columns([one.schema for one in sides], kind)
        for field in schema:
            _check_comparable(kind, field.name, field.type)
        inputs = [nodes.under(one.edge(), schema, place).source for one in sides]
        return pipeline.at(groups.set_operation(inputs, kind, schema, place))


def _pipelines(kind: str, streams: Sequence[object]) -> list[Pipeline]:
    found: list[Pipeline] = []
    for stream in streams:
        pipeline = pipeline_of(stream)
        if pipeline is None:
            raise UsageError(f"{kind} wants streams, not {stream!r}.")
        found.append(pipeline)
    return found


def _check(kind: str, pipelines: list[Pipeline]) -> None:
    """Raises UsageError."""
    for pipeline in pipelines:
        pipelines[0].check_same_environment(pipeline)
        pipeline.refuse_sides(kind)


def _aligned(pipeline: Pipeline, wanted: dict[str, pa.DataType], place: str) -> Pipeline:
    """The columns ``wanted``, in this order; nulls in the place of those that are not there."""
    if list(wanted) == pipeline.names:
        return pipeline
    here = set(pipeline.names)
    columns = [(n, column(n) if n in here else pc.scalar(pa.scalar(None, t))) for n, t in wanted.items()]
    return project(pipeline, "select", columns, place)


def _check_comparable(kind: str, name: str, type_: pa.DataType) -> None:
    """Raises UsageError for a column in which rows cannot be compared: a map's entries have no order, as in Spark."""
    normal_type(type_)
    if _has_map(type_):
        raise UsageError(
            f"{kind} compares whole rows, and column '{name}' has a map, {type_}, whose entries have no order.",
            hint="Leave the column out, or make it a list of structs in a fixed order.",
        )


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _has_map(type_.value_type)
    return any(_has_map(type_.field(i).type) for i in range(type_.num_fields))

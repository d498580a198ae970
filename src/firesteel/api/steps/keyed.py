"""Steps on groups of equal keys, joins and cogroups. Null keys are one group; in joins they match nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firesteel.api.ddl import to_schema
from firesteel.api.steps.aggregates.functions import Aggregation, call_of, check_aggregations, output_type
from firesteel.api.steps.aggregates.written import Prepared, calls, prepared
from firesteel.api.steps.common import OnErrorWords, flat, on_group_error, settable_function, step_at
from firesteel.api.steps.pipeline import Pipeline, pipeline_of
from firesteel.api.steps.projection import Computed, project, projected, with_expressions
from firesteel.api.steps.spark_columns import plain_names
from firesteel.api.steps.window import windowed
from firesteel.compile import nodes
from firesteel.compile.push_down import narrowest
from firesteel.compile.relations import groups
from firesteel.compile.stream_graph import KeyedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.humanize import first_of
from firesteel.model.job_graph import ShipStrategy
from firesteel.plan.relation import Aggregate
from firesteel.task.expressions import column, plain_column
from firesteel.task.functions.group_functions import ApplyInArrow, ApplyInPandas, CoGroupApplyInArrow, takes_key
from firesteel.task.operators.aggregation.states import AggregateStates, MergeStates, PartialStates, States
from firesteel.task.operators.join import join_schema
from firesteel.task.operators.relational import as_expression, check_columns


@dataclass(frozen=True, slots=True)
class Keyed:
    """A pipeline and the columns by whose values its rows are brought together."""

    pipeline: Pipeline
    keys: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.pipeline.schema

    def edge(self) -> StreamEdge:
        return StreamEdge(self.pipeline.node, ShipStrategy.HASH, self.keys)


def key_by(pipeline: Pipeline, columns: Sequence[Any]) -> Keyed:
    with step_at("key_by") as place:
        pipeline, given = with_expressions(pipeline, flat(columns, (list, tuple)), "key_by", place, spoken=True)
        names = plain_names(given, "key_by")
        if not names:
            raise UsageError(
                "key_by wants at least one column.", hint="For all rows together use aggregate() without keys."
            )
        for name in names:
            if not isinstance(name, str):
                plain = plain_column(as_expression(name), pipeline.schema)
                raise UsageError(
                    f"key_by wants column names, not the expression {name}.",
                    hint=f'Write key_by("{plain}").' if plain else "Make it a column first, by with_column().",
                )
        check_columns(pipeline.schema, names, "key_by")
        if len(set(names)) != len(names):
            raise UsageError(f"key_by names a column twice: {', '.join(names)}.")
        return Keyed(pipeline, tuple(names))


# --- aggregates and duplicates --------------------------------------------------------------------------------------


def aggregate(pipeline: Pipeline, keys: tuple[str, ...], given: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
    """Aggregates as users write them. Without keys: of all rows."""
    with step_at("aggregate") as place:
        pipeline.refuse_sides("aggregate")
        made = prepared(calls(given, named, "aggregate", pipeline.schema), pipeline.schema, "aggregate")
        return aggregated(pipeline, keys, made, place)


def aggregated(pipeline: Pipeline, keys: tuple[str, ...], made: Prepared, place: str) -> Pipeline:
    """The aggregates, behind a projection where columns are computed for them."""
    aggs = tuple(made.aggregations)
    if made.computed:
        kind = f"columns of {_kind_of(aggs)}"
        pipeline = project(pipeline, kind, needed(pipeline.schema, keys, aggs, made.computed), place)
    return aggregate_of(pipeline, keys, aggs, place)


def needed(
    schema: pa.Schema, keys: tuple[str, ...], aggs: tuple[Aggregation, ...], computed: Mapping[str, Computed]
) -> list[tuple[str, Computed]]:
    """The columns that an aggregation reads: as they are, or computed of them."""
    made = projected(schema, list(computed.items()))
    whole = pa.schema([*schema, *made])
    check_aggregations(whole, keys, aggs)
    reads = {name for agg in aggs for name in agg.reads} | set(keys)
    reads = reads or {narrowest(schema)}
    return [*((name, column(name)) for name in schema.names if name in reads), *computed.items()]


def count(pipeline: Pipeline, keys: tuple[str, ...]) -> Pipeline:
    """The number of rows, as column ``count``. Without keys: of all rows."""
    with step_at("count") as place:
        pipeline.refuse_sides("count")
        return aggregate_of(pipeline, keys, (Aggregation("count", (), "count"),), place)


def _kind_of(aggs: Sequence[Aggregation]) -> str:
    return f"aggregate({first_of([a.output for a in aggs], 4)})"


def aggregate_of(pipeline: Pipeline, keys: tuple[str, ...], aggs: tuple[Aggregation, ...], place: str) -> Pipeline:
    """In part before the exchange, the rest after it. Without keys: one row, in one subtask.

    Users' aggregates and sketches are computed by a step of their own, and joined to the others by key.
    """
    check_aggregations(pipeline.schema, keys, aggs)
    engines, ours = (tuple(agg for agg in aggs if (agg.ours is None) == engine) for engine in (True, False))
    if not ours:
        return _groups(pipeline, keys, engines, place)
    found = _states(pipeline, keys, ours, place)
    if not engines:
        return found
    both = groups.side_by_side(_groups(pipeline, keys, engines, place).node, found.node, keys, place)
    outputs = [*keys, *(agg.output for agg in aggs)]
    return project(pipeline.at(both), _kind_of(aggs), [(name, column(name)) for name in outputs], place)


def _groups(pipeline: Pipeline, keys: tuple[str, ...], aggs: tuple[Aggregation, ...], place: str) -> Pipeline:
    rows, kind = pipeline.schema, _kind_of(aggs)
    reads = _reads(rows, keys, aggs)
    stream = groups.stream_of(pipeline.node, reads, kind)
    columns = groups.columns_of(stream, reads)
    items = {f"k{n}": columns[key] for n, key in enumerate(keys)}
    items |= {f"a{n}": call_of(agg, rows, columns) for n, agg in enumerate(aggs)}
    relation = Aggregate(stream, tuple(columns[key] for key in keys), items)
    out = pa.schema([*groups.key_fields(rows, keys), *(pa.field(agg.output, output_type(agg, rows)) for agg in aggs)])
    made = {agg.output: tuple(agg.reads) for agg in aggs}
    by_order = tuple(agg.output for agg in aggs if agg.order_dependent)
    return pipeline.at(groups.groups(pipeline.node, relation, keys, reads, out, kind, made, by_order, place))


def _states(pipeline: Pipeline, keys: tuple[str, ...], aggs: tuple[Aggregation, ...], place: str) -> Pipeline:
    rows, kind = pipeline.schema, _kind_of(aggs)
    reads = _reads(rows, keys, aggs)
    schema = groups.narrowed(rows, reads)
    given = tuple((agg.output, agg.ours, agg.where) for agg in aggs if agg.ours is not None)
    states = States(schema, keys, given)
    ship = ShipStrategy.HASH if keys else ShipStrategy.GLOBAL
    combiner = PartialStates(keys, given, schema)
    edge = StreamEdge(pipeline.node, ship, keys, combiner, states.partial_schema, reads=reads)
    made = {agg.output: tuple(agg.reads) for agg in aggs}
    by_order = tuple(agg.output for agg in aggs if agg.order_dependent)
    merge, whole = (operator(kind, keys, given, schema) for operator in (MergeStates, AggregateStates))
    work = KeyedStep(merge, whole, (keys,), keys, made, by_order)
    return pipeline.at(StreamNode(kind, work, states.output_schema, (edge,), place=place))


def _reads(schema: pa.Schema, keys: tuple[str, ...], aggs: tuple[Aggregation, ...]) -> tuple[str, ...]:
    reads = tuple(dict.fromkeys([*keys, *(name for agg in aggs for name in agg.reads)]))
    return reads or (narrowest(schema),)  # rows without columns have no number


def distinct(pipeline: Pipeline) -> Pipeline:
    """Duplicates are removed in each task first, then among all rows that are equal."""
    with step_at("distinct") as place:
        pipeline.refuse_sides("distinct")
        return pipeline.at(groups.distinct(pipeline.node, tuple(pipeline.names), "distinct", place))


def drop_duplicates(pipeline: Pipeline, subset: Sequence[Any]) -> Pipeline:
    """One row of those that agree in these columns (none: in all): in each task first, then among all."""
    with step_at("drop_duplicates") as place:
        pipeline.refuse_sides("drop_duplicates")
        names = plain_names(flat([column for column in subset if column is not None], (list, tuple)), "drop_duplicates")
        check_columns(pipeline.schema, names, "drop_duplicates")
        keys = tuple(dict.fromkeys(names)) or tuple(pipeline.names)
        return pipeline.at(groups.distinct(pipeline.node, keys, f"drop_duplicates({first_of(keys, 4)})", place))


# --- functions of groups --------------------------------------------------------------------------------------------


def window(keyed: Keyed, functions: Mapping[str, Any], order_by: Any) -> Pipeline:
    with step_at("window") as place:
        keyed.pipeline.refuse_sides("window")
        return windowed(keyed.pipeline, keyed.keys, functions, order_by, place)


def apply_in_arrow(keyed: Keyed, func: Any, schema: Any, errors: OnErrorWords) -> Pipeline:
    return _apply(keyed, "apply_in_arrow", ApplyInArrow, func, schema, errors)


def apply_in_pandas(keyed: Keyed, func: Any, schema: Any, errors: OnErrorWords) -> Pipeline:
    return _apply(keyed, "apply_in_pandas", ApplyInPandas, func, schema, errors)


def _apply(  # noqa: PLR0917
    keyed: Keyed,
    step: str,
    operator: type[ApplyInArrow | ApplyInPandas],
    func: Any,
    schema: Any,
    errors: OnErrorWords,
) -> Pipeline:
    with step_at(step) as place:
        pipeline, names = keyed.pipeline, keyed.pipeline.side_names
        name, func = settable_function(func, step)
        kind = f"{step}({name})"
        out = to_schema(schema)
        takes_key(kind, func, 1, names)
        made = operator(kind, func, keyed.keys, out, names, on_group_error(step, errors, keyed.schema))
        work = KeyedStep(made, made, (keyed.keys,))
        return pipeline.at(StreamNode(kind, work, out, (keyed.edge(),), pipeline.sides, place))


# --- two streams ----------------------------------------------------------------------------------------------------


def join(left: Keyed, other: object, how: str, suffix: str, broadcast: str | None, on: Any) -> Pipeline:  # noqa: PLR0917
    """``on``: PySpark's, which is refused."""
    with step_at("join") as place:
        if on is not None:
            keys = ", ".join(f'"{key}"' for key in left.keys)
            raise UsageError(
                f"join takes no on={on!r}: rows are compared by the columns of key_by.",
                hint=f"Write a.key_by({keys}).join(b.key_by({keys})), or a.join(b, {keys if len(left.keys) == 1 else f'[{keys}]'}) of streams without a key.",
            )
        right = _other("join", left, other)
        left.pipeline.refuse_sides("join")
        return join_of(left, right, how, suffix, broadcast, place)


def join_of(left: Keyed, right: Keyed, how: str, suffix: str, broadcast: str | None, place: str) -> Pipeline:  # noqa: PLR0917
    """The join of two keyed pipelines of one environment."""
    return left.pipeline.at(nodes.join(left.edge(), right.edge(), how, suffix, broadcast, place))


def cogroup(left: Keyed, other: object) -> Keyed:
    """The other side, checked."""
    with step_at("cogroup"):
        right = _other("cogroup", left, other)
        join_schema(left.schema, right.schema, left.keys, right.keys, "semi")
        return right


def cogroup_in_arrow(left: Keyed, right: Keyed, func: Any, schema: Any, errors: OnErrorWords) -> Pipeline:
    step = "cogroup.apply_in_arrow"
    with step_at(step) as place:
        pipeline, names = left.pipeline, left.pipeline.side_names
        name, func = settable_function(func, step)
        kind = f"{step}({name})"
        out = to_schema(schema)
        takes_key(kind, func, 2, names)
        policy = on_group_error(step, errors, left.schema, right.schema)
        made = CoGroupApplyInArrow(kind, func, left.keys, right.keys, out, names, policy)
        work = KeyedStep(made, made, (left.keys, right.keys))
        return pipeline.at(StreamNode(kind, work, out, (left.edge(), right.edge()), pipeline.sides, place))


def _other(step: str, left: Keyed, other: object) -> Keyed:
    """The other side of ``step``. Raises UsageError if it does not fit beside ``left``."""
    if pipeline_of(other) is not None:
        raise UsageError(f"{step} wants a keyed stream.", hint=f"Write a.key_by(...).{step}(b.key_by(...)).")
    right = getattr(other, "_keyed", None)
    if not isinstance(right, Keyed):
        raise UsageError(f"{step} wants a keyed stream, not {type(other).__name__}.")
    left.pipeline.check_same_environment(right.pipeline)
    right.pipeline.refuse_sides(step)
    return right

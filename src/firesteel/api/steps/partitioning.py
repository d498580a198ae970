"""PySpark's steps that set the number of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.api.steps.common import require_count, step_at
from firesteel.api.steps.ordering import range_partition
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.spark_columns import plain_names
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import FileSizes, ShipStrategy
from firesteel.task.operators.relational import check_columns
from firesteel.task.passing import Encodes, FileSample, Passing, PassingByKey


def repartition(pipeline: Pipeline, n: int | str, columns: Sequence[Any]) -> Pipeline:
    with step_at("repartition") as place:
        pipeline.refuse_sides("repartition")
        keys = tuple(plain_names(columns, "repartition"))
        names, count = ((n, *keys), None) if isinstance(n, str) else (keys, require_count(n, "repartition()", 1))
        check_columns(pipeline.schema, names, "repartition")
        kind = f"repartition({', '.join(map(str, (n, *keys)))})"
        if names:
            made = _hashed(pipeline, kind, tuple(dict.fromkeys(names)), place)
        else:
            made = _passed(pipeline, kind, ShipStrategy.REBALANCE, place)
        made.node.config.parallelism = count
        return made


def repartition_by_range(pipeline: Pipeline, number: Any, columns: Sequence[Any]) -> Pipeline:
    """``number``: of ranges, or the first column if it is left to be decided."""
    pipeline = pipeline.partitioned(None)
    if not isinstance(number, int):
        return range_partition(pipeline, (number, *columns), True)
    with step_at("repartition_by_range"):
        count = require_count(number, "the number of ranges", 1)
    made = range_partition(pipeline, columns, True)
    made.node.config.parallelism = count
    return made


def coalesce(pipeline: Pipeline, n: Any) -> Pipeline:
    with step_at("coalesce") as place:
        pipeline.refuse_sides("coalesce")
        if isinstance(n, str):
            raise UsageError("coalesce wants a number of subtasks.", hint="For nulls write fill_nulls(value, ...).")
        kind = f"coalesce({require_count(n, 'coalesce()', 1)})"
        made = _passed(pipeline, kind, ShipStrategy.RESCALE, place)
        made.node.config.parallelism = n
        return made


def gathered(pipeline: Pipeline, columns: Sequence[str], nbytes: int, sink: Encodes, kind: str) -> Pipeline:
    """The rows for files of ``nbytes``, which ``sink`` writes as the step ``kind``. ``columns``: those that divide files; rows of the same values
    come together, in as many subtasks as they fill files."""
    pipeline.refuse_sides("file_size")
    check_columns(pipeline.schema, columns, "partition_by")
    sample = f"file sizes of {kind}"
    work = ChainedStep(FileSample(sample, sink), pipeline.unchanged)
    plain = pipeline.then(sample, work, pipeline.schema, "").partitioned(None)
    if columns:
        made = range_partition(plain, columns, True, split_equal=True)
    else:
        made = _passed(plain, "gather", ShipStrategy.RESCALE, "")
    made.node.config.files = FileSizes(nbytes, sample)
    return made


def _passed(pipeline: Pipeline, kind: str, ship: ShipStrategy, place: str) -> Pipeline:
    work = ChainedStep(Passing(kind), pipeline.unchanged)
    return pipeline.partitioned(ship).then(kind, work, pipeline.schema, place)


def _hashed(pipeline: Pipeline, kind: str, keys: tuple[str, ...], place: str) -> Pipeline:
    operator: Any = PassingByKey(kind, keys)
    edge = StreamEdge(pipeline.node, ShipStrategy.HASH, keys)
    work = KeyedStep(operator, operator, (keys,), keys)
    return pipeline.at(StreamNode(kind, work, pipeline.schema, (edge,), place=place))

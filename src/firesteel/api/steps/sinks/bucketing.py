"""``bucket_by`` and ``sort_by``: rows brought together by Spark's buckets before they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from firesteel.api.steps.common import unused_name
from firesteel.api.steps.ordering import sort
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep
from firesteel.connectors.files.spark_hash import hashed_as
from firesteel.connectors.files.writing.buckets import BucketNumbers, Buckets
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.results.order.ordering import can_order
from firesteel.task.operators.relational import check_columns

MOST_BUCKETS = 100_000
"""As in Spark (``spark.sql.sources.bucketing.maxBuckets``)."""


def buckets_of(schema: pa.Schema, bucket_by: Any, sort_by: Any, partition_by: Sequence[str]) -> Buckets | None:
    """The buckets that a user asked for, checked; None: none. Raises UsageError."""
    order = _names("sort_by", sort_by)
    if bucket_by is None:
        if order:
            raise UsageError(
                f"sort_by={sort_by!r} needs bucket_by: it is the order within a bucket.",
                hint="To write files in order, write the rows of sort(...).",
            )
        return None
    count, columns = _count_and_columns(bucket_by)
    for what, names in (("bucket_by", columns), ("sort_by", order)):
        check_columns(schema, names, what)
        twice = named_twice(names)
        if twice is not None:
            raise UsageError(f"{what} names the column '{twice}' twice.")
        both = next((name for name in names if name in partition_by), None)
        if both is not None:
            raise UsageError(
                f"'{both}' is in partition_by and in {what}: all rows of a partition have one value of it."
            )
    for name in columns:
        if hashed_as(schema.field(name).type) is None:
            raise UsageError(
                f"bucket_by cannot part rows by '{name}': Spark has no hash for {schema.field(name).type}.",
                hint="Cast it to text, a signed number, a decimal, a boolean, a date or a timestamp of microseconds.",
            )
    unordered = next((name for name in order if not can_order(schema.field(name).type)), None)
    if unordered is not None:
        raise UsageError(f"sort_by cannot order by '{unordered}': it is {schema.field(unordered).type}.")
    return Buckets(count, columns, order, unused_name("__bucket", schema.names))


def _count_and_columns(given: Any) -> tuple[int, tuple[str, ...]]:
    parts: list[Any] = list(cast(Sequence[Any], given)) if isinstance(given, list | tuple) else []
    count, columns = (parts[0], _names("bucket_by", parts[1:])) if parts else (None, ())
    if isinstance(count, bool) or not isinstance(count, int) or not columns:
        raise UsageError(
            f"bucket_by={given!r} is not a number of buckets and columns.", hint='Write bucket_by=(8, "user").'
        )
    if not 1 <= count <= MOST_BUCKETS:
        raise UsageError(f"bucket_by wants 1 to {MOST_BUCKETS:,} buckets, not {count:,}.")
    return count, columns


def _names(what: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    if len(names) == 1 and isinstance(names[0], list | tuple):
        names = tuple(cast(Sequence[Any], names[0]))
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise UsageError(f"{what} wants names of columns, not {wrong!r}.")
    return names


def in_buckets(pipeline: Pipeline, buckets: Buckets, partition_by: Sequence[str], place: str) -> Pipeline:
    """The rows with the number of their bucket, those of one together, and in order within it."""
    pipeline.refuse_sides("bucket_by")
    schema = pa.schema([*pipeline.schema, pa.field(buckets.number, pa.int32())])
    kind = f"buckets({buckets.words})"
    work = ChainedStep(BucketNumbers(kind, buckets.columns, buckets.count, schema), pipeline.unchanged)
    numbered = pipeline.partitioned(None).then(kind, work, schema, place)
    return sort(numbered, [*partition_by, buckets.number, *buckets.sort_by], True)
